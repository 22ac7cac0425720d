"""Sets of images: the formats they were published in, made here, and their way into a data home."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from _published import serving
from PIL import Image
from typer.testing import CliRunner

from deep_ensembles.cli import app
from deep_ensembles.paper.datasets import Card, DatasetError, ImageDataset, card, images
from deep_ensembles.paper.datasets.images import IDX, read_array, read_cifar, read_letters, read_svhn, write_idx
from deep_ensembles.paper.fetch import fetch

GENERATOR = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return GENERATOR.integers(0, 256, shape, dtype=np.uint8)


def converted(name: str, originals: dict[str, bytes], home: Path, rows: int) -> ImageDataset:
    """What a set's converter makes of originals, loaded."""
    promise = replace(card(name), rows=rows)
    folder = home / "originals" / name
    folder.mkdir(parents=True)
    for file, content in originals.items():
        (folder / file).write_bytes(content)
    assert promise.convert
    assert promise.file
    promise.convert(promise, folder, home / promise.file)
    assert promise.is_whole(home)
    return images(name, home)


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def picture(array: np.ndarray, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, form)
    return buffer.getvalue()


def idx_files(train: int = 20, test: int = 10) -> dict[str, bytes]:
    labels = {"train": np.arange(train, dtype=np.uint8) % 10, "t10k": np.arange(test, dtype=np.uint8) % 10}
    both = [{f"{stem}{IDX[0]}": idx(pixels(len(own), 28, 28)), f"{stem}{IDX[1]}": idx(own)} for stem, own in labels.items()]
    return both[0] | both[1]


def cifar_batches(n: int = 4) -> tuple[np.ndarray, list[int]]:
    return pixels(6 * n, 3, 32, 32), [number % 10 for number in range(6 * n)]


def cifar_archive(planes: np.ndarray, labels: list[int]) -> bytes:
    files, n = {"cifar/readme.html": b"<p>"}, len(labels) // 6
    for number in range(6):
        own = zip(labels[number * n : number * n + n], planes[number * n : number * n + n], strict=True)
        name = f"cifar/data_batch_{number + 1}.bin" if number < 5 else "cifar/test_batch.bin"
        files[name] = b"".join(bytes([mark]) + each.tobytes() for mark, each in own)
    return packed(files)


def test_idx_files_are_kept_as_they_are(tmp_path: Path) -> None:
    files = idx_files()
    dataset = converted("mnist", files, tmp_path, rows=30)
    assert all((tmp_path / "mnist" / name).read_bytes() == content for name, content in files.items())
    assert (dataset.parts["train"][0].shape, dataset.classes) == ((20, 28, 28), tuple("0123456789"))
    assert dataset.description == "handwritten digits; here: 20 of 60000 training and 10 of 10000 test images"
    np.testing.assert_array_equal(dataset.parts["test"][1], np.arange(10))


def test_a_part_is_loaded_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path))
    (tmp_path / "fashion-mnist").mkdir()
    for name, content in idx_files().items():
        if name.startswith("t10k"):
            (tmp_path / "fashion-mnist" / name).write_bytes(content)
    known, dataset = card("fashion-mnist"), images("fashion-mnist", tmp_path)
    assert (known.is_here(tmp_path), known.is_whole(tmp_path)) == (True, False)
    listed = CliRunner().invoke(app, ["data", "list"]).stdout.replace("│", " ").splitlines()
    assert ["fashion-mnist", "70000", "28×28", "1", "part", "fashion-mnist/"] in [line.split() for line in listed]
    assert ["tiny-imagenet", "110000", "64×64×3", "1", "no", "tiny-imagenet/"] in [line.split() for line in listed]
    assert set(dataset.parts) == {"test"}
    assert "here: 0 of 60000 training and 10 of 10000 test images" in dataset.description
    pictures, labels = dataset.part("test")
    assert (pictures.shape, labels.dtype) == ((10, 1, 28, 28), np.int64)
    with pytest.raises(DatasetError, match="its train images are not here; run: deep-ensembles data fetch fashion-mnist"):
        dataset.part("train")
    with pytest.raises(ValueError, match="`part` must be 'train' or 'test', got 'val'"):
        dataset.part("val")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        gzip.compress(b"\0\0\x09\1" + bytes(8), mtime=0),
        idx(pixels(3, 28, 28))[:-20],
        gzip.compress(b"\0\0\x08\1\0\0\0\5ab", mtime=0),
    ],
)
def test_damaged_idx_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "some.gz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"some\.gz is damaged or not what its name promises"):
        read_array(tmp_path / "some.gz")


def test_idx_files_that_break_the_promise_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"mnist: expected 31 images of \(28, 28\) and as many labels, got 30 of"):
        converted("mnist", idx_files(), tmp_path, rows=31)
    assert not (tmp_path / "mnist").exists()


def test_svhn(tmp_path: Path) -> None:
    originals, given = {}, {}
    for part, n in (("train", 12), ("test", 11)):
        given[part] = pixels(32, 32, 3, n), (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, {"X": given[part][0], "y": given[part][1]}, do_compression=True)
        originals[f"{part}_32x32.mat"] = buffer.getvalue()
    dataset = converted("svhn", originals, tmp_path, rows=23)
    np.testing.assert_array_equal(dataset.parts["train"][0][5], given["train"][0][..., 5])
    assert dataset.parts["train"][1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert dataset.part("test")[0].shape == (11, 3, 32, 32)
    (tmp_path / "bad.mat").write_bytes(originals["test_32x32.mat"][:400])
    with pytest.raises(DatasetError, match=r"bad\.mat is damaged"):
        read_svhn(tmp_path / "bad.mat")


def test_the_first_images_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "svhn").mkdir()
    for stem, n in (("train-first20000", 12), ("test", 4)):
        np.save(tmp_path / "svhn" / f"{stem}-images.npy", pixels(n, 32, 32, 3))
        np.save(tmp_path / "svhn" / f"{stem}-labels.npy", np.zeros(n, np.uint8))
    dataset = images("svhn", tmp_path)
    assert "here: 12 of 73257 training and 4 of 26032 test images" in dataset.description
    assert dataset.origin.endswith("read from train-first20000-images.npy and test-images.npy")


def test_cifar(tmp_path: Path) -> None:
    planes, labels = cifar_batches()
    dataset = converted("cifar10", {"cifar-10-binary.tar.gz": cifar_archive(planes, labels)}, tmp_path, rows=24)
    np.testing.assert_array_equal(dataset.parts["train"][0], planes[:20].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(dataset.parts["train"][1], labels[:20])
    np.testing.assert_array_equal(dataset.parts["test"][1], labels[20:])


@pytest.mark.parametrize("names", [["data_batch_1", "test_batch"], ["data_batch_2.bin"]])
def test_an_archive_without_the_batches(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "cifar.tar.gz").write_bytes(packed(dict.fromkeys(names, b"x")))
    with pytest.raises(DatasetError, match=r"is damaged or not what its name promises \('data_batch_1.bin'\)"):
        read_cifar(tmp_path / "cifar.tar.gz")


def test_a_batch_that_is_none(tmp_path: Path) -> None:
    files = {f"data_batch_{n}.bin": b"short" for n in range(1, 6)} | {"test_batch.bin": b"short"}
    (tmp_path / "cifar.tar.gz").write_bytes(packed(files))
    with pytest.raises(DatasetError, match=r"cifar\.tar\.gz is damaged"):
        read_cifar(tmp_path / "cifar.tar.gz")


def test_letters(tmp_path: Path) -> None:
    letters = {f"small/{letter}/{n}.png": pixels(28, 28) for letter in "ABCDEFGHIJ" for n in (1, 0)}
    files = {name: picture(array) for name, array in reversed(letters.items())}
    extra = {"small/A/broken.png": b"", "small/A/._0.png": b"x", "small/K/0.png": b"x", "small/B/notes.txt": b"x"}
    with pytest.warns(UserWarning, match=r"left out 1 broken pictures: small/A/broken\.png$"):
        dataset = converted("notmnist", {"notMNIST_small.tar.gz": packed(files | extra)}, tmp_path, rows=20)
    assert set(dataset.parts) == {"test"}
    assert dataset.description.endswith("here: 20 of 18724 test images")
    assert dataset.classes == tuple("ABCDEFGHIJ")
    np.testing.assert_array_equal(dataset.parts["test"][1], np.repeat(np.arange(10), 2))
    np.testing.assert_array_equal(dataset.parts["test"][0][2], letters["small/B/0.png"])
    (tmp_path / "none.tar.gz").write_bytes(packed({}))
    with pytest.raises(DatasetError, match=r"none\.tar\.gz is damaged"):
        read_letters(tmp_path / "none.tar.gz")


def tiny_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for wnid in ("n01", "n02"):
            archive.writestr(f"tiny-imagenet-200/train/{wnid}/images/{wnid}_0.JPEG", picture(pixels(64, 64, 3), "JPEG"))
            archive.writestr(f"tiny-imagenet-200/train/{wnid}/{wnid}_boxes.txt", "")
        for number in (0, 1):
            archive.writestr(f"tiny-imagenet-200/val/images/val_{number}.JPEG", picture(pixels(64, 64), "JPEG"))
        archive.writestr(
            "tiny-imagenet-200/val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n"
        )
        archive.writestr("tiny-imagenet-200/test/images/test_0.JPEG", picture(pixels(64, 64), "JPEG"))
        archive.writestr("tiny-imagenet-200/words.txt", "n01\tone\n")
    return buffer.getvalue()


def test_tiny_imagenet(tmp_path: Path) -> None:
    dataset = converted("tiny-imagenet", {"tiny-imagenet-200.zip": tiny_archive()}, tmp_path, rows=4)
    assert dataset.classes == ("n01", "n02")
    assert dataset.parts["test"][0].shape == (2, 64, 64, 3)
    with zipfile.ZipFile(tmp_path / "tiny-imagenet" / "tiny-imagenet.zip") as archive:
        assert sorted(archive.namelist())[2:] == ["val/n01/val_1.JPEG", "val/n02/val_0.JPEG"]
    with pytest.raises(DatasetError, match="expected 5 pictures, got 4"):
        converted("tiny-imagenet", {"tiny-imagenet-200.zip": tiny_archive()}, tmp_path / "other", rows=5)
    with pytest.raises(DatasetError, match="damaged or not the published archive"):
        converted("tiny-imagenet", {"tiny-imagenet-200.zip": b"PK"}, tmp_path / "third", rows=4)


def _served(known: Card, server: Any, md5: bool) -> Card:
    sums = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in server.files.items()}
    here = server.card(known, rows=30)
    return replace(
        here, originals=tuple(replace(each, checksum=sums[each.file] if md5 else each.checksum) for each in here.originals)
    )


def test_fetching_images_by_their_md5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(idx_files()) as server:
        with pytest.raises(DatasetError, match="does not have the published checksum md5:f68b3c2d"):
            fetch(_served(card("mnist"), server, md5=False), tmp_path, retries=0)
        assert fetch(_served(card("mnist"), server, md5=True), tmp_path, retries=0) == tmp_path / "mnist" / f"train{IDX[1]}"
        assert images("mnist", tmp_path).part("train")[0].shape == (20, 1, 28, 28)


def test_image_sets_check_themselves(tmp_path: Path) -> None:
    good, labels = pixels(3, 8, 8), np.array([0, 1, 1])
    ImageDataset("fine", {"train": (good, labels)}, ("a", "b"))
    for labelled, message in [
        ((good.astype(float), labels), r"test: images must be uint8 .*, got float64 \(3, 8, 8\)"),
        ((pixels(3, 8), labels), "images must be"),
        ((good, labels[:2]), "labels must be 3 class numbers"),
        ((good, labels.astype(float)), "labels must be 3 class numbers"),
        ((good, labels + 1), "labels must be from 0 to 1, got 1 to 2"),
    ]:
        with pytest.raises(DatasetError, match=message):
            ImageDataset("broken", {"test": labelled}, ("a", "b"))
    with pytest.raises(ValueError, match=r"^`name` must be one of mnist, fashion-mnist, .*, got 'imagenet'"):
        images("imagenet")
    write_idx(tmp_path / "some.gz", good)
    np.testing.assert_array_equal(read_array(tmp_path / "some.gz"), good)

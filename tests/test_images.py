"""Pictures in class folders: on disk and in a zip, of every kind, broken ones, workers, and what augments them."""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from deep_ensembles import fit_ensemble
from deep_ensembles.images import ImageFolder
from deep_ensembles.networks import convnet
from deep_ensembles.paper.datasets import DatasetError, class_groups, data_home
from deep_ensembles.training.data import Row

GROUPS = data_home() / "tiny-imagenet" / "classes.tsv"
SUBSET = data_home() / "tiny-imagenet" / "tiny-imagenet-subset.zip"


def written(mode: str, size: tuple[int, int], form: str, seed: int = 0) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(buffer, form)
    return buffer.getvalue()


FILES = {
    "train/n02/colour.JPEG": written("RGB", (20, 16), "JPEG"),
    "train/n02/grey.jpg": written("L", (16, 40), "JPEG"),
    "train/n01/images/cmyk.jpeg": written("CMYK", (16, 16), "JPEG"),
    "train/n01/palette.png": written("P", (33, 50), "PNG"),
    "train/n03/clear.png": written("RGBA", (8, 8), "PNG"),
    "train/n03/other.JPEG": written("RGB", (64, 64), "JPEG", seed=1),
    "train/n03/._other.JPEG": b"left by a file manager",
    "train/n03/boxes.txt": b"0 0 1 1",
    "train/list.JPEG": b"in no class",
    "val/n01/0.JPEG": written("RGB", (16, 16), "JPEG"),
}


@pytest.fixture(params=["folder", "zip"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return put(tmp_path / "pictures", FILES, request.param)


def put(path: Path, files: dict[str, bytes], kind: str) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    if kind == "folder":
        return path
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
        for name in files:
            archive.write(path / name, name)
    return path.with_suffix(".zip")


def test_pictures_of_every_kind(place: Path) -> None:
    pictures = ImageFolder(place, image_size=16)
    assert pictures.classes == ("n01", "n02", "n03")
    assert [number for _, number in pictures.files] == [0, 0, 1, 1, 2, 2]
    assert len(list(pictures)) == len(pictures) == 6
    for image, _ in pictures:
        assert (image.shape, image.dtype) == ((3, 16, 16), torch.float32)
        assert 0 <= float(image.min()) < float(image.max()) <= 1
    grey, _ = pictures[3]
    assert torch.equal(grey[0], grey[1])
    assert pictures.check() == []
    assert len(ImageFolder(place, "val")) == 1


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_single_folder_around_everything_is_seen_through(tmp_path: Path, kind: str) -> None:
    files = {f"birds/{name}": content for name, content in FILES.items()}
    place = put(tmp_path / "packed", files | {"__MACOSX/birds/train/n01/._0.JPEG": b"left by a file manager"}, kind)
    pictures = ImageFolder(place, image_size=16)
    assert pictures.classes == ("n01", "n02", "n03")
    assert len(list(pictures)) == 6
    with pytest.raises(DatasetError, match="has no class folders with pictures in 'test'"):
        ImageFolder(place, "test")


def test_grey_pictures_of_16_bits_are_not_cut_off_at_white(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    (tmp_path / "train" / "a").mkdir(parents=True)
    Image.fromarray(values).save(tmp_path / "train" / "a" / "0.png")
    image, _ = ImageFolder(tmp_path, image_size=8)[0]
    assert np.abs(image[1].numpy() - values / 65535).max() < 1 / 255


def test_pictures_of_unknown_range_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.float32)).save(tmp_path / "train" / "a" / "0.tiff")
    with pytest.raises(DatasetError, match=r"train/a/0.tiff is broken or not a picture \(its pixels are floating-point"):
        ImageFolder(tmp_path, image_size=8)[0]


def test_the_middle_of_a_picture_is_taken(tmp_path: Path) -> None:
    wide = np.zeros((16, 48, 3), np.uint8)
    wide[:, 16:32] = 200
    buffer = io.BytesIO()
    Image.fromarray(wide).save(buffer, "PNG")
    image, _ = ImageFolder(put(tmp_path / "p", {"a/x.png": buffer.getvalue()}, "folder"), part="", image_size=16)[0]
    assert torch.equal(image, torch.full((3, 16, 16), 200 / 255))
    half, _ = ImageFolder(tmp_path / "p", part="", image_size=8)[0]
    assert float(half[:, :, 1:-1].min()) == pytest.approx(200 / 255)


def test_some_classes_in_the_order_given(place: Path) -> None:
    pictures = ImageFolder(place, classes=["n03", "n01"], image_size=16)
    assert pictures.classes == ("n03", "n01")
    assert (Path(pictures.files[0][0]).name, pictures.files[0][1]) == ("clear.png", 0)
    with pytest.raises(DatasetError, match="has no class n09 in 'train'; it has n01, n02, n03"):
        ImageFolder(place, classes=["n01", "n09"])
    with pytest.raises(DatasetError, match="has no class folders with pictures in 'test'; it has none"):
        ImageFolder(place, "test")


def test_all_in_memory(place: Path) -> None:
    pictures = ImageFolder(place, image_size=16, augment=True)
    images, labels = pictures.array()
    assert (images.shape, images.dtype, labels.tolist()) == ((6, 16, 16, 3), np.uint8, [0, 0, 1, 1, 2, 2])
    plain, _ = pictures[Row(4)]
    torch.testing.assert_close(torch.from_numpy(images[4]).permute(2, 0, 1) / 255, plain)


def test_workers_read_what_one_process_reads(place: Path) -> None:
    pictures = ImageFolder(place, image_size=16)
    expected = torch.stack([image for image, _ in pictures])  # the archive is open now
    loader = DataLoader(pictures, batch_size=2, num_workers=2)
    batches = list(loader)
    assert torch.equal(torch.cat([images for images, _ in batches]), expected)
    assert torch.cat([labels for _, labels in batches]).tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(pickle.loads(pickle.dumps(pictures))[3][0], expected[3])


def test_broken_pictures(tmp_path: Path) -> None:
    bad = {"train/n01/cut.JPEG": FILES["train/n02/colour.JPEG"][:300], "train/n02/text.png": b"not a picture"}
    place = put(tmp_path / "pictures", FILES | bad, "zip")
    pictures = ImageFolder(place, image_size=16)
    assert pictures.check() == list(bad)
    with pytest.raises(DatasetError, match=r"train/n01/cut\.JPEG is broken or not a picture"):
        list(pictures)
    with pytest.raises(DatasetError, match=r"cut\.JPEG is broken"):
        pictures.array()
    with pytest.warns(UserWarning, match=r"left out 2 broken pictures: train/n01/cut\.JPEG, train/n02/text\.png"):
        rest = ImageFolder(place, image_size=16, broken="skip")
    assert len(rest) == 6
    assert rest.check() == []
    with pytest.raises(DatasetError, match="no picture that can be read"), pytest.warns(UserWarning, match="left out 1"):
        ImageFolder(put(tmp_path / "none", {"train/a/x.png": b""}, "folder"), broken="skip")


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = ImageFolder(put(tmp_path / "pictures", FILES, "folder"))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"^pictures need Pillow: pip install 'deep-ensembles\[images\]'$"):
        pictures[0]


def test_a_damaged_zip_and_a_missing_folder(tmp_path: Path) -> None:
    place = put(tmp_path / "pictures", FILES, "zip")
    content = bytearray(place.read_bytes())
    content[content.index(FILES["train/n02/colour.JPEG"]) + 700] ^= 255
    place.write_bytes(content)
    with pytest.raises(DatasetError, match=r"colour\.JPEG cannot be read"):
        ImageFolder(place, classes=["n02"], image_size=16)[0]
    (tmp_path / "no.zip").write_bytes(b"no zip")
    with pytest.raises(DatasetError, match="is neither a folder nor a zip file"):
        ImageFolder(tmp_path / "no.zip")
    with pytest.raises(DatasetError, match="elsewhere is not there"):
        ImageFolder(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "`image_size` must be an integer ≥ 1, got 0"),
        ({"augment": 1}, "`augment` must be True or False, got 1"),
        ({"broken": "ignore"}, "`broken` must be 'refuse' or 'skip', got 'ignore'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ImageFolder(tmp_path, **options)


def test_what_augments(tmp_path: Path) -> None:
    pictures = ImageFolder(put(tmp_path / "pictures", FILES, "folder"), image_size=16, augment=True)
    plain = pictures[Row(5)][0]

    def drawn(seed: int, epoch: int) -> torch.Tensor:
        return pictures[Row(5, (seed, epoch))][0]

    assert torch.equal(drawn(1, 2), drawn(1, 2))
    different = {tuple(drawn(seed, epoch).flatten().tolist()) for seed in range(6) for epoch in range(6)}
    assert len(different) > 15, "25 places, each way round"
    assert drawn(1, 2).shape == plain.shape
    assert set(drawn(1, 2).flatten().tolist()) <= set(plain.flatten().tolist()), "mirrored at the borders, nothing new"
    with torch.random.fork_rng():
        torch.manual_seed(3)
        one = torch.stack([pictures[5][0] for _ in range(8)])
        torch.manual_seed(3)
        two = torch.stack([pictures[5][0] for _ in range(8)])
    assert torch.equal(one, two), "without a run, torch's random numbers"
    assert len(one.unique(dim=0)) > 3


def made(tmp_path: Path) -> ImageFolder:
    files = {f"train/{'ab'[n % 2]}/{n}.png": written("RGB", (12, 12), "PNG", seed=n) for n in range(24)}
    return ImageFolder(put(tmp_path / "pictures", files, "zip"), image_size=12, augment=True)


def fitted(pictures: ImageFolder, n_members: int = 2, workers: int = 0) -> torch.Tensor:
    network = partial(convnet, 2, in_channels=3, image_size=12, width=2)
    settings = {"max_epochs": 2, "batch_size": 8, "random_state": 0, "num_workers": workers, "validation_fraction": 0.25}
    ensemble = fit_ensemble(network, pictures, n_members=n_members, early_stopping=True, **settings)
    inputs = torch.from_numpy(pictures.array()[0]).permute(0, 3, 1, 2) / 255
    return ensemble.members(ensemble.standardization.inputs(inputs[None].expand(n_members, -1, -1, -1, -1), torch.float32))


def test_an_ensemble_trains_on_a_folder_reproducibly(tmp_path: Path) -> None:
    pictures = made(tmp_path)
    torch.rand(1)
    two = fitted(pictures)
    assert torch.equal(two, fitted(pictures)), "whatever torch's own generator has done since"
    assert torch.equal(two, fitted(pictures, workers=2)), "in other processes"
    torch.testing.assert_close(two[:1], fitted(pictures, n_members=1))
    pictures.augment = False
    assert not torch.equal(two, fitted(pictures))


def test_groups(tmp_path: Path) -> None:
    (tmp_path / "classes.tsv").write_text("wnid\tgroup\tname\nn02\tdog\tpoodle\nn01\tnon-dog\tfish\nn03\tdog\tpug\n")
    assert class_groups(tmp_path / "classes.tsv") == {"dog": ("n02", "n03"), "non-dog": ("n01",)}
    (tmp_path / "other.tsv").write_text("a\tb\n1\t2\n")
    for name in ("other.tsv", "missing.tsv"):
        with pytest.raises(DatasetError, match="is not a table with the columns `wnid` and `group`"):
            class_groups(tmp_path / name)


@pytest.mark.skipif(
    not SUBSET.is_file() or not GROUPS.is_file(), reason="the subset of Tiny ImageNet is not in the data home"
)
def test_the_real_dogs() -> None:
    groups = class_groups(GROUPS)
    dogs = ImageFolder(SUBSET, "val", classes=groups["dog"])
    others = ImageFolder(SUBSET, "train", classes=groups["non-dog"])
    assert (len(dogs.classes), len(dogs), len(others)) == (6, 300, 7200)
    assert dogs.check() == []
    with zipfile.ZipFile(SUBSET) as archive:
        assert archive.testzip() is None

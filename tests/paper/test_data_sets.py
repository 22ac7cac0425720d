"""Data sets: the data home, the toy problem, the published formats, and the real tables where they are."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _published import split_files, write_files, write_song_archive

from deep_ensembles.paper import datasets
from deep_ensembles.paper.datasets import Dataset, DatasetError, card, data_home, load_dataset, toy_cubic, uci
from deep_ensembles.paper.datasets.uci import SETS, YEAR, read_song_archive, read_split_files, read_table, write_table


def real(name: str) -> Dataset:
    if not card(name).is_here(data_home()):
        pytest.skip(f"{name} is not in the data home; `deep-ensembles data fetch {name}` gets it")
    return uci(name)


def made(folder: Path, rows: int = 40, features: int = 3, splits: int = 4, **options: Any) -> Path:
    return write_files(folder, split_files(rows, features, splits, **options))


def test_the_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path))
    assert data_home() == tmp_path
    assert data_home("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("DEEP_ENSEMBLES_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for platform, folder in {"linux": "cache", "darwin": "Library/Caches"}.items():
        monkeypatch.setattr("sys.platform", platform)
        assert data_home() == tmp_path / folder / "deep-ensembles"


def test_toy_cubic() -> None:
    one, same, other = toy_cubic(), toy_cubic(0), toy_cubic(1)
    np.testing.assert_array_equal(one.targets, same.targets)
    assert not np.array_equal(one.inputs, other.inputs)
    many = toy_cubic(n_rows=100_000)
    noise = many.targets - many.inputs[:, 0] ** 3
    assert (noise.mean(), noise.std()) == (pytest.approx(0, abs=0.05), pytest.approx(3, abs=0.05))
    assert np.histogram(many.inputs, bins=4, range=(-4, 4))[0] == pytest.approx([25_000] * 4, rel=0.03)
    with pytest.raises(ValueError, match="`n_rows` must be an integer ≥ 1, got 0"):
        toy_cubic(n_rows=0)


@pytest.mark.parametrize("get", [uci, load_dataset, card])
@pytest.mark.parametrize("name", ["nonsense", "", "Concrete", None, "../concrete", "year-prediction-msd-first1176"])
def test_an_unknown_name_lists_the_known_ones(get: Any, name: Any) -> None:
    with pytest.raises(ValueError, match=r"^`name` must be one of .*boston-housing, concrete, energy.*, got "):
        get(name)


def test_the_ten_sets() -> None:
    assert len(SETS) == 10
    assert {each.name: each.splits for each in datasets.cards() if each.splits != 20 and not each.shape} == {
        "toy_cubic": 1,
        "protein": 5,
        YEAR: 1,
    }
    assert {name for name in SETS if card(name).hidden_units == 100} == {"protein", YEAR}
    assert {card(name).hidden_units for name in SETS} == {50, 100}


@pytest.mark.parametrize("name", [name for name in SETS if name != YEAR])
def test_test_parts_are_a_tenth(name: str) -> None:
    dataset = real(name)
    assert all(abs(len(test) - len(dataset.targets) / 10) <= 1 for _, test in dataset.splits)


def test_the_naval_set_has_constant_columns_and_one_target() -> None:
    dataset = real("naval-propulsion-plant")
    assert dataset.inputs.shape[1] == 16
    assert np.flatnonzero(np.ptp(dataset.inputs, axis=0) == 0).tolist() == [8, 11]
    assert (dataset.targets.min(), dataset.targets.max()) == (0.95, 1.0)


@pytest.mark.parametrize("form", ["%d", "%.18e"])
def test_split_files(form: str, tmp_path: Path) -> None:
    table = read_split_files(made(tmp_path / "set", form=form, extra_columns=1))
    data = np.loadtxt(tmp_path / "set" / "data.txt")
    np.testing.assert_array_equal(table.inputs, data[:, :3])
    np.testing.assert_array_equal(table.targets, data[:, 3])
    for split, (_, test) in enumerate(table.splits):
        np.testing.assert_array_equal(test, np.loadtxt(tmp_path / "set" / f"index_test_{split}.txt"))
    write_table(tmp_path / "home" / "set.npz", table)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["set.npz"]
    with np.load(tmp_path / "home" / "set.npz", allow_pickle=False) as file:
        assert file.files == ["X", "y", *(f"test_index_{split}" for split in range(4))]
        assert [file[name].dtype.name for name in ("X", "y", "test_index_0")] == ["float64", "float64", "int32"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", b"1 2 3 4\n1 2 3\n", "not a table of numbers"),
        ("data.txt", b"<html>404</html>\n", "not a table of numbers"),
        ("data.txt", b"1 2 3 4\n" * 39, "disjoint and hold each of the 39 rows once"),
        ("data.txt", b"1 2 3\n" * 40, r"columns that are features and of one target, got \[0, 1, 2\] and \[3\] of 3"),
        ("index_target.txt", b"1\n2\n", r"of one target, got \[0, 1, 2\] and \[1, 2\] of 4"),
        ("index_target.txt", b"1.5\n", "not whole"),
        ("index_train_2.txt", b"0\n1\n", "split 2: train and test rows must be disjoint"),
        ("index_test_1.txt", b"-1\n", "split 1: train and test rows must be disjoint"),
        ("n_splits.txt", b"5\n", r"index_train_4.txt is .* not a table of numbers .*No such file"),
        ("n_splits.txt", b"", "n_splits.txt is empty"),
    ],
)
def test_split_files_that_are_wrong(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "set")
    (folder / file).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_split_files(folder)


@pytest.mark.parametrize("change", [{"rows": 41}, {"features": 4}, {"splits": 5}])
def test_a_conversion_that_breaks_the_cards_promise_leaves_nothing(change: dict[str, int], tmp_path: Path) -> None:
    promise = replace(card("yacht"), **({"rows": 40, "features": 3, "splits": 4} | change))
    assert promise.convert
    with pytest.raises(DatasetError, match=r"yacht: expected .* rows, . features, . splits, got 40, 3 and 4"):
        promise.convert(promise, made(tmp_path / "originals"), tmp_path / "home" / "yacht.npz")
    assert not (tmp_path / "home").exists()


def test_the_song_archive(tmp_path: Path) -> None:
    archive = write_song_archive(tmp_path / "songs.zip", rows=50_007, features=4)
    table = read_song_archive(archive, test_rows=7)
    assert (table.inputs.dtype, table.targets.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(table.inputs[:5000], table.inputs[45_000:50_000])
    np.testing.assert_array_equal(table.splits[0][1], np.arange(50_000, 50_007))
    assert 1922 <= table.targets.min() <= table.targets.max() <= 2011
    archive.write_bytes(archive.read_bytes()[:-1000])
    with pytest.raises(DatasetError, match="damaged or not the published archive"):
        read_song_archive(archive, 7)


@pytest.mark.slow
def test_the_songs_at_full_size_take_little_memory(tmp_path: Path) -> None:
    promise = card(YEAR)
    write_song_archive(tmp_path / "originals" / promise.originals[0].file, promise.rows)
    assert promise.convert
    assert promise.file
    table_bytes = 4 * promise.rows * (promise.features + 1)
    tracemalloc.start()
    try:
        promise.convert(promise, tmp_path / "originals", tmp_path / promise.file)
        converting = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        dataset = uci(YEAR, tmp_path)
        loading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(converting, loading) < 1.6 * table_bytes
    assert (dataset.inputs.shape, dataset.inputs.dtype) == ((515_345, 90), np.float32)
    (train, test) = dataset.splits[0]
    np.testing.assert_array_equal(train, np.arange(463_715))
    np.testing.assert_array_equal(test, np.arange(463_715, 515_345))
    assert len(test) == 51_630


@pytest.mark.parametrize("damage", ["short", "flipped", "text", "no targets", "row beyond", "twice", "not finite"])
def test_a_damaged_table_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "uci" / "yacht.npz"
    path.parent.mkdir()
    arrays = {"X": np.ones((30, 6)), "y": np.arange(30.0), "test_index_0": np.array([3, 4], dtype=np.int32)}
    if damage == "no targets":
        del arrays["y"]
    elif damage in ("row beyond", "twice"):
        arrays["test_index_0"] = np.array([3, 30] if damage == "row beyond" else [3, 3])
    elif damage == "not finite":
        arrays["X"][3, 3] = np.nan
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[content.index(np.ones(3).tobytes()) + 7] ^= 1
    path.write_bytes({"short": content[:-30], "text": b"a table"}.get(damage, content))
    with pytest.raises(DatasetError):
        uci("yacht", tmp_path)


def test_a_table_may_have_other_rows_and_splits_than_the_published_one(tmp_path: Path) -> None:
    write_table(tmp_path / "uci" / "yacht.npz", read_split_files(made(tmp_path / "set")))
    dataset = uci("yacht", tmp_path)
    assert (dataset.inputs.shape, len(dataset.splits)) == ((40, 3), 4)
    (train_inputs, train_targets), (test_inputs, test_targets) = dataset.parts(2)
    assert (train_inputs.shape, train_targets.shape, test_inputs.shape, test_targets.shape) == ((36, 3), (36,), (4, 3), (4,))
    assert read_table(tmp_path / "uci" / "yacht.npz", "float32").inputs.dtype == np.float32


def test_a_dataset_checks_itself() -> None:
    inputs, targets, split = np.zeros((3, 2)), np.zeros(3), (np.array([0, 1]), np.array([2]))
    Dataset("fine", inputs, targets, [split])
    for arguments, message in [
        ((inputs, np.zeros(4), [split]), "targets"),
        ((np.zeros(3), targets, [split]), "inputs must be"),
        ((inputs, targets, [(np.array([0, 1]), np.array([1]))]), "split 0: train and test rows must be disjoint"),
        ((inputs, targets, [(np.array([0]), np.array([2]))]), "hold each of the 3 rows once"),
    ]:
        with pytest.raises(DatasetError, match=message):
            Dataset("broken", *arguments)

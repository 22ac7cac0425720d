"""Rows larger than memory: each is read once an epoch, equal ones are held out together, members are as promised."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from _processes import printed

from deep_ensembles import (
    Bootstrap,
    Checkpoint,
    ComplementaryFolds,
    Ensemble,
    ParquetRows,
    Poisson,
    VirtualAdversarial,
    cross_validate,
    fit_ensemble,
    mlp,
)
from deep_ensembles.columns import TableError
from deep_ensembles.training import blocks
from deep_ensembles.training.blocks import ArrayBlocks, BlockSource, Piece, Surveyed, row_keys
from deep_ensembles.training.checkpoint import CheckpointWriter

NETWORK = partial(mlp, 4, 2, (16,))
N = 4000
X = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)
X[N // 2 : N // 2 + 400] = X[:400]  # copies
Y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * np.random.default_rng(1).normal(size=N)
SETTINGS: dict[str, Any] = {
    "n_members": 3,
    "max_epochs": 3,
    "batch_size": 100,
    "learning_rate": 0.005,
    "random_state": 0,
    "early_stopping": True,
    "folds": ComplementaryFolds(),
}


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BUFFER_BYTES", 2**14)  # 1024 rows of 4 numbers
    monkeypatch.setattr(blocks, "SAMPLE_ROWS", 500)


def mapped(folder: Path, inputs: np.ndarray = X) -> Any:
    np.save(folder / "inputs.npy", inputs)
    return np.load(folder / "inputs.npy", mmap_mode="r")


def written(folder: Path, inputs: np.ndarray = X, targets: np.ndarray = Y, **more: np.ndarray) -> Path:
    """A folder of three Parquet files, each of a few row groups."""
    columns = {f"x{i}": inputs[:, i] for i in range(inputs.shape[1])} | {"y": targets} | more
    for part, rows in enumerate(np.array_split(np.arange(len(inputs)), 3)):
        table = pa.table({name: values[rows] for name, values in columns.items()})
        parquet.write_table(table, folder / f"{part}.parquet", row_group_size=301)
    return folder


def same(first: Ensemble, second: Ensemble) -> bool:
    return all(torch.equal(tensor, second.tensors()[name]) for name, tensor in first.tensors().items() if name != "history")


@pytest.mark.parametrize("kind", ["array", "parquet"])
def test_every_row_is_read_once_an_epoch_in_another_order(kind: str, tmp_path: Path) -> None:
    source: BlockSource = ArrayBlocks(mapped(tmp_path), Y) if kind == "array" else ParquetRows(written(tmp_path), "y")
    rows = Surveyed(source, 3)
    orders = []
    for epoch in range(2):
        buffers = list(rows.readings(epoch))
        assert len(buffers) == 4
        assert [len(buffer) for buffer, _ in buffers] == rows.sizes
        for buffer, seen in buffers:
            np.testing.assert_array_equal(row_keys(buffer.inputs.numpy()) % np.uint64(3), seen.args[0])
            places = np.searchsorted(np.sort(Y), buffer.targets.numpy())
            assert places.std() > 0.2 * N  # not one stretch of the table
        orders.append(np.concatenate([buffer.targets.numpy() for buffer, _ in buffers]))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.sort(Y))
    assert not np.array_equal(*orders)


def test_blocks_of_which_no_row_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SAMPLE_ROWS", 50)
    rows = Surveyed(ArrayBlocks(mapped(tmp_path), Y), 3)
    assert len(rows) <= 50 < rows.source.n_blocks
    assert sum(rows.sizes) == N


def test_units_are_those_of_all_rows_that_a_member_sees(tmp_path: Path) -> None:
    ensemble = fit_ensemble(NETWORK, mapped(tmp_path), Y, **{**SETTINGS, "max_epochs": 1})
    for member in range(3):
        seen = row_keys(X) % np.uint64(3) != member
        units = ensemble.standardization
        torch.testing.assert_close(units.input_shift[member], torch.from_numpy(X[seen].mean(0, dtype=np.float64)))
        torch.testing.assert_close(units.input_scale[member], torch.from_numpy(X[seen].std(0, dtype=np.float64)))
        torch.testing.assert_close(units.target_scale[member], torch.tensor(Y[seen].std()))


def test_members_never_train_on_a_fold_that_they_hold_out(tmp_path: Path) -> None:
    """Targets of the third fold are far away: only a member that sees them predicts them."""
    targets = np.where(row_keys(X) % np.uint64(3) == 2, 1000.0, 0.0) + Y
    ensemble = fit_ensemble(NETWORK, mapped(tmp_path), targets, **SETTINGS)
    assert ensemble.standardization.target_scale[2] < 2 < ensemble.standardization.target_scale[0]
    mixture = ensemble.out_of_fold(X[ensemble.out_of_fold_rows])
    third = (row_keys(X) % np.uint64(3) == 2)[ensemble.out_of_fold_rows]
    assert float(mixture.mean[torch.from_numpy(third)].max()) < 100


@pytest.mark.parametrize("kind", ["array", "parquet"])
def test_training_is_as_good_as_in_memory(kind: str, tmp_path: Path) -> None:
    """Sorted by the target, so that rows that stand together are alike."""
    order = np.argsort(Y)
    settings = {**SETTINGS, "max_epochs": 12}
    inside = fit_ensemble(NETWORK, X[order], Y[order], **settings)
    if kind == "array":
        streamed = fit_ensemble(NETWORK, mapped(tmp_path, X[order]), Y[order], **settings)
    else:
        streamed = fit_ensemble(NETWORK, ParquetRows(written(tmp_path, X[order], Y[order]), "y"), **settings)
    new = np.random.default_rng(2).normal(size=(2000, 4)).astype(np.float32)
    truth = torch.from_numpy(new[:, 0] + new[:, 1] * new[:, 2])
    errors = [float((ensemble(new).mean - truth).square().mean().sqrt()) for ensemble in (inside, streamed)]
    assert errors[1] < 1.3 * errors[0] + 0.02


def test_a_member_does_not_depend_on_the_number_of_members(tmp_path: Path) -> None:
    inputs, settings = mapped(tmp_path), {**SETTINGS, "folds": ComplementaryFolds(2)}
    few, many = (fit_ensemble(NETWORK, inputs, Y, **{**settings, "n_members": n}) for n in (2, 5))
    torch.testing.assert_close(few.mixture(X[:50]).components.mean, many.subset(2).mixture(X[:50]).components.mean)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [1, 3, 6, 9])
def test_resuming_gives_the_same_bits(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at the n-th write of a checkpoint, within a buffer or between two or two epochs."""
    inputs, write = mapped(tmp_path), CheckpointWriter.write
    settings = {**SETTINGS, "patience": 1}
    calm = fit_ensemble(NETWORK, inputs, Y, **settings)
    writes = 0

    def stop(*arguments: Any) -> None:
        nonlocal writes
        write(*arguments)
        writes += 1
        if writes == at:
            raise Interrupted

    monkeypatch.setattr(CheckpointWriter, "write", stop)
    settings["checkpoint"] = Checkpoint(tmp_path / "state", every_seconds=0.0)
    with pytest.raises(Interrupted):
        fit_ensemble(NETWORK, inputs, Y, **settings)
    assert same(fit_ensemble(NETWORK, inputs, Y, **settings), calm)


def test_time_that_is_up_ends_within_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    buffers = Surveyed.readings
    monkeypatch.setattr(Surveyed, "readings", lambda self, epoch: (read.append(epoch) or b for b in buffers(self, epoch)))
    ensemble = fit_ensemble(NETWORK, mapped(tmp_path), Y, time_limit=1e-6, **SETTINGS)
    assert read == [0]
    assert ensemble.history is not None
    assert np.isfinite(ensemble.history[:, :, 0]).all()


def test_a_checkpoint_of_other_rows_is_refused(tmp_path: Path) -> None:
    settings = {**SETTINGS, "max_epochs": 1, "checkpoint": Checkpoint(tmp_path / "state")}
    fit_ensemble(NETWORK, mapped(tmp_path), Y, **settings)
    unsampled = np.setdiff1d(np.arange(N), blocks.sample_numbers(N, 16))[5]
    other = X.copy()
    other[unsampled, 1] += 1
    with pytest.raises(ValueError, match="belongs to another training"):
        fit_ensemble(NETWORK, mapped(tmp_path, other), Y, **settings)


def test_rows_of_weight_0_are_left_out_and_others_count_as_they_weigh(tmp_path: Path) -> None:
    weights = np.where(Y > 0, 0.0, np.where(X[:, 3] > 0, 2.0, 1.0))
    folder = written(tmp_path, w=weights)
    rows = Surveyed(ParquetRows(folder, "y", weights="w"), 2)
    x, y, mean_weight = rows.moments(np.arange(len(rows)))
    kept = weights > 0
    assert sum(rows.sizes) == kept.sum()
    assert float(y.high) < 0
    assert mean_weight == pytest.approx(weights[kept].mean())
    np.testing.assert_allclose(x.mean, np.average(X, axis=0, weights=weights), rtol=1e-6, atol=1e-7)
    fit_ensemble(NETWORK, ParquetRows(folder, "y", weights="w"), **SETTINGS)


def test_without_folds_each_member_holds_out_one_of_ten(tmp_path: Path) -> None:
    ensemble = fit_ensemble(NETWORK, mapped(tmp_path), Y, **{**SETTINGS, "folds": None})
    parts = row_keys(X) % np.uint64(10)
    means = torch.stack([torch.from_numpy(X[parts != part].mean(0, dtype=np.float64)) for part in range(3)])
    torch.testing.assert_close(ensemble.standardization.input_shift, means)
    everything = fit_ensemble(NETWORK, mapped(tmp_path), Y, n_members=2, max_epochs=1, random_state=0)
    torch.testing.assert_close(everything.standardization.input_shift[0], torch.from_numpy(X.mean(0, dtype=np.float64)))


def test_classes_and_their_chosen_columns(tmp_path: Path) -> None:
    folder = written(tmp_path, targets=(Y > 0).astype(np.int32), other=Y)
    ensemble = fit_ensemble(partial(mlp, 2, 2, (8,)), ParquetRows(folder, "y", ["x0", "x1"]), n_members=2, max_epochs=2)
    assert ensemble(X[:5, :2]).probs.shape == (5, 2)


class Repeating(BlockSource):
    """Many rows of few kinds."""

    n_rows, n_blocks = 300, 3

    def pieces(self, block: int) -> Iterator[Piece]:
        yield Piece(np.zeros((100, 2), np.float32), np.zeros(100))


def test_what_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    inputs = mapped(tmp_path)
    with pytest.raises(ValueError, match="`resampling` must be None for rows that are read in blocks, got Bootstrap"):
        fit_ensemble(NETWORK, inputs, Y, resampling=Bootstrap())
    with pytest.raises(ValueError, match="`groups` must be None for rows that are read in blocks"):
        fit_ensemble(NETWORK, inputs, Y, folds=ComplementaryFolds(groups=np.arange(N)))
    with pytest.raises(ValueError, match="`unlabelled` must be None for rows that are read in blocks"):
        fit_ensemble(NETWORK, inputs, Y, perturbation=VirtualAdversarial(), unlabelled=X)
    with pytest.raises(ValueError, match="`inputs` must be in memory to cross-validate"):
        cross_validate(NETWORK, inputs, Y)
    with pytest.raises(ValueError, match="`targets` must be as long as `inputs`, 4000 rows, got 3999"):
        fit_ensemble(NETWORK, inputs, Y[:-1])
    with pytest.raises(ValueError, match="rows of at least 3 different kinds, one per fold, got 1"):
        fit_ensemble(partial(mlp, 2, 2), Repeating(), n_members=3, folds=ComplementaryFolds())


def test_targets_are_checked_beyond_the_sample(tmp_path: Path) -> None:
    unsampled = np.setdiff1d(np.arange(N), blocks.sample_numbers(N, 16))[5]
    classes = np.zeros(N, dtype=np.int64)
    classes[unsampled] = 7
    with pytest.raises(ValueError, match="class numbers from 0 to 1"):
        fit_ensemble(NETWORK, mapped(tmp_path), classes, n_members=2)
    counts = np.abs(Y).round()
    counts[unsampled] = -1
    with pytest.raises(ValueError, match="whole numbers ≥ 0"):
        fit_ensemble(partial(mlp, 4, 1), mapped(tmp_path), counts, head=Poisson(), n_members=2)
    gaps = X.copy()
    gaps[unsampled, 2] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        fit_ensemble(NETWORK, mapped(tmp_path, gaps), Y, n_members=2)


def test_columns_of_parquet_are_checked(tmp_path: Path) -> None:
    folder = written(tmp_path, city=np.array(["a"] * N))
    with pytest.raises(TableError, match="`city` must be numbers to train on; `deep-ensembles fit` takes any"):
        fit_ensemble(NETWORK, ParquetRows(folder, "y"))
    with pytest.raises(TableError, match="the table has no column `x9`"):
        ParquetRows(folder, "y", ["x9"])
    (tmp_path / "rows.csv").write_text("x0,y\n1,2\n")
    with pytest.raises(TableError, match="`path` must be Parquet files with rows"):
        ParquetRows(tmp_path / "rows.csv", "y")


MEMORY = """
import numpy as np, sys
from functools import partial
from pathlib import Path
from deep_ensembles import fit_ensemble, mlp
n = 3_000_000
inputs = np.lib.format.open_memmap(sys.argv[1], "w+", np.float32, (n, 40))
for start in range(0, n, 100_000):
    inputs[start : start + 100_000] = np.random.default_rng(start).normal(size=(100_000, 40))
del inputs
inputs = np.load(sys.argv[1], mmap_mode="r")
fit_ensemble(partial(mlp, 40, 2, (4,)), inputs[:2000], np.zeros(2000) + np.arange(2000), n_members=2, max_epochs=1)
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = peak()
fit_ensemble(partial(mlp, 40, 2, (4,)), inputs, np.arange(n) / n, n_members=2, max_epochs=1, batch_size=8192)
print((peak() - before) // 1024, inputs.nbytes // 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of a process")
def test_memory_stays_small(tmp_path: Path) -> None:
    used, size = map(int, printed(MEMORY, str(tmp_path / "inputs.npy")).split())
    assert used < 400 < size

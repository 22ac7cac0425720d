"""Tables larger than memory: the sample shows what the whole holds, and training sees every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from deep_ensembles import load
from deep_ensembles.columns import TableError, UnreadableValue, infer_schema, infer_target
from deep_ensembles.tabular import FittedTable, TableModel, TableSettings, evaluate_table, fit_table, streaming
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.streaming import TableBlocks, memory_limit, read_sample
from deep_ensembles.training import blocks
from deep_ensembles.training.blocks import Surveyed

N, LAST = 3000, 2751  # the row that has what no sampled row has


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SAMPLE_ROWS", 600)
    monkeypatch.setattr(blocks, "BUFFER_BYTES", 2**15)


def table() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    size, ward = generator.normal(size=N), generator.choice(["north", "south"], N).astype(object)
    price = 3 * size + (ward == "north") + 0.3 * generator.normal(size=N)
    assert LAST not in blocks.sample_numbers(N, 8 * 5)
    size[LAST], ward[LAST] = 99.0, "harbour"
    price[::50] = np.nan
    days = np.datetime64("2020-01-01") + np.arange(N).astype("timedelta64[D]")
    return {"size": size, "ward": ward, "day": days, "patient": np.arange(N) % 40, "price": price}


def written(folder: Path, columns: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for part, rows in enumerate(np.array_split(np.arange(N), 3)):
        chosen = pa.table({name: values[rows] for name, values in columns.items()})
        parquet.write_table(chosen, folder / f"{part}.parquet", row_group_size=170)
    return folder


def settings(**changes: Any) -> TableSettings:
    usual = {"target": "price", "effort": "fast", "members": 3, "max_epochs": 6, "batch_size": 64, "stream": True}
    return TableSettings(**usual | changes)


def fitted(data: Any, **changes: Any) -> tuple[FittedTable, str]:
    said: list[str] = []
    found = fit_table(data, settings(**changes), log=lambda line: said.append(str(line)))
    return found, "\n".join(said)


def score(found: FittedTable, name: str) -> float:
    return next(score.ensemble for score in found.evaluation.scores if score.name == name)


def source(data: Any, **changes: Any) -> TableBlocks:
    files, wanted = open_table(data), settings(**changes)
    sample = read_sample(files)
    schema = infer_schema(sample.table, wanted.target, drop=wanted.not_inputs)
    return TableBlocks(files, sample, schema, infer_target(wanted.target, sample.table[wanted.target])[0], wanted)


def test_a_streamed_table_is_learnt_as_one_in_memory(tmp_path: Path) -> None:
    folder = written(tmp_path / "parts", table())
    streamed, said = fitted(folder)
    inside, _ = fitted(folder, stream=False)
    assert "the 3000 rows are read from the files while they are trained on" in said
    assert score(streamed, "RMSE") < 1.25 * score(inside, "RMSE")
    assert abs(score(streamed, "NLL") - score(inside, "NLL")) < 0.3
    # What only rows beyond the sample have is known too.
    assert "harbour" in str(streamed.model.schema)
    size = next(column for column in streamed.model.schema.columns if column.name == "size")
    assert size.high == 99.0
    assert streamed.model.target.low == inside.model.target.low
    streamed.model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert isinstance(model, TableModel)
    assert evaluate_table(model, folder).evaluation.n_rows == N - N // 50


def test_the_sample_is_of_the_whole_table_and_shows_its_ends(tmp_path: Path) -> None:
    folder = written(tmp_path / "parts", table())
    sample = read_sample(open_table(folder))
    assert 300 < len(sample.numbers) <= 600
    assert len(sample.table) < len(sample.numbers) + 12
    whole = open_table(folder).read()
    for name in ("size", "ward", "day"):
        assert (
            sample.table[name].to_pylist()[: len(sample.numbers)] == whole[name].take(pa.array(sample.numbers)).to_pylist()
        )
    for name in ("size", "day", "patient"):
        assert pa.compute.min_max(sample.table[name]) == pa.compute.min_max(whole[name])
    assert set(sample.table["ward"].to_pylist()) == {"north", "south", "harbour"}
    assert sample.gaps == {"price"}


def test_unreadable_values_are_counted_in_all_rows(tmp_path: Path) -> None:
    columns = table()
    sizes = [f"{size:g}" for size in columns["size"]]
    for row in range(70, N, 100):
        sizes[row] = "huge"
    folder = written(tmp_path / "parts", columns | {"size": np.array(sizes)})
    _, said = fitted(folder, errors="missing", kinds={"size": "number"})
    n = len(range(70, N, 100))
    assert f"note: {n} values of `size`, the first 'huge' in row 71, cannot be read: taken as missing" in said
    assert said.count("cannot be read") == 1


def test_training_reads_every_row_that_has_a_target(tmp_path: Path) -> None:
    rows = Surveyed(source(written(tmp_path / "parts", table())), 3)
    targets = np.concatenate([buffer.targets.numpy() for buffer, _ in rows.readings(0)])
    expected = table()["price"]
    np.testing.assert_array_equal(np.sort(targets), np.sort(expected[~np.isnan(expected)]))


def test_a_rare_class_beyond_the_sample_is_a_class(tmp_path: Path) -> None:
    found, _ = fitted(written(tmp_path / "parts", table()), target="ward", max_epochs=1)
    assert found.model.target.classes == ("harbour", "north", "south")


def test_rows_of_a_group_are_of_one_fold(tmp_path: Path) -> None:
    columns = table()
    blocks_of = source(written(tmp_path / "parts", columns), group="patient")
    keys = np.concatenate([piece.keys for block in range(blocks_of.n_blocks) for piece in blocks_of.pieces(block)])
    assert len(np.unique(keys)) == 40
    assert all(len(np.unique(keys[columns["patient"] == patient])) == 1 for patient in range(40))


def test_equal_rows_are_no_copies_where_there_are_few_kinds(tmp_path: Path) -> None:
    columns = table()
    few = source(written(tmp_path / "few", {name: columns[name] for name in ("ward", "price")}))
    many = source(written(tmp_path / "many", columns))
    assert next(many.pieces(0)).keys is None
    assert len(np.unique(next(few.pieces(0)).keys)) == 170


def test_weights_are_those_of_the_column(tmp_path: Path) -> None:
    columns = table() | {"w": np.where(np.arange(N) % 2, 2.0, 0.0)}
    rows = Surveyed(source(written(tmp_path / "parts", columns), weights="w"), 2)
    assert sum(rows.sizes) == N // 2
    assert rows.moments(np.arange(len(rows)))[2] == 2.0


def test_a_value_that_cannot_be_read_is_named_with_its_row(tmp_path: Path) -> None:
    columns = table()
    columns["size"] = np.array([f"{value:.3f}" for value in columns["size"]], object)
    folder = written(tmp_path / "parts", columns)
    made = source(folder)
    columns["size"][LAST] = "broken"
    written(folder, columns)
    with pytest.raises(UnreadableValue, match=f"'broken' in row {LAST + 1}"):
        Surveyed(made, 2)


def test_what_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "parts", table())
    with pytest.raises(TableError, match="leave out --time, --holdout or --stream"):
        fitted(folder, time="day")
    (tmp_path / "a.csv").write_text("size,price\n1,2\n")
    with pytest.raises(TableError, match="only Parquet files can be streamed"):
        fitted(tmp_path / "a.csv")


@pytest.mark.parametrize(("share", "streams"), [(7.9, True), (8.1, False)])
def test_a_table_is_streamed_where_it_is_large_for_the_memory(
    share: float, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_table(written(tmp_path / "parts", table()))
    monkeypatch.setattr(streaming, "memory_limit", lambda: share * 8 * N * 5)
    assert streaming.is_streamed(files, settings(stream=None)) is streams
    assert not streaming.is_streamed(files, settings(stream=None, time="day"))
    assert not streaming.is_streamed(files, settings(stream=False))


@pytest.mark.parametrize(
    ("group", "file"),
    [
        ("0::/", "memory.max"),
        ("0::/user/job", "user/memory.max"),
        ("4:memory:/box/job", "memory/box/job/memory.limit_in_bytes"),
        ("4:memory:/box/job", "memory/memory.limit_in_bytes"),
    ],
)
def test_memory_is_what_control_groups_allow(group: str, file: str, tmp_path: Path) -> None:
    for name, text in (("proc/self/cgroup", f"2:cpu:/\n{group}\n"), (f"sys/fs/cgroup/{file}", "123000000\n")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == 123e6
    (tmp_path / "sys/fs/cgroup" / file).write_text("max\n")
    assert memory_limit(tmp_path) == memory_limit(tmp_path / "nothing") > 2**20

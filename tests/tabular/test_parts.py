"""Many files, each to a file of predictions: what is finished stays, and what is read is not written over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest
from _commands import done, refused, run
from _made_tables import houses, read, with_column, write
from _processes import not_on_windows, started

from deep_ensembles.columns import TableError
from deep_ensembles.tabular import FittedTable, predict_files, predict_table


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Parts of a table, as Parquet and as text, one of them deeper."""
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    for number, name in enumerate(("b.parquet", "a.csv", "c.txt", "deep/a.csv")):
        path = tmp_path / "parts" / name
        write(houses(20 + number, seed=number), path.with_suffix(".csv") if path.suffix == ".txt" else path)
    (tmp_path / "parts" / "c.csv").rename(tmp_path / "parts" / "c.txt")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Files of predictions by name; notes of what is done are not among them."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "_predicted" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_every_file_is_predicted_as_it_is_alone(numbers: FittedTable, place: Path) -> None:
    found = predict_files(numbers.model, place / "parts", place / "out", keep=("number",), abstain_above=0.5)
    alone = {}
    for source, name in (("a.csv", "a.csv"), ("b.parquet", "b.parquet"), ("c.txt", "c.txt.csv")):
        path = place / "alone" / name
        alone[name] = predict_table(numbers.model, place / "parts" / source, path, keep=("number",), abstain_above=0.5)
    assert contents(place / "out") == contents(place / "alone")
    assert read(place / "out" / "b.parquet")["number"].to_pylist() == [f"n{i}" for i in range(20)]
    assert found.rows == 20 + 21 + 22
    assert found.abstained == sum(part.abstained or 0 for part in alone.values())
    assert (found.files, found.done_before) == (3, 0)


def test_patterns_keep_the_folders_below_them(numbers: FittedTable, place: Path) -> None:
    predict_files(numbers.model, f"{place}/parts/**/*.csv", place / "out")
    assert sorted(contents(place / "out")) == ["a.csv", "deep/a.csv"]
    with pytest.raises(TableError, match=r"another a.csv is read too; write to another folder"):
        predict_files(numbers.model, [place / "parts" / "a.csv", place / "parts" / "deep" / "a.csv"], place / "out")
    with pytest.raises(TableError, match=r"\*.tsv names no table"):
        predict_files(numbers.model, f"{place}/parts/*.tsv", place / "out")


def test_names_with_signs_of_patterns_are_names(numbers: FittedTable, place: Path) -> None:
    (place / "parts").rename(place / "parts[1]")
    assert predict_files(numbers.model, place / "parts[1]", place / "out").files == 3
    assert predict_files(numbers.model, place / "parts[1]" / "a.csv", place / "one").files == 1


def test_what_is_finished_is_not_done_again(numbers: FittedTable, classes: FittedTable, place: Path) -> None:
    out = place / "out"

    def redone(model: FittedTable = numbers, **options: object) -> list[str]:
        before = {path.name: path.stat().st_ino for path in out.glob("[abc]*")}
        before |= {name: 0 for name in ("b.parquet",) if name not in before}
        found = predict_files(model.model, place / "parts", out, **options)
        again = [name for name, number in before.items() if (out / name).stat().st_ino != number]
        assert found.done_before == found.files - len(again)
        assert found.rows == 63
        return sorted(again)

    predict_files(numbers.model, place / "parts", out)
    whole = contents(out)
    assert redone() == []
    os.utime(place / "parts" / "a.csv", (1, 1))
    assert redone() == ["a.csv"]
    (out / "b.parquet").unlink()
    (out / "_predicted" / "c.txt.csv.json").write_text('{"key"')
    (out / f".b.parquet.{'0' * 32}.tmp").write_bytes(b"half of it")
    assert redone() == ["b.parquet", "c.txt.csv"]
    assert contents(out) == whole
    assert redone(coverage=0.5) == redone(classes) == ["a.csv", "b.parquet", "c.txt.csv"]


@not_on_windows
def test_what_is_read_is_never_written_over(numbers: FittedTable, place: Path) -> None:
    before = contents(place / "parts")
    files = [place / "parts" / "a.csv", place / "parts" / "b.parquet"]
    (place / "away").symlink_to("parts", target_is_directory=True)
    for data, out in ((place / "parts", "parts"), (f"{place}/parts/*.csv", "parts"), (files, "parts"), (files, "away")):
        with pytest.raises(TableError, match="holds it"):
            predict_files(numbers.model, data, place / out)
    predict_files(numbers.model, place / "parts", place / "parts" / "out")
    with pytest.raises(TableError, match="holds it"):
        predict_files(numbers.model, f"{place}/parts/**/*.csv", place / "parts" / "out")
    shutil.rmtree(place / "parts" / "out")
    assert contents(place / "parts") == before


def test_an_error_names_its_file_and_the_others_stay(numbers: FittedTable, place: Path) -> None:
    write(with_column(houses(20), "size", ["huge"] * 20), place / "parts" / "b.csv")
    with pytest.raises(TableError, match=r"b.csv: column `size`: 'huge' in row 1 is not a number"):
        predict_files(numbers.model, place / "parts", place / "out")
    (place / "parts" / "b.csv").unlink()
    assert predict_files(numbers.model, place / "parts", place / "out").done_before == 1


def test_files_may_be_elsewhere(numbers: FittedTable, place: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name in ("a.csv", "b.parquet"):
        memory.pipe(f"/elsewhere/parts/{name}", (place / "parts" / name).read_bytes())
    predict_files(numbers.model, place / "parts", place / "out", keep=("number",))
    for _ in range(2):
        found = predict_files(numbers.model, "memory://elsewhere/parts/*", "memory://elsewhere/out", keep=("number",))
    assert (found.rows, found.files, found.done_before) == (41, 2, 2)
    for name in ("a.csv", "b.parquet"):
        assert memory.cat(f"/elsewhere/out/{name}") == (place / "out" / name).read_bytes()
    assert len(memory.find("/elsewhere")) == 6
    with pytest.raises(TableError, match="holds it"):
        predict_files(numbers.model, "memory://elsewhere/parts", "memory://elsewhere/parts")
    memory.pipe("/elsewhere/bad/a.csv", b"size\nhuge\n")
    with pytest.raises(TableError, match=r"a.csv: the table lacks the columns `colour`, `yard`"):
        predict_files(numbers.model, "memory://elsewhere/bad/a.csv", place / "other")
    predict_files(numbers.model, f"file://{place}/parts/*.csv", f"file://{place}/by-url")
    assert sorted(contents(place / "by-url")) == ["a.csv"]


def test_the_command_says_what_it_did(folder: Path, place: Path) -> None:
    predict = ["predict", folder / "price-model", f"{place}/parts/*"]
    assert f"wrote  {place}/out  (3 files; 63 rows)" in done(*predict, "--out", place / "out").stdout
    assert "(3 files, 3 of them were there; 63 rows)" in done(*predict, "--out", f"{place}/out/").stdout
    assert "names no table" in refused(*predict[:2], place / "absent", "--out", place / "out")
    assert run(*predict, "--out", place / "p.csv", "--processes", "2").exit_code == 2


@pytest.mark.slow
@not_on_windows
def test_a_killed_command_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for number in range(12):
        write(houses(3000, seed=number), tmp_path / "parts" / f"{number}.parquet")
    program = [sys.executable, "-c", "from deep_ensembles.cli import app; app()"]
    command = [*program, "predict", str(folder / "price-model"), str(tmp_path / "parts")]
    calm, killed, kept = tmp_path / "calm", tmp_path / "killed", ["--keep", "number"]
    subprocess.run([*command, "--out", str(calm), *kept], check=True)
    with started([*command, "--out", str(killed), *kept, "--processes", "2"]) as process:
        while len(list(killed.glob("_predicted/*.json"))) < 3 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = {path.name: path.stat().st_ino for path in killed.glob("*.parquet")}
    finished = [path.name.removesuffix(".json") for path in killed.glob("_predicted/*.json")]
    subprocess.run([*command, "--out", str(killed), *kept, "--processes", "2"], check=True)
    assert contents(killed) == contents(calm)
    assert len(finished) >= 3
    assert all((killed / name).stat().st_ino == before[name] for name in finished)

"""Run folders: whole or not there, and never another cell's."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_ensembles._files import json_ready
from deep_ensembles.paper.experiments import _experiment as records
from deep_ensembles.paper.experiments._experiment import ARRAYS, CONFIG, DONE, RESULT, Cell, read_record, write_record

CELL = Cell("yacht-ml", {"epochs": 40, "seed": 0})
ARRAY = {"mean": np.arange(6.0).reshape(2, 3)}


def write(root: Path, cell: Cell = CELL) -> records.Record:
    return write_record(root, cell, {"score": 1.5, "bad": float("nan")}, ARRAY)


def test_what_was_written_is_read(tmp_path):
    written = write(tmp_path)
    found = read_record(tmp_path, CELL)
    assert found is not None
    assert found.result == written.result == {"score": 1.5, "bad": None}
    assert np.array_equal(found.arrays()["mean"], ARRAY["mean"])
    assert json.loads((found.path / CONFIG).read_text()) == CELL.config


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs the program sha256sum")
def test_the_mark_is_what_sha256sum_checks(tmp_path):
    path = write(tmp_path).path
    subprocess.run(["sha256sum", "--check", "--quiet", DONE], cwd=path, check=True)
    sums = (path / DONE).read_text().split()[::2]
    assert hashlib.sha256((path / CONFIG).read_bytes()).hexdigest() in sums


@pytest.mark.parametrize("name", [CONFIG, RESULT, ARRAYS, DONE])
def test_a_changed_or_missing_file_is_no_record(tmp_path, name):
    path = write(tmp_path).path / name
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert read_record(tmp_path, CELL) is None
    path.unlink()
    assert read_record(tmp_path, CELL) is None


@pytest.mark.parametrize("files_written", range(4))
def test_a_kill_at_any_moment_leaves_no_half_record(tmp_path, monkeypatch, files_written):
    left = files_written
    real = records.write_atomically

    def failing(path: Path, content: bytes) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(path, content)

    write(tmp_path)  # an older one, which must not be taken for the new
    monkeypatch.setattr(records, "write_atomically", failing)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert read_record(tmp_path, CELL) is None
    monkeypatch.undo()
    write(tmp_path)
    assert read_record(tmp_path, CELL) is not None


def test_other_settings_are_another_cell(tmp_path):
    write(tmp_path)
    assert read_record(tmp_path, Cell(CELL.name, {**CELL.config, "seed": 1})) is None
    assert Cell("a", {"x": 1, "y": 2}).folder == Cell("a", {"y": 2, "x": 1}).folder


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_json_ready_content_is_strict_json_and_stays_as_it_is(content):
    once = json_ready(content)
    assert json.loads(json.dumps(once, allow_nan=False)) == once
    assert json_ready(once) == once

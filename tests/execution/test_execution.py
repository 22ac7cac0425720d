"""Wherever pieces of work are done, all are done, errors come back, and nothing is left running."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from deep_ensembles.execution import InProcess, Processes


def write(folder: Path, number: int) -> None:
    if number < 0:
        raise ValueError(f"no file for {number}")
    (folder / str(number)).write_text(str(os.getpid()))


@pytest.mark.parametrize("execution", [InProcess(), Processes(1), Processes(2)], ids=repr)
def test_all_is_done_and_told(tmp_path, execution):
    assert sorted(item for item, _ in execution(partial(write, tmp_path), range(5))) == list(range(5))
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")
    assert list(execution(partial(write, tmp_path), [])) == []


def test_processes_are_others(tmp_path):
    list(Processes(2)(partial(write, tmp_path), range(4)))
    assert str(os.getpid()) not in {path.read_text() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("execution", [InProcess(), Processes(2)], ids=repr)
def test_errors_come_back(tmp_path, execution):
    with pytest.raises(ValueError, match="no file for -1"):
        list(execution(partial(write, tmp_path), [-1, 3]))


def test_bad_numbers_are_told():
    with pytest.raises(ValueError, match="`jobs` must be"):
        Processes(0)

"""Model folders: whole at every instant, whatever happens to those who write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from deep_ensembles import Ensemble, ModelFileError, load
from deep_ensembles._files import file_system, replacing, write_atomically

MODELS = Path(__file__).parent / "models"
X = torch.zeros(1, 10)

# Savers are forked from one process that has imported everything, which loads what they write all the while.
SAVERS = """
import dataclasses, os, random, signal, sys, time
from pathlib import Path
import torch
from deep_ensembles import load

torch.set_num_threads(1)
source, target, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
first = load(source, device="cpu")
second = dataclasses.replace(first, weights=torch.tensor([0.9, 0.1]))
x = torch.zeros(1, 10)
means = [float(model(x).mean) for model in (first, second)]
chance = random.Random(0)

def saver(times):
    pid = os.fork()
    if pid == 0:
        for number in range(times):
            (first, second)[number % 2].save(target)
        os._exit(0)
    return pid

def whole():
    return float(load(target, device="cpu")(x).mean) in means

if sys.argv[4] == "killed":
    first.save(target)
    for _ in range(rounds):
        pid, end = saver(10**9), time.monotonic() + chance.random() / 20
        while time.monotonic() < end:
            assert whole()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert whole()
    print(len(list(target.parent.iterdir())), len(list(target.iterdir())))
    second.save(target)
else:
    savers = [saver(rounds) for _ in range(3)]
    while savers:
        if target.exists():
            assert whole()
        done = [pid for pid in savers if os.waitpid(pid, os.WNOHANG)[0]]
        savers = [pid for pid in savers if pid not in done]
assert whole()
print(sorted(path.name for path in target.parent.iterdir()), len(list(target.iterdir())))
"""


def points() -> Ensemble:
    model = load(MODELS / "ensemble-points")
    assert isinstance(model, Ensemble)
    return model


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("manner", ["killed", "together"])
def test_savers_that_are_killed_or_many_leave_a_whole_model(manner: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SAVERS, MODELS / "ensemble-points", tmp_path / "model", "40", manner]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "['model'] 2"


def test_a_model_is_replaced_by_its_configuration(tmp_path: Path) -> None:
    model, target = points(), tmp_path / "model"
    (tmp_path / "model").mkdir()  # an empty folder is as good as none
    names = []
    for _ in range(3):
        model.save(target)
        names.append(json.loads((target / "config.json").read_text())["tensors"]["file"])
        assert sorted(path.name for path in target.iterdir()) == ["config.json", names[-1]]
        torch.testing.assert_close(load(target)(X).mean, model(X).mean, rtol=0, atol=0)
    assert names[0] == "model.safetensors"
    assert len(set(names)) == 3


def test_what_killed_savers_left_is_cleaned_up_and_nothing_else(tmp_path: Path) -> None:
    target, key = tmp_path / "model", "0" * 31
    points().save(target)
    left = [f"model-{key}1.safetensors", f".config.json.{key}2.tmp", f".model-{key}1.safetensors.{key}3.tmp"]
    for name in left:
        (target / name).write_bytes(b"half")
    points().save(target)
    assert len(list(target.iterdir())) == 2
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelFileError, match=r"holds a model and thesis\.txt, which is no part of it"):
        points().save(target)
    assert len(list(target.iterdir())) == 3


@pytest.mark.parametrize("place", ["model", ".model.tmp"])
def test_a_first_saver_that_was_killed_does_not_stop_the_next(place: str, tmp_path: Path) -> None:
    folder = tmp_path / place
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"half")
    (folder / f".config.json.{'0' * 32}.tmp").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"not a complete model folder: config.json is missing"):
        load(folder)
    points().save(tmp_path / "model")
    torch.testing.assert_close(load(tmp_path / "model")(X).mean, points()(X).mean, rtol=0, atol=0)
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]
    assert len(list((tmp_path / "model").iterdir())) == 2


@pytest.mark.parametrize("names", [["model.safetensors"], ["config.json", "model.safetensors"], ["config.json"], ["a.txt"]])
def test_folders_of_others_are_left_alone(names: list[str], tmp_path: Path) -> None:
    """Other libraries call their files the same."""
    for name in names:
        (tmp_path / name).write_text('{"format": "another"}')
    with pytest.raises(ModelFileError, match="exists and is not a model folder"):
        points().save(tmp_path)
    assert {path.read_text() for path in tmp_path.iterdir()} == {'{"format": "another"}'}
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_save_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replace = tmp_path / "model", os.replace
    points().save(target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    def fail(source: Any, goal: Any) -> None:
        if Path(goal) == target / "config.json":
            raise OSError("no space left")
        replace(source, goal)

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        points().save(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert list(tmp_path.iterdir()) == [target]
    monkeypatch.setattr("os.replace", lambda source, goal: fail(source, target / "config.json"))
    with pytest.raises(OSError, match="no space left"):
        points().save(tmp_path / "new")
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_elsewhere_takes_its_place_when_it_is_whole() -> None:
    url, (system, path) = "memory://whole/state", file_system("memory://whole/state")
    write_atomically(url, b"old")
    with pytest.raises(TypeError), replacing(url) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert [entry["name"] for entry in system.ls("/whole")] == [path]
    assert system.cat(path) == b"old"
    write_atomically(url, b"new")
    assert system.cat(path) == b"new"

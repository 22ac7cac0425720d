"""Kill trainings in processes at random, parents and workers: `python -m benchmarks.random_kills 100`.

In turn, a program trains an ensemble in two processes with a checkpoint and saves it, and `deep-ensembles reproduce` works
on an experiment in two processes. Parents that are killed are started again, workers are replaced. Every model that is there
must load, and all results be the same bits as those that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from deep_ensembles import load, mlp

PROGRAM = """
import sys
from functools import partial
import torch
from deep_ensembles import Checkpoint, Normal, fit_ensemble, mlp
from deep_ensembles.execution import InProcess, Processes, _runs

_runs._LEAST_WORK, _runs._FULL_STEP = 0.0, 1e5
folder, n, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
inputs = torch.randn(2000, 4)
ensemble = fit_ensemble(
    partial(mlp, 4, 2, (64,)), inputs, inputs[:, 0].sin(), head=Normal(), n_members=4, max_epochs=epochs, random_state=0,
    checkpoint=Checkpoint(f"{folder}/state", every_seconds=0.2), execution=Processes(n) if n > 1 else InProcess(),
)
for _ in range(20):
    ensemble.save(f"{folder}/model")
"""


def random_kills(n_kills: int, epochs: int = 150, seed: int = 0) -> int:
    """How often a process was killed; raises where anything was lost."""
    draw, done, wanted = random.Random(seed), 0, dict[str, dict[str, np.ndarray]]()
    with tempfile.TemporaryDirectory() as home:
        commands = {"train": partial(_train, epochs), "reproduce": _reproduce}
        for kind, command in commands.items():
            subprocess.run(command(Path(home, kind), 1), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wanted[kind] = _results(Path(home, kind))
        for number, kind in enumerate(cycle(commands)):
            folder = Path(home, str(number))
            while True:
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                with subprocess.Popen(commands[kind](folder, 2), **quiet) as program:
                    done += _disturb(program, draw, n_kills - done)
                for name, result in _results(folder).items():
                    assert np.array_equal(result, wanted[kind][name]), f"{name}: other bits than those of an undisturbed run"
                if program.returncode == 0:
                    break
                assert program.returncode == -signal.SIGKILL, f"ended with {program.returncode}"
            assert _results(folder).keys() == wanted[kind].keys()
            if done >= n_kills:
                return done
    raise AssertionError


def _train(epochs: int, folder: Path, n: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [sys.executable, "-c", PROGRAM, str(folder), str(n), str(epochs)]


def _reproduce(folder: Path, n: int) -> list[str]:
    run = "import sys; from deep_ensembles.cli import app; app(sys.argv[1:])"
    command = [sys.executable, "-c", run, "reproduce", "toy-regression", "--scale", "smoke"]
    return [*command, "--out", str(folder), "--processes", str(n)]


def _results(folder: Path) -> dict[str, np.ndarray]:
    """The weights of the model and the predictions of experiments that are there."""
    found: dict[str, np.ndarray] = {}
    if Path(folder, "model").exists():
        views = load(folder / "model", network=lambda: mlp(4, 2, (64,))).members.parameters.views
        found |= {name: view.numpy() for name, view in views.items()}
    for mark in folder.glob("*/*/DONE"):
        with np.load(mark.parent / "predictions.npz") as arrays:
            found |= {f"{mark.parent.name}: {name}": arrays[name] for name in arrays}
    return found


def _disturb(program: subprocess.Popen[bytes], draw: random.Random, most: int) -> int:
    """Kill the program, or its workers now and then, at random moments until it ends."""
    killed = 0
    while killed < most and not _ends(program, draw.uniform(2, 10)):
        with suppress(ProcessLookupError):
            os.kill(draw.choice([program.pid, *_children(program.pid)]), signal.SIGKILL)
            killed += 1
    program.wait()
    return killed


def _ends(program: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _children(parent: int) -> list[int]:
    """Worker processes, on Linux; the helper of joblib's pool that only counts them is left alone."""
    lists = [(task / "children").read_text().split() for task in Path(f"/proc/{parent}/task").glob("*")]
    children = [int(child) for listed in lists for child in listed]
    return [child for child in children if "popen_loky" in Path(f"/proc/{child}/cmdline").read_text()]


if __name__ == "__main__":
    start = time.monotonic()
    print(f"{random_kills(int(sys.argv[1]))} kills in {time.monotonic() - start:.0f} s, nothing was lost")

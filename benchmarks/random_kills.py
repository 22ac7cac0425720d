"""Kill trainings in processes at random, parents and workers: `python -m benchmarks.random_kills 100`.

A program trains an ensemble in two processes with a checkpoint, and saves it. Parents that are killed are started again,
workers are replaced. Every model that is there must load, and be the same bits as one that nobody disturbed.
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
from pathlib import Path

import torch

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
    draw, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(_command(Path(home, "quiet"), 1, epochs), check=True)
        wanted = _weights(Path(home, "quiet"))
        while done < n_kills:
            folder = Path(home, str(done))
            while True:
                with subprocess.Popen(_command(folder, 2, epochs), stderr=subprocess.DEVNULL) as program:
                    killed = _disturb(program, draw, n_kills - done)
                done += killed
                if Path(folder, "model").exists():
                    assert torch.equal(_weights(folder), wanted), "other bits than those of an undisturbed training"
                if program.returncode == 0:
                    break
                assert program.returncode == -signal.SIGKILL, f"ended with {program.returncode}"
    return done


def _command(folder: Path, n: int, epochs: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [sys.executable, "-c", PROGRAM, str(folder), str(n), str(epochs)]


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


def _weights(folder: Path) -> torch.Tensor:
    views = load(folder / "model", network=lambda: mlp(4, 2, (64,))).members.parameters.views
    return torch.cat([views[name].flatten() for name in sorted(views)])


if __name__ == "__main__":
    start = time.monotonic()
    print(f"{random_kills(int(sys.argv[1]))} kills in {time.monotonic() - start:.0f} s, nothing was lost")

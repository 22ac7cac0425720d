"""Kill at any moment and resume: the same bits as an undisturbed training."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from _processes import started

from deep_ensembles import Checkpoint, ComplementaryFolds, Cosine, FastGradientSign, RobustScaling, fit_ensemble, mlp
from deep_ensembles.training.checkpoint import CheckpointWriter

SCRIPT = """
import sys, torch
from functools import partial
from deep_ensembles import Checkpoint, FastGradientSign, fit_ensemble, mlp
import deep_ensembles.training.batches
torch.set_num_threads(1)
deep_ensembles.training.batches._BLOCK_BYTES = 4000  # many blocks in an epoch, to be killed within one too
x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
y = x[:, 0] + x[:, 1] ** 2
ensemble = fit_ensemble(
    partial(mlp, 4, 2, (16,), batch_norm=True, dropout=0.1), x, y, n_members=3, max_epochs=12, batch_size=32,
    early_stopping=True, patience=4, perturbation=FastGradientSign(0.01), random_state=0,
    checkpoint=Checkpoint(sys.argv[1], every_epochs=1, every_seconds=0.0),
)
ensemble.save(sys.argv[2])
"""


def run(checkpoint: Path, model: Path, kill_after: float | None = None) -> bool:
    with started([sys.executable, "-c", SCRIPT, str(checkpoint), str(model)]) as process:
        try:
            assert process.wait(kill_after) == 0
        except subprocess.TimeoutExpired:
            return False
    return True


def tensors(model: Path) -> bytes:
    file = json.loads((model / "config.json").read_text())["tensors"]["file"]  # another one where a killed run had saved
    return (model / file).read_bytes()


@pytest.mark.slow
def test_killed_twenty_times_at_random_moments(tmp_path: Path) -> None:
    started = time.monotonic()
    assert run(tmp_path / "calm.safetensors", tmp_path / "calm")
    whole = time.monotonic() - started
    generator, kills, attempt = random.Random(0), 0, 0
    while kills < 20:
        attempt += 1
        checkpoint, model = tmp_path / f"{attempt}.safetensors", tmp_path / f"model-{attempt}"
        while not run(checkpoint, model, generator.uniform(0.3, 1.0) * whole):
            kills += 1
        assert tensors(model) == tensors(tmp_path / "calm")


NETWORK = partial(mlp, 3, 2, (16,), dropout=0.2)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0] + 0.1 * x[:, 1]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [1, 2, 5, 8, 13])
def test_resuming_gives_the_same_bits(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at the n-th write of a checkpoint, within an epoch or between two, with runs already finished or not."""
    monkeypatch.setattr("deep_ensembles.training.batches._BLOCK_BYTES", 2000)
    settings = {
        "max_epochs": 8, "batch_size": 50, "random_state": 0, "early_stopping": True, "patience": 2, "learning_rate": 0.05,
        "perturbation": FastGradientSign(0.01), "n_members": 3,
    }  # fmt: skip
    calm = fit_ensemble(NETWORK, *data(), **settings)
    checkpoint = Checkpoint(tmp_path / "state", every_seconds=0.0)
    write, written = CheckpointWriter.write, []

    def interrupting(self: CheckpointWriter, *args: object) -> None:
        write(self, *args)  # type: ignore[arg-type]
        written.append(1)
        if len(written) == at:
            raise Interrupted

    monkeypatch.setattr(CheckpointWriter, "write", interrupting)
    with pytest.raises(Interrupted):
        fit_ensemble(NETWORK, *data(), checkpoint=checkpoint, **settings)
    resumed = fit_ensemble(NETWORK, *data(), checkpoint=checkpoint, **settings)
    assert torch.equal(calm.members.parameters.flat, resumed.members.parameters.flat)
    torch.testing.assert_close(torch.tensor(calm.history), torch.tensor(resumed.history), rtol=0, atol=0, equal_nan=True)
    again = fit_ensemble(NETWORK, *data(), checkpoint=checkpoint, **settings)
    assert torch.equal(calm.members.parameters.flat, again.members.parameters.flat)


@pytest.mark.parametrize("at", [2, 7, 13])
def test_averages_and_held_out_predictions_are_resumed(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deep_ensembles.training.batches._BLOCK_BYTES", 2000)
    settings = {
        "max_epochs": 8, "batch_size": 30, "random_state": 0, "early_stopping": True, "patience": 3, "learning_rate": 0.05,
        "n_members": 4, "averaging": 2.0, "drop_last": True, "folds": ComplementaryFolds(2), "clip_norm": 1.0,
        "schedule": Cosine(), "standardize_inputs": RobustScaling(),
    }  # fmt: skip
    calm = fit_ensemble(NETWORK, *data(), **settings)
    checkpoint = Checkpoint(str(tmp_path / "state"), every_seconds=0.0)
    write, written = CheckpointWriter.write, []

    def interrupting(self: CheckpointWriter, *args: object) -> None:
        write(self, *args)  # type: ignore[arg-type]
        written.append(1)
        if len(written) == at:
            raise Interrupted

    monkeypatch.setattr(CheckpointWriter, "write", interrupting)
    with pytest.raises(Interrupted):
        fit_ensemble(NETWORK, *data(), checkpoint=checkpoint, **settings)
    for _ in range(2):  # the second time, everything is in the checkpoint
        resumed = fit_ensemble(NETWORK, *data(), checkpoint=checkpoint, **settings)
        assert torch.equal(calm.members.parameters.flat, resumed.members.parameters.flat)
        assert torch.equal(calm.out_of_fold_raw, resumed.out_of_fold_raw)


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "state", every_epochs=1)
    x, y = data()
    fit_ensemble(NETWORK, x, y, max_epochs=2, random_state=0, checkpoint=checkpoint)
    for changed in ({"random_state": 1}, {"max_epochs": 3}, {"learning_rate": 0.5}):
        with pytest.raises(ValueError, match="belongs to another training"):
            fit_ensemble(NETWORK, x, y, **({"max_epochs": 2, "random_state": 0} | changed), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="belongs to another training"):
        fit_ensemble(NETWORK, x, 2 * y + 1, max_epochs=2, random_state=0, checkpoint=checkpoint)
    fresh = Checkpoint(tmp_path / "state", every_epochs=1, resume=False)
    fit_ensemble(NETWORK, x, y, max_epochs=3, random_state=0, checkpoint=fresh)


def test_a_damaged_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="cannot be read"):
        fit_ensemble(NETWORK, *data(), max_epochs=2, random_state=0, checkpoint=Checkpoint(path))

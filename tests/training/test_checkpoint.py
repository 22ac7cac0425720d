"""Checkpoints: what they may be, whose they are, and that damage is noticed."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _processes import printed
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles import Checkpoint, crps, fit_ensemble, log_score, mlp

X = np.random.default_rng(0).normal(size=(230, 8))
Y = X[:, 0] + X[:, 1] ** 2
NETWORK = partial(mlp, 8, 2)


PARTIAL = """
from functools import partial
import numpy as np
from deep_ensembles import Checkpoint, beta_nll, fit_ensemble, mlp
inputs = np.random.default_rng(0).normal(size=(50, 2))
settings = {"scoring_rule": partial(beta_nll, beta=1.0), "max_epochs": 2, "random_state": 0}
fit_ensemble(partial(mlp, 2, 2), inputs, inputs[:, 0], checkpoint=Checkpoint(path), **settings)
"""


def test_a_partial_rule_resumes_in_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    printed(f"path = {path!r}\n{PARTIAL}")
    exec(PARTIAL, {"path": path})


@pytest.mark.parametrize("other", ["dropout", "rule"])
def test_other_settings_are_refused(other: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "state")
    settings = {"max_epochs": 2, "random_state": 0, "checkpoint": checkpoint}
    fit_ensemble(NETWORK, X, Y, scoring_rule=lambda d, t: log_score(d, t), **settings)
    build = partial(mlp, 8, 2, dropout=0.5) if other == "dropout" else NETWORK
    rule = (lambda d, t: crps(d, t)) if other == "rule" else (lambda d, t: log_score(d, t))
    with pytest.raises(ValueError, match="belongs to another training"):
        fit_ensemble(build, X, Y, scoring_rule=rule, **settings)


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    settings = {"max_epochs": 2, "random_state": 0, "checkpoint": Checkpoint(path)}
    fit_ensemble(NETWORK, X, Y, **settings)
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged"):
        fit_ensemble(NETWORK, X, Y, **settings)


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        ("x", {"every_epochs": 0}, "`every_epochs` must be an integer ≥ 1, got 0"),
        (3, {}, "`path` must be a file name, got 3"),
    ],
)
def test_bad_settings_are_refused(path: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Checkpoint(path, **settings)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: programs in the background ignore it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["path", "url"])
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(elsewhere: bool, tmp_path: Path) -> None:
    calls: list[int] = []

    def rule(distribution: Distribution, target: Tensor) -> Tensor:
        calls.append(len(calls))
        if len(calls) == 20:
            signal.raise_signal(signal.SIGINT)
        return log_score(distribution, target)

    settings = {"scoring_rule": rule, "n_members": 3, "max_epochs": 20, "batch_size": 100, "random_state": 0}
    checkpoint = Checkpoint("memory://checkpoints/state" if elsewhere else tmp_path / "state", every_seconds=None)
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(NETWORK, X, Y, checkpoint=checkpoint, **settings)
    before = len(calls)
    resumed = fit_ensemble(NETWORK, X, Y, checkpoint=checkpoint, **settings)
    taken = len(calls) - before
    calm = fit_ensemble(NETWORK, X, Y, **settings)
    assert torch.equal(resumed.members.parameters.flat, calm.members.parameters.flat)
    assert 0 < taken < len(calls) - before - taken


def test_a_full_disk_and_a_read_only_folder_leave_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**settings: Any) -> None:
        checkpoint = Checkpoint(tmp_path / "state", every_epochs=1, **settings)
        fit_ensemble(NETWORK, X, Y, n_members=2, max_epochs=2, random_state=0, checkpoint=checkpoint)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"cannot be written: No space left on device$"):
            train()
    train()
    before = (tmp_path / "state").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot be written: No space left on device; the one before is intact") as caught:
        train(resume=False)
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "state").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="its folder is read-only"):
        train(resume=False)

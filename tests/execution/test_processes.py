"""Members are the same bits wherever they are trained; workers stay warm, are replaced, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from _processes import not_on_windows, started
from torch import nn

from benchmarks.random_kills import random_kills
from deep_ensembles import DeepEnsembleRegressor, Ensemble, Normal, cross_validate, fit_ensemble, load
from deep_ensembles.execution import InProcess, Processes, Training, _runs, chosen_execution, processes
from deep_ensembles.execution._runs import pieces_of
from deep_ensembles.training import Algorithm, Criterion, InMemory, Recipe, Run, resources
from deep_ensembles.training.parts import choose_inputs

INPUTS = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS[:, 0].sin() + 0.1 * INPUTS[:, 1]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 2))


@pytest.fixture
def always_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runs, "_LEAST_WORK", 0.0)
    monkeypatch.setattr(_runs, "_FULL_STEP", 1e5)


def fitted(execution: Any, **settings: Any) -> Ensemble:
    how: dict[str, Any] = {"n_members": 5, "max_epochs": 4, "early_stopping": True, "random_state": 0} | settings
    return fit_ensemble(how.pop("network", network), INPUTS, TARGETS, head=Normal(), execution=execution, **how)


def assert_same(one: Ensemble, other: Ensemble) -> None:
    for name, tensor in one.members.parameters.views.items():
        assert torch.equal(tensor, other.members.parameters.views[name])
    np.testing.assert_array_equal(one.history, other.history)
    assert torch.equal(one(INPUTS).mean, other(INPUTS).mean)


@pytest.mark.usefixtures("always_cut")
def test_members_are_the_same_bits_wherever() -> None:
    here = fitted(InProcess())
    for execution in (Processes(1), Processes(2)):
        assert_same(here, fitted(execution))
    assert_same(here, fitted(None))
    folds = [cross_validate(network, INPUTS, TARGETS, head=Normal(), cv=2, n_members=2, max_epochs=2, random_state=0,
                            execution=execution) for execution in (InProcess(), Processes(2))]  # fmt: skip
    for one, other in zip(folds[0].ensembles, folds[1].ensembles, strict=True):
        assert_same(one, other)


def training(n_runs: int, n_rows: int, width: int, max_epochs: int) -> Training:
    inputs = torch.zeros(n_rows, 10)
    runs = [Run(np.arange(n_rows), seed) for seed in range(n_runs)]

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(10, width), nn.Linear(width, width), nn.Linear(width, 2))

    factory, _, _ = choose_inputs(build, inputs[:2], None, True, 0)
    algorithm = Algorithm(Criterion(Normal(), None), None)  # type: ignore[arg-type]
    return Training(factory, InMemory(inputs, inputs[:, 0]), runs, algorithm, Recipe(max_epochs=max_epochs))


def test_short_trainings_and_small_networks_are_one_stack() -> None:
    assert [len(piece) for piece in pieces_of(training(5, 500, 50, 40))] == [5]
    assert [len(piece) for piece in pieces_of(training(6, 10_000, 500, 100))] == [1] * 6
    sizes = [len(piece) for piece in pieces_of(training(6, 10_000, 280, 100))]
    assert len(sizes) in (2, 4)
    assert sum(sizes) == 6
    assert len(pieces_of(training(100, 10_000, 10, 40))) <= 2


def worker(number: int) -> int:
    time.sleep(0.2)
    return os.getpid()


@pytest.mark.usefixtures("always_cut")
def test_a_second_work_finds_the_same_workers() -> None:
    before = {process for _, process in Processes(2)(worker, range(6))}
    fitted(Processes(2), max_epochs=1)
    assert before <= {process for _, process in Processes(2)(worker, range(6))}


def surroundings(names: list[str]) -> tuple[str, list[str | None]]:
    return str(Path.cwd()), [os.environ.get(name) for name in names]


def test_warm_workers_see_the_folder_and_the_environment_of_now(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    names = ["DEEP_ENSEMBLES_A", "DEEP_ENSEMBLES_B", "OMP_NUM_THREADS"]
    monkeypatch.setenv("DEEP_ENSEMBLES_B", "old")
    ((_, before),) = Processes(1)(surroundings, [names])
    assert before == (str(Path.cwd()), [None, "old", "1"])
    monkeypatch.setenv("DEEP_ENSEMBLES_A", "new")
    monkeypatch.delenv("DEEP_ENSEMBLES_B")
    monkeypatch.chdir(tmp_path)
    ((_, after),) = Processes(1)(surroundings, [names])
    assert after == (str(Path.cwd()), ["new", None, "1"])


@pytest.mark.usefixtures("always_cut")
def test_joblib_works_before_and_after() -> None:
    absolute = [joblib.delayed(abs)(-1), joblib.delayed(abs)(2)]
    for _ in range(2):
        fitted(Processes(2), max_epochs=1)
        assert joblib.Parallel(2, "loky")(absolute) == [1, 2]


def die_once(path: str, item: int) -> int:
    """The first who comes here is killed."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return item
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


@not_on_windows
def test_a_worker_that_dies_is_replaced(tmp_path) -> None:
    assert sorted(Processes(2)(partial(die_once, str(tmp_path / "flag")), range(4))) == [(i, i) for i in range(4)]


def die(item: int) -> None:
    os._exit(3)


@pytest.mark.slow
def test_work_that_kills_every_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_MOST_DEATHS", 2)
    with pytest.raises(RuntimeError, match="2 worker processes died over the same work"):
        list(Processes(1)(die, [0]))


@not_on_windows
def test_workers_end_with_a_parent_that_is_killed() -> None:
    code = ("from deep_ensembles.execution import Processes\nimport os, time\n"
            "def wait(item):\n    os.write(2, f'{os.getpid()}\\n'.encode()); time.sleep(100)\n"
            "list(Processes(2)(wait, [0, 1]))")  # fmt: skip
    with started([sys.executable, "-c", code], stderr=subprocess.PIPE) as parent:
        assert parent.stderr is not None
        workers = [int(parent.stderr.readline()) for _ in range(2)]
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stderr.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{worker}").exists() for worker in workers):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.usefixtures("always_cut")
def test_what_is_no_module_travels_or_is_refused_in_a_sentence() -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    trained = fitted(Processes(2), network=lambda: Local(), max_epochs=1)
    assert type(trained.members.modules[0]) is Local
    lock = threading.Lock()

    def locked() -> nn.Module:
        with lock:
            return network()

    with pytest.raises(TypeError, match=r"must be sent to another process, which it cannot be .*InProcess"):
        fitted(Processes(2), network=locked)
    with pytest.raises(ValueError, match="must have 2 outputs per target"):
        fitted(Processes(2), network=lambda: nn.Linear(4, 3), max_epochs=1)


def test_n_jobs_as_joblib_means_it() -> None:
    assert chosen_execution(Processes(3), 2) == Processes(3)
    assert chosen_execution(None, None) == InProcess()
    assert chosen_execution(None, 1) == InProcess()
    several = chosen_execution(None, 2)
    assert isinstance(several, Processes)
    assert several.jobs == 2
    assert several.least_seconds > 0
    with joblib.parallel_config(n_jobs=3):
        configured = [chosen_execution(None, n_jobs) for n_jobs in (None, "auto")]
    assert [getattr(each, "jobs", None) for each in configured] == [3, 3]
    nested = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(chosen_execution)(None, "auto") for _ in range(2))
    assert nested == [InProcess()] * 2
    with pytest.raises(ValueError, match="`n_jobs` must be"):
        chosen_execution(None, 0)


def test_a_small_table_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "__call__", lambda *arguments: pytest.fail("started processes"))
    model = DeepEnsembleRegressor(effort="fast", max_epochs=2, random_state=0, n_jobs=2).fit(INPUTS.numpy(), TARGETS.numpy())
    assert model.n_jobs == 2


@pytest.mark.usefixtures("always_cut")
def test_a_saved_model_forgets_where_it_was_trained(tmp_path) -> None:
    settings: dict[str, Any] = {"preset": "paper", "max_epochs": 1, "n_members": 2, "random_state": 0}
    model = DeepEnsembleRegressor(execution=Processes(2), n_jobs=2, **settings).fit(INPUTS.numpy(), TARGETS.numpy())
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert (loaded.execution, loaded.n_jobs) == (None, 2)
    np.testing.assert_array_equal(loaded.predict(INPUTS.numpy()), model.predict(INPUTS.numpy()))


def test_training_that_does_not_fit_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda: 1e4)
    with pytest.raises(MemoryError, match=r"training needs about 0.0 GB and 0.0 GB are free; lower `n_members`"):
        fitted(None)


def test_what_a_backward_pass_keeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = torch.rand(40, 1, 32, 32)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(8192, 2)]
    network = nn.Sequential(*layers).train()
    kept = resources.kept_bytes(network, pictures)
    assert 2 * 4 * 8192 <= kept <= 6 * 4 * 8192
    assert network.training
    assert resources.kept_bytes(network, torch.rand(40, 32)) == 0
    assert resources.kept_bytes(nn.LazyConv2d(8, 3), pictures) == 0
    words = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.Tanh(), nn.Flatten(), nn.Linear(320, 2))
    assert resources.kept_bytes(words, torch.randint(50, (40, 10))) >= 4 * (160 + 320)
    weights = 4 * 7 * sum(parameter.numel() for parameter in network.parameters())
    monkeypatch.setattr(resources, "free_memory", lambda: weights + 4 * pictures.numel() + 32 * kept - 1)
    settings: dict[str, Any] = {"head": Normal(), "n_members": 1, "max_epochs": 1, "random_state": 0}
    fit_ensemble(lambda: network, pictures, torch.rand(40), batch_size=16, **settings)
    with pytest.raises(MemoryError, match="`batch_size`"):
        fit_ensemble(lambda: network, pictures, torch.rand(40), batch_size=32, **settings)


def test_threads_follow_the_work_and_are_put_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with resources.limited_threads(1e5):
            assert torch.get_num_threads() == 1
        with resources.limited_threads(1e12):
            assert torch.get_num_threads() == min(2, joblib.cpu_count())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@not_on_windows
def test_random_kills_of_parents_and_workers_lose_nothing() -> None:
    assert random_kills(6, epochs=60) >= 6


def test_bfloat16_trains_about_as_well_and_predicts_as_ever() -> None:
    usual, half = (fitted(None, max_epochs=30, n_members=2, precision=precision) for precision in (None, "bf16"))
    assert half.members.parameters.flat.dtype == torch.float32
    assert half(INPUTS).mean.dtype == usual(INPUTS).mean.dtype
    assert not torch.equal(usual(INPUTS).mean, half(INPUTS).mean)
    errors = [float((ensemble(INPUTS).mean - TARGETS).square().mean().sqrt()) for ensemble in (usual, half)]
    assert errors[1] < errors[0] + 0.1
    with pytest.raises(ValueError, match="`precision` must be None or"):
        fitted(None, precision="half")

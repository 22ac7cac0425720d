"""On a Ray cluster the same is done, a lost node costs little, and nothing is left running."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from deep_ensembles import Checkpoint, Normal, ParquetRows, fit_ensemble, mlp
from deep_ensembles.images import ImageFolder
from deep_ensembles.networks import convnet

ray = pytest.importorskip("ray", reason="Ray is not installed; pip install 'deep-ensembles[ray]'")
from benchmarks import ray_kills  # noqa: E402
from deep_ensembles.execution.ray import Ray  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings are Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_kills.three_nodes() as cluster:
        yield cluster


def test_results_reports_and_errors_come_back(cluster: Any) -> None:
    data, lock, told = torch.arange(10_000.0), threading.Lock(), []

    def work(number: int, report: Any) -> Any:  # travels by value: workers do not know this file
        if number < 0:
            raise KeyError(f"no row {number}")
        for done in range(3):
            report(done, "half way")
            time.sleep(0.3)
        return data[number : number + 2], np.ones(3), os.getpid()

    found = dict(Ray(cluster.address)(work, [3, 7], lambda *report: told.append(report)))
    assert torch.equal(found[7][0].add_(1), torch.tensor([8.0, 9.0]))  # and may be written to
    assert os.getpid() not in {pid for _, _, pid in found.values()}
    assert {item for item, *_ in told} == {3, 7}
    assert told[-1][1:] == (2, "half way") or told[-1][1:] == (1, "half way")
    with pytest.raises(KeyError, match="no row -1") as raised:
        list(Ray(cluster.address)(work, [-1], lambda *report: None))
    assert type(raised.value) is KeyError

    class OwnError(Exception):
        """One that cannot be made anew from its message."""

        def __init__(self, first: str, second: str) -> None:
            super().__init__(f"{first} {second}")

    def fail(number: int) -> None:
        raise OwnError("one", "two")

    with pytest.raises(RuntimeError, match="OwnError: one two"):
        list(Ray(cluster.address)(fail, [1]))
    with pytest.raises(TypeError, match="must be sent to another process, which it cannot be"):
        list(Ray(cluster.address)(lambda number: lock, [1]))
    assert list(Ray(cluster.address)(fail, [])) == []


def test_rows_and_checkpoints_at_a_url(cluster: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4000, 3))
    (tmp_path / "parts").mkdir()
    for part in range(2):
        rows = x[2000 * part : 2000 * (part + 1)]
        columns = {f"x{i}": column for i, column in enumerate(rows.T)} | {"y": rows[:, 0]}
        parquet.write_table(pa.table(columns), tmp_path / "parts" / f"{part}.parquet")
    settings: dict[str, Any] = {"head": Normal(), "n_members": 2, "max_epochs": 2, "random_state": 0}
    build = partial(mlp, 3, 2, (16,))
    here = fit_ensemble(build, ParquetRows(tmp_path / "parts", target="y"), **settings)
    settings |= {"execution": Ray(cluster.address), "checkpoint": Checkpoint(f"file://{tmp_path}/state")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        there = fit_ensemble(build, ParquetRows(f"file://{tmp_path}/parts", target="y"), **settings)
    assert not [warning for warning in caught if "not writable" in str(warning.message)]
    for name, view in here.members.parameters.views.items():
        assert torch.equal(there.members.parameters.views[name], view)


def test_ctrl_c_and_errors_leave_nothing_running(cluster: Any, tmp_path: Path) -> None:
    def beat(number: int, report: Any) -> None:
        if number == 0:
            time.sleep(2)
            raise ValueError("enough")
        while True:
            (tmp_path / str(number)).write_text(str(time.time()))
            time.sleep(0.05)

    with pytest.raises(ValueError, match="enough"):
        list(Ray(cluster.address)(beat, [0, 1], lambda *report: None))
    for path in tmp_path.iterdir():
        path.unlink()

    def press() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(Ray(cluster.address)(beat, [1, 2], lambda *report: None))
    signal.signal(signal.SIGINT, before)
    time.sleep(2)
    last = [path.stat().st_mtime for path in tmp_path.iterdir()]
    time.sleep(1)
    assert [path.stat().st_mtime for path in tmp_path.iterdir()] == last


def test_members_are_those_of_this_process(cluster: Any, tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 300).reshape(100, 3)
    settings: dict[str, Any] = {"n_members": 2, "max_epochs": 5, "random_state": 0}
    here = fit_ensemble(lambda: mlp(3, 2), x, x[:, 0], **settings)  # a lambda travels by value
    there = fit_ensemble(lambda: mlp(3, 2), x, x[:, 0], execution=Ray(cluster.address), **settings)
    assert torch.equal(here.members.parameters.flat, there.members.parameters.flat)
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (40 * number, 0, 90)).save(tmp_path / "train" / name / f"{number}.png")
    images = ImageFolder(tmp_path, image_size=8, augment=True)
    build = partial(convnet, 2, in_channels=3, image_size=8, width=4)
    here, there = (
        fit_ensemble(build, images, execution=execution, **settings) for execution in (None, Ray(cluster.address))
    )
    assert torch.equal(here.members.parameters.flat, there.members.parameters.flat)


def test_a_lost_node_costs_an_epoch_at_most(cluster: Any, tmp_path: Path) -> None:
    calm = ray_kills.trained(tmp_path / "calm", cluster.address)
    killed = ray_kills.trained(tmp_path / "killed", cluster.address, ray_kills.killer(cluster, 0.4 * calm.steps))
    assert torch.equal(killed.weights, calm.weights)
    assert 0 <= killed.steps - calm.steps <= ray_kills.STEPS
    again = ray_kills.trained(tmp_path / "killed", cluster.address)  # as a driver that was killed and started again
    assert torch.equal(again.weights, calm.weights)
    assert again.steps - killed.steps <= 1


def test_no_cluster_is_told() -> None:
    ray.shutdown()
    with pytest.raises(ValueError, match=r"`address` must be that of a running Ray cluster, got '127.0.0.1:1'"):
        list(Ray("127.0.0.1:1")(print, [1]))

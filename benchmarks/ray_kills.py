"""Kills a node of three while an ensemble trains on Ray: does the job finish, with the same members, and what is redone?

`python -m benchmarks.ray_kills 10` starts three Ray nodes on this machine, trains once undisturbed, then as often as asked
with a node killed at a random moment, and prints a line each.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles import Checkpoint, fit_ensemble, log_score, mlp
from deep_ensembles.execution.ray import Ray, ray

MEMBERS, EPOCHS, ROWS, BATCH, PAUSE = 3, 20, 200, 50, 0.04
STEPS = ROWS // BATCH  # of one member in one epoch
STORE = 80 * 10**6  # bytes for the object store of a node, about the least that Ray takes
HEALTH = {"health_check_initial_delay_ms": 2000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


@dataclass(frozen=True)
class Outcome:
    """What a training gave.

    Arguments:
        weights: of all members.
        steps: how many batches were trained on, in all processes.
        seconds: from start to end.
    """

    weights: Tensor
    steps: int
    seconds: float


def slow_score(log: Path, distribution: Distribution, target: Tensor) -> Tensor:
    """The log score, which takes its time, and leaves in a file a line of where each gradient was taken."""
    scores = log_score(distribution, target)
    if scores.requires_grad:
        with open(log, "a") as file:
            file.write(f"{ray.get_runtime_context().get_node_id()}\n")
        time.sleep(PAUSE)
    return scores


@contextmanager
def three_nodes() -> Iterator[Any]:
    """Three Ray nodes on this machine: one that keeps the books, and two of one processor each, which may be killed."""
    from ray.cluster_utils import Cluster

    settings = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**settings, "_system_config": HEALTH})
    try:
        ray.init(cluster.address, log_to_driver=False, configure_logging=False)
        for _ in range(2):
            add_node(cluster)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=STORE, include_dashboard=False)


def member(folder: Path, seed: int) -> Tensor:
    """Train a network with a checkpoint after each epoch; its weights."""
    x = torch.linspace(-1, 1, 3 * ROWS).reshape(ROWS, 3).sin()
    settings = {"max_epochs": EPOCHS, "batch_size": BATCH, "random_state": seed}
    checkpoint = Checkpoint(folder / f"state-{seed}", every_epochs=1, every_seconds=None)
    rule = partial(slow_score, folder / "steps")
    build = partial(mlp, 3, 2, (16,))
    found = fit_ensemble(build, x, x[:, 0], scoring_rule=rule, n_members=1, checkpoint=checkpoint, **settings)
    return found.members.parameters.flat


def trained(folder: Path, address: str, kill: Callable[[Path], None] | None = None) -> Outcome:
    """Train members on a cluster; `kill` is called beside that."""
    folder.mkdir(exist_ok=True)
    start, beside = time.perf_counter(), threading.Thread(target=kill or str, args=[folder / "steps"], daemon=True)
    beside.start()
    found = dict(Ray(address)(partial(member, folder), range(MEMBERS)))
    beside.join()
    weights = torch.stack([found[number] for number in range(MEMBERS)])
    steps = (folder / "steps").read_text().splitlines()
    return Outcome(weights, len(steps), time.perf_counter() - start)


def killer(cluster: Any, after: float) -> Callable[[Path], None]:
    """Kills the node that took the last step, when so many are taken."""

    def kill(log: Path) -> None:
        while not log.exists() or len(steps := log.read_text().splitlines()) < after:
            time.sleep(0.02)
        (victim,) = [node for node in cluster.list_all_nodes() if node.node_id == steps[-1]]
        cluster.remove_node(victim, allow_graceful=False)

    return kill


def main() -> None:
    rounds, chance, good = int(sys.argv[1]) if len(sys.argv) > 1 else 10, random.Random(0), 0
    with tempfile.TemporaryDirectory() as place, three_nodes() as cluster:
        calm = trained(Path(place, "calm"), cluster.address)
        print(f"undisturbed: {calm.steps} steps, {calm.seconds:.1f} s", flush=True)
        for number in range(rounds):
            share = chance.uniform(0.1, 0.8)
            found = trained(Path(place, str(number)), cluster.address, killer(cluster, share * calm.steps))
            redone, same = found.steps - calm.steps, bool(torch.equal(found.weights, calm.weights))
            good += same and 0 <= redone <= STEPS
            print(f"node killed after {share:.0%}: members {'equal' if same else 'DIFFER'}, {redone} steps redone "
                  f"(an epoch has {STEPS}), {found.seconds:.1f} s", flush=True)  # fmt: skip
            add_node(cluster)
            cluster.wait_for_nodes()
    print(f"{good} of {rounds}")


if __name__ == "__main__":
    main()

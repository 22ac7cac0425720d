"""What ImageNet takes: sizes of Inception-v3 and its checkpoints, days on g devices, and what failures cost.

`python -m benchmarks.scale` prints the tables of docs/scale.md. Sizes are those of the real network; days follow from them
and from a speed per device that is named, not measured; failures are simulated.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from deep_ensembles import Checkpoint, fit_ensemble
from deep_ensembles.networks import inception
from deep_ensembles.training.checkpoint import CheckpointWriter

IMAGES, EPOCHS, MEMBERS = 1_281_167, 90, 5  # ILSVRC-2012, a usual length of training, the paper's first choice of M
SPEEDS = (10, 50, 100)  # TFLOP/s that a device sustains; choose your row
DEVICES = (1, 2, 5, 10, 50)
HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Network:
    """What one network takes for one image.

    Arguments:
        name: for people.
        parameters, buffers: how many numbers.
        flop: of a training step, forward and backward.
        kept: bytes that the backward pass needs of the forward one.
    """

    name: str
    parameters: int
    buffers: int
    flop: float
    kept: float


def network(name: str, n_outputs: int, image_size: int, batch: int = 1) -> Network:
    """Count operations and bytes of one training step of Inception-v3 on a few images."""
    module = inception(n_outputs, image_size=image_size)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(module(torch.rand(batch, 3, image_size, image_size)), torch.zeros(batch).long())
        loss.backward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    activations = sum(size for place, size in kept.items() if place not in weights)
    parameters, buffers = (sum(each.numel() for each in part) for part in (module.parameters(), module.buffers()))
    return Network(name, parameters, buffers, counter.get_total_flops() / batch, activations / batch)


def checkpoint_bytes_per_parameter() -> float:
    """Of a real checkpoint, of a small Inception in training."""
    build = partial(inception, 4, image_size=16, width=0.5)
    images, labels = torch.rand(8, 3, 16, 16), torch.arange(8) % 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state")
        settings = {"n_members": 1, "batch_size": 8, "random_state": 0, "max_epochs": 2, "time_limit": 1e-9}
        ensemble = fit_ensemble(build, images, labels, checkpoint=Checkpoint(path, every_epochs=1), **settings)
        written = path.stat().st_size
    return written / ensemble.members.parameters.flat.numel()


def checkpoint_seconds(n_bytes: float) -> tuple[float, float]:
    """Seconds that writing and reading a checkpoint of this size take here, with its checksum, to the local disk."""
    state = {"state": torch.zeros(int(n_bytes) // 4)}
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(Checkpoint(Path(folder, "state")), "")
        start = time.perf_counter()
        writer.write(state, {})
        middle = time.perf_counter()
        writer.read(torch.device("cpu"))
        return middle - start, time.perf_counter() - middle


def simulated(
    work: float, interval: float, write: float, restart: float, between_failures: float, repeats: int = 500, seed: int = 0
) -> tuple[float, float]:
    """Mean seconds until `work` is done, and their standard error, where failures strike and work goes on from a checkpoint.

    Arguments:
        work: seconds without failures and checkpoints.
        interval: seconds of work between checkpoints.
        write: seconds that a checkpoint takes.
        restart: seconds until work goes on after a failure; a failure may strike then too.
        between_failures: mean seconds between failures, exponentially distributed.
    """
    random, pieces = np.random.default_rng(seed), math.ceil(work / interval)
    lengths = np.full(pieces, interval + write)
    lengths[-1] = work - (pieces - 1) * interval
    totals = np.zeros(repeats)
    for length in lengths:
        unfinished, needed = np.arange(repeats), np.full(repeats, length)
        while len(unfinished):
            life = random.exponential(between_failures, len(unfinished))
            totals[unfinished] += np.minimum(life, needed)
            failed = life < needed
            unfinished, needed = unfinished[failed], np.full(int(failed.sum()), length + restart)
    return float(totals.mean()), float(totals.std() / math.sqrt(repeats))


def expected(work: float, interval: float, write: float, restart: float, between_failures: float) -> float:
    """The same by the formula, with a checkpoint at the end of every interval.

    References: Young (1974); Daly (2006): the best interval is about √(2 · write · between failures).
    """
    rate = 1 / between_failures
    return work / interval * math.exp(rate * restart) * math.expm1(rate * (interval + write)) / rate


def print_sizes(networks: list[Network], per_parameter: float) -> None:
    print("network                     parameters   GFLOP/image   kept MB/image   checkpoint MB   weights and optimiser MB")
    for each in networks:
        steady = 4 * (5 * each.parameters + 2 * each.buffers)  # weights, gradient, two moments, best weights
        print(f"{each.name:<26}{each.parameters / 1e6:>10.1f} M{each.flop / 1e9:>12.1f}{each.kept / 1e6:>16.1f}"
              f"{per_parameter * each.parameters / 1e6:>16.0f}{steady / 1e6:>27.0f}")  # fmt: skip


def print_days(network: Network) -> float:
    total = MEMBERS * EPOCHS * IMAGES * network.flop
    counts = f"{MEMBERS} members × {EPOCHS} epochs × {IMAGES:,} images × {network.flop / 1e9:.1f} GFLOP"
    print(f"\n{counts} = {total:.2e} FLOP; days on")
    print("sustained per device" + "".join(f"{g:>10} devices" for g in DEVICES))
    for speed in SPEEDS:
        one = EPOCHS * IMAGES * network.flop / (speed * 1e12) / DAY
        print(f"{speed:>12} TFLOP/s" + "".join(f"{math.ceil(MEMBERS / g) * one:>18.1f}" for g in DEVICES))
    return EPOCHS * IMAGES * network.flop / (SPEEDS[1] * 1e12)


def print_failures(work: float, write: float, restart: float = 120.0) -> None:
    print(f"\na member of {work / DAY:.1f} days, {write:.0f} s per checkpoint, {restart:.0f} s to start again;")
    print("added to its time by checkpoints and failures: simulated, and by the formula")
    intervals = (60.0, 600.0, 1800.0, HOUR, 6 * HOUR)
    print("a node fails every" + "".join(f"{f'{interval / 60:.0f} min':>18}" for interval in intervals) + "   best interval")
    for days in (1, 7, 30):
        cells = []
        for interval in intervals:
            mean, _ = simulated(work, interval, write, restart, days * DAY)
            cells.append(f"{mean / work - 1:>9.1%}, {expected(work, interval, write, restart, days * DAY) / work - 1:>6.1%}")
        print(f"{days:>12} days  " + " ".join(cells) + f"{math.sqrt(2 * write * days * DAY) / 60:>10.0f} min")
    print(f"\nmembers apart, or all {MEMBERS} in step so that one failure sets all back; a node fails every 7 days")
    for interval in intervals:
        apart, _ = simulated(work, interval, write, restart, 7 * DAY)
        together, _ = simulated(work, interval, write, restart, 7 * DAY / MEMBERS)
        print(f"{interval / 60:>10.0f} min   apart {apart / work - 1:>6.1%}   in step {together / work - 1:>6.1%}")


def main() -> None:
    torch.set_num_threads(1)
    networks = [network("Inception-v3, 299 pixels", 1000, 299), network("Inception-v3, 64 pixels", 30, 64)]
    per_parameter = checkpoint_bytes_per_parameter()
    print_sizes(networks, per_parameter)
    print(f"a checkpoint holds {per_parameter:.1f} bytes per parameter")
    size = per_parameter * networks[0].parameters
    write, read = checkpoint_seconds(size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"a checkpoint of {size / 1e6:.0f} MB: written here in {write:.1f} s, read in {read:.1f} s; peak {peak:.0f} MB")
    work = print_days(networks[0])
    print_failures(work, max(write, 1.0))


if __name__ == "__main__":
    main()

"""Tiny ImageNet on three Ray nodes: images are read by workers, a node is killed midway, and members are the same.

`python -m benchmarks.tiny_imagenet_ray` needs the data set in the data home, and starts three Ray nodes on this machine.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.ray_kills import three_nodes
from deep_ensembles import Checkpoint, Ensemble, fit_ensemble
from deep_ensembles.execution.ray import Ray
from deep_ensembles.images import ImageFolder
from deep_ensembles.networks import convnet
from deep_ensembles.paper.datasets import data_home

CLASSES, MEMBERS, EPOCHS, SIZE = 10, 3, 2, 32
CHECKPOINT_SECONDS = 5.0


def images() -> ImageFolder:
    """The first classes of the set, at half their size."""
    path = data_home() / "tiny-imagenet" / "tiny-imagenet-subset.zip"
    known = ImageFolder(path, image_size=SIZE).classes
    return ImageFolder(path, classes=known[:CLASSES], image_size=SIZE, augment=True)


def trained(folder: Path, address: str) -> tuple[Ensemble, float]:
    """An ensemble of the images, and the seconds that it took."""
    build = partial(convnet, CLASSES, in_channels=3, image_size=SIZE, width=16)
    checkpoint = Checkpoint(folder / "state", every_seconds=CHECKPOINT_SECONDS)
    settings: dict[str, Any] = {"max_epochs": EPOCHS, "batch_size": 50, "random_state": 0, "standardize_inputs": False}
    settings |= {"n_members": MEMBERS, "checkpoint": checkpoint, "execution": Ray(address), "verbose": 1}
    start = time.perf_counter()
    found = fit_ensemble(build, images(), **settings)
    return found, time.perf_counter() - start


def kill_midway(cluster: Any, folder: Path) -> None:
    """Kill a node that works, some seconds after the first checkpoint was written."""
    while not list(folder.glob("state*")):
        time.sleep(0.05)
    time.sleep(CHECKPOINT_SECONDS)
    victim = next(node for node in cluster.list_all_nodes() if not node.head)
    cluster.remove_node(victim, allow_graceful=False)


def main() -> None:
    kills = "--calm" not in sys.argv
    data = images()
    print(f"{len(data)} images of {CLASSES} classes, {MEMBERS} members, {EPOCHS} epochs; workers are sent "
          f"{len(pickle.dumps(data)) / 1e3:.0f} kB of names, and read the images")  # fmt: skip
    with tempfile.TemporaryDirectory() as place, three_nodes() as cluster:
        folders = [Path(place, name) for name in ("calm", "killed")]
        for folder in folders:
            folder.mkdir()
        calm, seconds = trained(folders[0], cluster.address)
        sizes = [path.stat().st_size for path in folders[0].glob("state*")]
        print(f"undisturbed: {seconds:.0f} s; {len(sizes)} checkpoints of {max(sizes) / 1e6:.1f} MB at most", flush=True)
        if kills:
            threading.Thread(target=kill_midway, args=[cluster, folders[1]], daemon=True).start()
            killed, seconds = trained(folders[1], cluster.address)
            same = torch.equal(calm.members.parameters.flat, killed.members.parameters.flat)
            print(f"a node killed midway: {seconds:.0f} s, members {'equal' if same else 'DIFFER'}", flush=True)


if __name__ == "__main__":
    main()

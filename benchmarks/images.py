"""Image networks on two threads, beside the plain loop on two threads: 3 × 200 adversarially, and a VGG-style network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from benchmarks.made_data import classification
from benchmarks.measuring import Line, side_by_side, speedup
from benchmarks.plain_loop import adversarial, batch_norm_network, cross_entropy, train
from deep_ensembles import FastGradientSign, fit_ensemble, mlp
from deep_ensembles.networks import vgg


def wide_adversarial() -> list[Line]:
    """5 members of 3 × 200 units with batch norm, fast gradient sign, 40 steps of 100 rows with 784 inputs."""
    X, y = classification(4000, 784, 10)
    network = partial(mlp, 784, 10, (200, 200, 200), batch_norm=True)
    settings = {"n_members": 5, "max_epochs": 1, "batch_size": 100, "learning_rate": 0.001, "standardize_inputs": False}

    def ours() -> None:
        fit_ensemble(network, X, y, perturbation=FastGradientSign(0.01), random_state=0, **settings)

    def plain() -> None:
        torch.manual_seed(0)
        x, classes = torch.from_numpy(X), torch.from_numpy(y)
        loss = adversarial(cross_entropy, 0.01 * (x.amax(0) - x.amin(0)))
        for _ in range(5):
            train(batch_norm_network(784, 10), x, classes, loss, settings["max_epochs"], settings["learning_rate"])

    with _two_threads():
        return [speedup("wide_adversarial", side_by_side(ours, plain, repeats=7), wanted=1.5)]


def vgg_step() -> list[Line]:
    """2 members of the VGG-style network at a quarter of its width, 45 steps of 100 images of 32 × 32."""
    generator = np.random.default_rng(0)
    X, y = generator.random((1500, 3, 32, 32), dtype=np.float32), generator.integers(10, size=1500)
    network = partial(vgg, 10, width=0.25)
    settings = {"n_members": 2, "max_epochs": 3, "batch_size": 100, "learning_rate": 0.001, "standardize_inputs": False}

    def ours() -> None:
        fit_ensemble(network, X, y, random_state=0, **settings)

    def plain() -> None:
        torch.manual_seed(0)
        x, classes = torch.from_numpy(X), torch.from_numpy(y)
        for _ in range(2):
            train(network(), x, classes, cross_entropy, settings["max_epochs"], settings["learning_rate"])

    with _two_threads():
        return [speedup("vgg_step", side_by_side(ours, plain, repeats=7), wanted=1.0)]


@contextmanager
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""5 members of 3 × 200 hidden units with batch norm, 784 inputs and 10 classes, 20 steps, beside the plain loop."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.made_data import classification
from benchmarks.measuring import Line, side_by_side, speedup
from benchmarks.plain_loop import batch_norm_network, cross_entropy, train
from deep_ensembles import fit_ensemble, mlp


def wide_batch_norm() -> list[Line]:
    """2000 rows, 1 epoch of batches of 100; inputs as they are."""
    X, y = classification(2000, 784, 10)
    network = partial(mlp, 784, 10, (200, 200, 200), batch_norm=True)
    settings = {"n_members": 5, "max_epochs": 1, "batch_size": 100, "learning_rate": 0.001, "standardize_inputs": False}

    def ours() -> None:
        fit_ensemble(network, X, y, random_state=0, **settings)

    def plain() -> None:
        torch.manual_seed(0)
        x, classes = torch.from_numpy(X), torch.from_numpy(y)
        for _ in range(5):
            train(batch_norm_network(784, 10), x, classes, cross_entropy, epochs=1, learning_rate=0.001)

    return [speedup("wide_batch_norm", side_by_side(ours, plain, repeats=15), wanted=1.0)]

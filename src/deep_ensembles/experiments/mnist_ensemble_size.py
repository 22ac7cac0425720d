"""Figure 2 (a) and the appendix's MNIST figures: error, NLL and Brier score against the number of networks."""

from __future__ import annotations

from typing import Any

from deep_ensembles.experiments._classification import METHODS
from deep_ensembles.experiments._ensemble_size import ensemble_size
from deep_ensembles.experiments._experiment import Selection

MEMBERS = {"smoke": 2, "laptop": 15, "paper": 15}
EPOCHS = {"smoke": 1, "laptop": 20, "paper": 40}
ROWS = {"smoke": 1000, "laptop": None, "paper": None}
LEARNING_RATE = 0.003
WIDTH = {"convnet": 16}


def settings(selection: Selection, network: str) -> dict[str, Any]:
    """The settings of a cell."""
    return {
        "members": MEMBERS[selection.scale],
        "epochs": EPOCHS[selection.scale],
        "rows": ROWS[selection.scale],
        "learning_rate": LEARNING_RATE,
        "width": WIDTH.get(network),
    }


EXPERIMENT = ensemble_size(
    name="mnist_ensemble_size",
    makes="Figure 2 (a): MNIST against ensemble size, 3-layer MLP; appendix: 2-layer MLP, convnet",
    takes={"smoke": "seconds", "laptop": "30 minutes a network", "paper": "hours"},
    dataset="mnist",
    methods=METHODS,
    networks=("mlp-3", "mlp-2", "convnet"),
    settings=settings,
    only_at_paper_scale=("mlp-2", "convnet"),
)

"""Figure 2 (b): SVHN with a VGG-style network, scores against the number of networks."""

from __future__ import annotations

from typing import Any

from deep_ensembles.experiments._classification import METHODS
from deep_ensembles.experiments._ensemble_size import ensemble_size
from deep_ensembles.experiments._experiment import Selection

MEMBERS = {"smoke": 2, "laptop": 5, "paper": 15}
EPOCHS = {"smoke": 1, "laptop": 6, "paper": 60}
ROWS = {"smoke": 300, "laptop": None, "paper": None}
WIDTH = {"smoke": 0.0625, "laptop": 0.25, "paper": 1.0}
LEARNING_RATE = 0.001


def settings(selection: Selection, network: str) -> dict[str, Any]:
    """The settings of a cell."""
    return {
        "members": MEMBERS[selection.scale],
        "epochs": EPOCHS[selection.scale],
        "rows": ROWS[selection.scale],
        "width": WIDTH[selection.scale],
        "learning_rate": LEARNING_RATE,
    }


EXPERIMENT = ensemble_size(
    name="svhn_ensemble_size",
    makes="Figure 2 (b): SVHN against ensemble size, VGG-style network",
    takes={"smoke": "a minute", "laptop": "40 minutes", "paper": "days without a GPU"},
    dataset="svhn",
    methods=METHODS,
    networks=("vgg",),
    settings=settings,
)

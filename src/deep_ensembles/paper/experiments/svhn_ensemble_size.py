"""Figure 2 (b): SVHN with a VGG-style network, scores against the number of networks."""

from __future__ import annotations

from functools import partial
from typing import Any

from deep_ensembles.paper.experiments._classification import METHODS, train_images
from deep_ensembles.paper.experiments._ensemble_size import ensemble_cells, summarise_sizes
from deep_ensembles.paper.experiments._experiment import Experiment

SETTINGS: dict[str, dict[str, Any]] = {
    "smoke": {"members": 2, "epochs": 1, "rows": 300, "learning_rate": 0.001, "width": 0.0625},
    "laptop": {"members": 5, "epochs": 8, "learning_rate": 0.002, "width": 0.125},
    "paper": {"members": 15, "epochs": 60, "learning_rate": 0.001, "width": 1.0},
}

EXPERIMENT = Experiment(
    name="svhn_ensemble_size",
    makes="Figure 2 (b): SVHN against ensemble size, VGG-style network",
    takes={"smoke": "a minute", "laptop": "30 minutes", "paper": "days without a GPU"},
    datasets=("svhn",),
    methods=METHODS,
    networks=("vgg",),
    cells=partial(ensemble_cells, SETTINGS),
    run=train_images,
    summarise=partial(summarise_sizes, "svhn_ensemble_size"),
    takes_folders=True,
)

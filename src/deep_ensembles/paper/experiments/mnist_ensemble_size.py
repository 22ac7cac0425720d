"""Figure 2 (a) and the appendix's MNIST figures: error, NLL and Brier score against the number of networks."""

from __future__ import annotations

from functools import partial
from typing import Any

from deep_ensembles.paper.experiments._classification import METHODS, train_images
from deep_ensembles.paper.experiments._ensemble_size import ensemble_cells, summarise_sizes
from deep_ensembles.paper.experiments._experiment import Experiment

SETTINGS: dict[str, dict[str, Any]] = {
    "smoke": {"members": 2, "epochs": 1, "rows": 1000, "learning_rate": 0.003},
    "laptop": {"members": 15, "epochs": 20, "learning_rate": 0.003},
    "paper": {"members": 15, "epochs": 40, "learning_rate": 0.003},
}
# Two cores would train the convolutional networks for a day at the settings above.
CONVNET = {"laptop": {"members": 5, "epochs": 5, "rows": 20_000}}

EXPERIMENT = Experiment(
    name="mnist_ensemble_size",
    makes="Figure 2 (a): MNIST against ensemble size, 3-layer MLP; appendix: 2-layer MLP, convnet",
    takes={"smoke": "seconds", "laptop": "20 minutes a network", "paper": "hours"},
    datasets=("mnist",),
    methods=METHODS,
    networks=("mlp-3", "mlp-2", "convnet"),
    cells=partial(ensemble_cells, SETTINGS, by_network={"convnet": CONVNET}),
    run=train_images,
    summarise=partial(summarise_sizes, "mnist_ensemble_size"),
    only_at_paper_scale=("mlp-2", "convnet"),
    takes_folders=True,
)

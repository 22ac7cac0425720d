"""Figure 4 (a table): ImageNet with an Inception network, M = 1 … 10; here on Tiny-ImageNet, which is called by its name."""

from __future__ import annotations

from functools import partial
from typing import Any

from deep_ensembles.paper.experiments._classification import ENSEMBLE, train_images
from deep_ensembles.paper.experiments._ensemble_size import TITLES, ensemble_cells, summarise_sizes
from deep_ensembles.paper.experiments._experiment import Experiment

SETTINGS: dict[str, dict[str, Any]] = {
    "smoke": {"members": 2, "epochs": 1, "rows": 120, "learning_rate": 0.002, "width": 0.0625},
    "laptop": {"members": 10, "members_per_cell": 5, "epochs": 4, "learning_rate": 0.002, "width": 0.0625},
    # One network per cell, for a cluster; pictures of a folder such as ILSVRC-2012's at the size Inception was made for.
    "paper": {"members": 10, "members_per_cell": 1, "epochs": 60, "learning_rate": 0.002, "width": 1.0, "image_size": 299},
}
# On ILSVRC-2012; other images and other classes than Tiny-ImageNet's, so only the way the numbers go compares.
PAPER = {
    "error": [each / 100 for each in (22.166, 20.462, 19.709, 19.334, 19.104, 18.986, 18.860, 18.771, 18.728, 18.675)],
    "top_5_error": [each / 100 for each in (6.129, 5.274, 4.955, 4.723, 4.637, 4.532, 4.485, 4.430, 4.373, 4.364)],
    "nll": [0.959, 0.867, 0.836, 0.818, 0.809, 0.803, 0.797, 0.794, 0.791, 0.789],
    "brier": [each / 1000 for each in (0.317, 0.294, 0.286, 0.282, 0.280, 0.278, 0.277, 0.276, 0.276, 0.275)],
}

EXPERIMENT = Experiment(
    name="imagenet_ensemble_size",
    makes="Figure 4 (a table): ImageNet against ensemble size, Inception; here on Tiny-ImageNet at 64 pixels",
    takes={"smoke": "a minute", "laptop": "15 minutes", "paper": "days without a GPU"},
    datasets=("tiny-imagenet",),
    methods=(ENSEMBLE,),
    networks=("inception",),
    cells=partial(ensemble_cells, SETTINGS),
    run=train_images,
    summarise=partial(summarise_sizes, "imagenet_ensemble_size", metrics=tuple(TITLES), paper=PAPER),
    takes_folders=True,
)

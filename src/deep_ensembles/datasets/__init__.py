"""Data sets: name → `Dataset(inputs, targets, splits)`. One file per source."""

from deep_ensembles.datasets._catalogue import card, cards, load_dataset
from deep_ensembles.datasets._dataset import Card, Dataset, DatasetError, Original
from deep_ensembles.datasets._home import data_home
from deep_ensembles.datasets.toy_cubic import toy_cubic
from deep_ensembles.datasets.uci import uci

__all__ = [
    "Card",
    "Dataset",
    "DatasetError",
    "Original",
    "card",
    "cards",
    "data_home",
    "load_dataset",
    "toy_cubic",
    "uci",
]

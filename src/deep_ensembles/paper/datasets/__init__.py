"""Data sets: name → `Dataset(inputs, targets, splits)` or `ImageDataset`. One file per source; none needs torch."""

from deep_ensembles._pictures import DatasetError, class_groups
from deep_ensembles.paper.datasets._catalogue import card, cards, load_dataset
from deep_ensembles.paper.datasets._dataset import Card, Dataset, ImageDataset, Original, data_home
from deep_ensembles.paper.datasets.images import images
from deep_ensembles.paper.datasets.toy_cubic import toy_cubic
from deep_ensembles.paper.datasets.uci import uci

__all__ = [
    "Card", "Dataset", "DatasetError", "ImageDataset", "Original", "card", "cards", "class_groups", "data_home", "images",
    "load_dataset", "toy_cubic", "uci",
]  # fmt: skip

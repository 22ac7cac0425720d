"""Data sets: name → `Dataset(inputs, targets, splits)` or `ImageDataset`. One file per source."""

from deep_ensembles.datasets._catalogue import card, cards, load_dataset
from deep_ensembles.datasets._dataset import Card, Dataset, DatasetError, ImageDataset, Original
from deep_ensembles.datasets._home import data_home
from deep_ensembles.datasets.image_folder import ImageFolder, class_groups
from deep_ensembles.datasets.images import images
from deep_ensembles.datasets.toy_cubic import toy_cubic
from deep_ensembles.datasets.uci import uci

__all__ = [
    "Card",
    "Dataset",
    "DatasetError",
    "ImageDataset",
    "ImageFolder",
    "Original",
    "card",
    "cards",
    "class_groups",
    "data_home",
    "images",
    "load_dataset",
    "toy_cubic",
    "uci",
]

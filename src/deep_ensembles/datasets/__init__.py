"""Data sets: name → `Dataset(inputs, targets, splits)` or `ImageDataset`. One file per source.

`ImageFolder` is loaded when it is first used: it alone needs torch, which takes seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

from deep_ensembles.datasets._catalogue import card, cards, load_dataset
from deep_ensembles.datasets._class_folders import class_groups
from deep_ensembles.datasets._dataset import Card, Dataset, DatasetError, ImageDataset, Original
from deep_ensembles.datasets._home import data_home
from deep_ensembles.datasets.images import images
from deep_ensembles.datasets.toy_cubic import toy_cubic
from deep_ensembles.datasets.uci import uci

if TYPE_CHECKING:
    from deep_ensembles.datasets.image_folder import ImageFolder

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


def __getattr__(name: str) -> Any:
    if name == "ImageFolder":
        return importlib.import_module(f"{__name__}.image_folder").ImageFolder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Data sets: name → `Dataset(inputs, targets, splits)` or `ImageDataset`. One file per source; none needs torch."""

import os

from deep_ensembles._checks import require
from deep_ensembles.images import DatasetError
from deep_ensembles.paper.datasets._dataset import Card, Dataset, ImageDataset, Original, class_groups, data_home, file_sum
from deep_ensembles.paper.datasets.images import IMAGE_CARDS, images
from deep_ensembles.paper.datasets.toy_cubic import TOY_CARD, toy_cubic
from deep_ensembles.paper.datasets.uci import UCI_CARDS, uci

__all__ = [
    "Card", "Dataset", "DatasetError", "ImageDataset", "Original", "card", "cards", "class_groups", "data_home",
    "file_sum", "images", "load_dataset", "toy_cubic", "uci",
]  # fmt: skip

_CARDS = {known.name: known for known in (TOY_CARD, *UCI_CARDS, *IMAGE_CARDS)}


def cards() -> tuple[Card, ...]:
    """What is known of every data set, source by source."""
    return tuple(_CARDS.values())


def card(name: str) -> Card:
    """What is known of one data set.

    Example:
        >>> card("protein").rows, card("protein").splits, card("protein").hidden_units
        (45730, 5, 100)
    """
    require(name in _CARDS, "name", f"one of {', '.join(_CARDS)}", name)
    return _CARDS[name]


def load_dataset(name: str, home: str | os.PathLike[str] | None = None) -> Dataset | ImageDataset:
    """Any data set by name: a `Dataset` for tables, an `ImageDataset` for images.

    Arguments:
        name: see `cards()`, or `deep-ensembles data list`.
        home: the data home; see `data_home`.

    Example:
        >>> load_dataset("toy_cubic").inputs.shape
        (20, 1)
    """
    return card(name).load(data_home(home))

"""Every data set: finite numbers, shapes that fit, splits that are disjoint and hold every row; images with labels."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from _found import found, is_exported

from deep_ensembles.paper import datasets
from deep_ensembles.paper.datasets import Card, DatasetError, ImageDataset, load_dataset

every_source = pytest.mark.parametrize("source", found(datasets))
every_set = pytest.mark.parametrize("card", [pytest.param(card, id=card.name) for card in datasets.cards()])
every_table = pytest.mark.parametrize(
    "card", [pytest.param(each, id=each.name) for each in datasets.cards() if not each.shape]
)
every_image_set = pytest.mark.parametrize(
    "card", [pytest.param(each, id=each.name) for each in datasets.cards() if each.shape]
)
once = cache(load_dataset)  # to unpack images takes seconds


def loaded(card: Card, load: Any = load_dataset) -> Any:
    if not card.is_here(datasets.data_home()):
        pytest.skip(f"{card.name} is not in the data home; `deep-ensembles data fetch {card.name}` gets it")
    return load(card.name)


@every_source
def test_is_exported(source):
    assert is_exported(datasets, source)


@every_source
def test_sources_share_no_name(source):
    names = [card.name for card in datasets.cards()]
    assert len(set(names)) == len(names)


@every_table
def test_shapes_fit_the_card(card):
    dataset = loaded(card)
    assert dataset.name == card.name
    assert dataset.inputs.shape == (card.rows, card.features)
    assert dataset.targets.shape == (card.rows,)
    assert len(dataset.splits) == card.splits


@every_table
def test_numbers_are_finite(card):
    dataset = loaded(card)
    assert dataset.inputs.dtype.kind == dataset.targets.dtype.kind == "f"
    assert np.isfinite(dataset.inputs).all()
    assert np.isfinite(dataset.targets).all()
    assert np.ptp(dataset.targets) > 0


@every_table
def test_splits_hold_every_row_once(card):
    dataset = loaded(card)
    for train, test in dataset.splits:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(card.rows))
        assert len(train) > len(test)


@every_table
def test_splits_differ(card):
    tests = [tuple(sorted(test)) for _, test in loaded(card).splits]
    assert len(set(tests)) == len(tests)


@every_table
def test_loading_again_gives_the_same(card):
    one, two = loaded(card), loaded(card)
    np.testing.assert_array_equal(one.inputs, two.inputs)
    np.testing.assert_array_equal(one.targets, two.targets)


@every_set
def test_says_what_it_is_and_whose(card):
    assert card.description
    assert card.origin
    assert card.licence
    assert card.hidden_units >= 1


@every_set
def test_a_missing_set_names_the_command(card, tmp_path):
    if card.file is None:
        assert load_dataset(card.name, tmp_path).name == card.name
        return
    assert not card.is_here(tmp_path)
    with pytest.raises(DatasetError, match=re.escape(f"run: deep-ensembles data fetch {card.name}")):
        load_dataset(card.name, tmp_path)


@every_set
def test_can_be_fetched_or_needs_no_file(card):
    assert (card.file is None) == (card.convert is None) == (not card.originals)
    assert all(original.url.startswith("https://") for original in card.originals)
    assert len({original.file for original in card.originals}) == len(card.originals)
    sums = [original.checksum for original in card.originals if original.checksum is not None]
    assert all(re.fullmatch("[0-9a-f]{64}|md5:[0-9a-f]{32}", checksum) for checksum in sums)


@every_image_set
def test_images_fit_the_card(card):
    dataset = loaded(card, once)
    assert isinstance(dataset, ImageDataset)
    assert dataset.name == card.name
    total = 0
    for images, labels in dataset.parts.values():
        assert images.shape == (len(labels), *card.shape)
        assert images.dtype == np.uint8
        assert (images.min(), images.max()) == (0, 255)
        assert set(np.unique(labels)) == set(range(len(dataset.classes))), "every class is there"
        total += len(labels)
    assert (total == card.rows) == card.is_whole(datasets.data_home())


@every_image_set
def test_the_description_says_how_much_is_here(card):
    dataset = loaded(card, once)
    for part, word in (("train", "training"), ("test", "test")):
        found = re.search(rf"(\d+) of \d+ {word}", dataset.description)
        assert (int(found.group(1)) if found else 0) == (len(dataset.parts[part][1]) if part in dataset.parts else 0)
    assert card.origin in dataset.origin
    assert "read from " in dataset.origin

"""Every data set: finite numbers, shapes that fit, splits that are disjoint and hold every row."""

from __future__ import annotations

import re

import numpy as np
import pytest
from _found import found, is_exported

from deep_ensembles import datasets
from deep_ensembles.datasets import Card, Dataset, DatasetError, load_dataset

every_source = pytest.mark.parametrize("source", found(datasets))
every_set = pytest.mark.parametrize("card", [pytest.param(card, id=card.name) for card in datasets.cards()])


def loaded(card: Card) -> Dataset:
    if not card.is_here(datasets.data_home()):
        pytest.skip(f"{card.name} is not in the data home; `deep-ensembles data fetch {card.name}` gets it")
    return load_dataset(card.name)


@every_source
def test_is_exported(source):
    assert is_exported(datasets, source)


@every_source
def test_sources_share_no_name(source):
    names = [card.name for card in datasets.cards()]
    assert len(set(names)) == len(names)


@every_set
def test_shapes_fit_the_card(card):
    dataset = loaded(card)
    assert dataset.name == card.name
    assert dataset.inputs.shape == (card.rows, card.features)
    assert dataset.targets.shape == (card.rows,)
    assert len(dataset.splits) == card.splits
    assert dataset.feature_names is None or len(dataset.feature_names) == card.features


@every_set
def test_numbers_are_finite(card):
    dataset = loaded(card)
    assert dataset.inputs.dtype.kind == dataset.targets.dtype.kind == "f"
    assert np.isfinite(dataset.inputs).all()
    assert np.isfinite(dataset.targets).all()
    assert np.ptp(dataset.targets) > 0


@every_set
def test_splits_hold_every_row_once(card):
    dataset = loaded(card)
    for train, test in dataset.splits:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(card.rows))
        assert len(train) > len(test)


@every_set
def test_splits_differ(card):
    tests = [tuple(sorted(test)) for _, test in loaded(card).splits]
    assert len(set(tests)) == len(tests)


@every_set
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

"""Saved estimators: links, activations of the user's own, labels of any text."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from _processes import not_on_windows
from torch import nn

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, ModelFileError, load, mlp

X = np.random.default_rng(0).normal(size=(230, 8))
Y = X[:, 0] + X[:, 1] ** 2


@not_on_windows
def test_saving_through_a_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    model = DeepEnsembleRegressor(1, max_epochs=1, random_state=0).fit(X, Y)
    model.save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    model.fit(X, -Y).save(tmp_path / "link")
    np.testing.assert_array_equal(load(tmp_path / "real").predict(X), model.predict(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_an_activation_of_the_users_own(tmp_path: Path) -> None:
    model = DeepEnsembleRegressor(1, preset="paper", activation=nn.Mish, max_epochs=1, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"load\(path, network=factory\)"):
        load(tmp_path / "model")
    build = partial(mlp, activation=nn.Mish)
    back = load(tmp_path / "model", network=build)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.network is build


def test_a_label_that_is_no_text(tmp_path: Path) -> None:
    labels = np.array(["a", "\ud800"], dtype=object)[(X[:, 0] > 0).astype(int)]
    DeepEnsembleClassifier(1, max_epochs=1).fit(X, labels).save(tmp_path / "model")
    assert list(load(tmp_path / "model").classes_) == ["a", "\ud800"]

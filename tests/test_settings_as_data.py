"""Settings as plain data: what was described comes back, and no name in a file is ever imported."""

from __future__ import annotations

import builtins
import functools
import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deep_ensembles import RobustScaling
from deep_ensembles._splits import Bootstrap, Subsample
from deep_ensembles.heads import Normal
from deep_ensembles.networks import mlp
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.scoring import beta_nll, censored, log_score
from deep_ensembles.settings import NotSaved, describe, known_objects, restore
from deep_ensembles.training import Adam, AdamW, Checkpoint, Cosine

VALUES = [
    Normal(min_variance=1e-3),
    FastGradientSign(np.float32(0.25)),
    Cosine(0.1, final=0.2),
    Adam(beta1=0.8),
    AdamW(epsilon=1e-6),
    Bootstrap(),
    Subsample(0.5),
    RobustScaling(),
    RobustScaling(n_rows=7),
    torch.float64,
    NotSaved("their own"),
    pytest.param(censored(log_score), id="censored"),
    (1, (2.5, None), [True, "text"]),
    {"a": (1,), 2: {"tuple": [3]}, ("key",): {"name": "os.system"}},
]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=8,
)


def through_a_file(value):
    return restore(json.loads(json.dumps(describe(value))))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    assert through_a_file(value) == value
    assert type(through_a_file(value)) is type(value)


@given(value=plain)
def test_round_trip_of_plain_data(value):
    assert through_a_file(value) == value


@pytest.mark.parametrize("name", known_objects())
def test_round_trip_of_everything_known(name):
    assert describe(known_objects()[name]) == {"name": name}
    assert through_a_file(known_objects()[name]) is known_objects()[name]


def test_round_trip_of_partials():
    made = through_a_file(functools.partial(mlp, 3, 2, hidden_sizes=(4, 5), dtype=torch.float64))
    assert made.func is mlp
    assert made.args == (3, 2)
    assert made.keywords == {"hidden_sizes": (4, 5), "dtype": torch.float64}
    assert through_a_file(functools.partial(beta_nll, beta=1.0)).keywords == {"beta": 1.0}


def test_a_path_is_not_kept():
    for value in (Checkpoint(Path("state")), Path("state")):
        assert isinstance(through_a_file(value), NotSaved)


@pytest.mark.parametrize("value", [torch.bfloat16, torch.float16], ids=str)
def test_round_trip_of_other_dtypes(value):
    assert through_a_file(value) == value


def test_a_users_own_object_is_left_out_and_says_so():
    def my_rule(distribution, target):
        return target

    restored = through_a_file({"rule": my_rule})["rule"]
    assert isinstance(restored, NotSaved)
    with pytest.raises(TypeError, match="my_rule was not saved with the model"):
        restored(None, None)


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "scoring", "heads.__doc__", "scoring.log_score.F", "", None])
@pytest.mark.parametrize("more", [{}, {"arguments": {}}, {"partial": [], "keywords": {}}])
def test_unknown_names_are_refused(name, more):
    with pytest.raises(ValueError, match="which this version does not know"):
        restore({"name": name, **more})


def test_an_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="'system'"):
        restore({"dtype": "system"})


def test_nothing_is_imported_by_name(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"an import was tried: {args[:1]}")

    descriptions = [describe(value) for value in VALUES]
    monkeypatch.setattr(importlib, "import_module", refuse)
    monkeypatch.setattr(builtins, "__import__", refuse)
    restored = [restore(each) for each in descriptions]
    with pytest.raises(ValueError, match="does not know") as error:
        restore({"name": "antigravity", "arguments": {}})
    monkeypatch.undo()
    assert restored == VALUES
    assert "antigravity" in str(error.value)


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"name": "os.system"}, ValueError),
        ({"name": "scoring.crps"}, ValueError),
        ({"name": "scoring.log_score", "arguments": {}}, ValueError),
        ({"name": "scoring.log_score", "partial": [], "keywords": {}}, ValueError),
        ({"not saved": "their own"}, ValueError),
        ("log_score", TypeError),
    ],
)
def test_only_a_known_rule_stands_within_another(rule, error):
    with pytest.raises(error, match=r"described by plain values|a dataclass to have arguments|takes `log_score` alone"):
        restore({"name": "scoring.Censored", "arguments": {"rule": rule}})

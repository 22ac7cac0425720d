"""Several targets at once: a model of each in one folder, and what the commands make of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _commands import QUICK, done, refused

from deep_ensembles import load


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three targets, two of numbers and one of classes, and its model."""
    home, generator = tmp_path_factory.mktemp("targets"), np.random.default_rng(0)
    size = generator.normal(size=60)
    noise = 0.1 * generator.normal(size=(2, 60))
    frame = pd.DataFrame({"size": size, "price": size + noise[0], "mass": size**2 + noise[1]})
    frame.assign(kind=np.where(size > 0, "big", "small")).to_csv(home / "table.csv", index=False)
    targets = ["--target", "price, mass,kind", "--report", home / "fit.html"]
    done("fit", home / "table.csv", *targets, *QUICK, "--out", home / "model")
    return home


def test_each_target_has_a_model_that_does_not_see_the_others(home: Path) -> None:
    model = load(home / "model")
    assert [part.target.name for part in model.every] == ["price", "mass", "kind"]
    assert all(part.schema.names == ("size",) for part in model.every)
    predictions = model(pd.DataFrame({"size": [0.5, -0.5]}))
    assert list(predictions) == ["price", "mass", "kind"]
    assert predictions["kind"].probs.shape == (2, 2)
    model.save(home / "again")
    again = load(home / "again")
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(
        again(pd.DataFrame({"size": [1.0]}))["mass"].mean, model(pd.DataFrame({"size": [1.0]}))["mass"].mean
    )


def test_predictions_end_in_the_name_of_their_target(home: Path) -> None:
    done("predict", home / "model", home / "table.csv", "--out", home / "predictions.csv")
    found, table = pd.read_csv(home / "predictions.csv"), pd.read_csv(home / "table.csv")
    assert list(found.columns[:6]) == [
        f"{name}_price" for name in ("mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper")
    ]
    assert {"mean_mass", "label_kind", "p_big_kind", "p_small_kind"} < set(found.columns)
    np.testing.assert_allclose(found["mean_mass"], load(home / "model")(table)["mass"].mean, rtol=1e-6, atol=1e-6)
    said = done("predict", home / "model", "--row", "size=1").output
    assert "mean_price" in said
    assert "label_kind" in said


def test_every_target_is_judged_shown_and_explained(home: Path) -> None:
    said = done("evaluate", home / "model", home / "table.csv", "--report", home / "page.html").output
    for name in ("price", "mass", "kind"):
        assert f"Scores of 60 rows: {name}" in said
        assert name in (home / f"page-{name}.html").read_text(encoding="utf-8")
        assert (home / f"fit-{name}.html").exists()
    assert list(json.loads(done("evaluate", home / "model", home / "table.csv", "--json").output)) == [
        "price",
        "mass",
        "kind",
    ]
    assert list(json.loads(done("explain", home / "model", home / "table.csv", "--json").output)) == [
        "price",
        "mass",
        "kind",
    ]
    shown = json.loads(done("show", home / "model", "--json").output)
    assert [shown["target"], *(other["target"] for other in shown["beside"])] == ["price", "mass", "kind"]
    assert "predicts       kind (classification)" in done("show", home / "model").output


def test_a_column_may_have_a_comma_in_its_name(home: Path) -> None:
    table = pd.DataFrame({"size": np.arange(30.0), "a,b": np.arange(30.0) ** 2})
    table.to_csv(home / "comma.csv", index=False)
    done("fit", home / "comma.csv", "--target", "a,b", *QUICK, "--out", home / "comma")
    assert [part.target.name for part in load(home / "comma").every] == ["a,b"]


def test_what_cannot_be(home: Path) -> None:
    assert "no column `pirce`" in refused("fit", home / "table.csv", "--target", "pirce,mass", *QUICK, "--out", home / "no")
    assert "compare takes one target at a time" in refused("compare", home / "table.csv", "--target", "price,mass")
    config = home / "again" / "config.json"
    load(home / "model").save(home / "again")
    data = json.loads(config.read_text(encoding="utf-8"))
    data["beside"][0]["table"]["target"]["task"] = "classification"
    config.write_text(json.dumps(data), encoding="utf-8")
    assert "again" in refused("predict", home / "again", home / "table.csv", "--out", home / "p.csv")

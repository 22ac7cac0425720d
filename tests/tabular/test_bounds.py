"""Bounds that a user names: predictions stay inside, in files and scores, and nothing gets worse by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from _made_tables import QUICK, quiet, read
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch.distributions import Normal, Poisson, StudentT

from deep_ensembles import load
from deep_ensembles._files import ModelFileError
from deep_ensembles.columns import TableError
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Conformal, Isotonic
from deep_ensembles.scoring import crps, log_score
from deep_ensembles.tabular import TableSettings, compare_table, evaluate_table, fit_table, predict_table, read_settings
from deep_ensembles.tabular.head import Bounds

LOC = torch.tensor([[-2.0, 0.1, 0.5, 3.0], [-1.0, 0.3, 0.6, 2.0]], dtype=torch.float64)
PREDICTIONS = {
    "normals": Mixture(Normal(LOC, torch.full_like(LOC, 0.7))),
    "heavy tails": Mixture(StudentT(torch.full_like(LOC, 2.5), LOC, torch.full_like(LOC, 0.7))),
    "recalibrated": Isotonic((0.0, 0.3, 1.0), (0.0, 0.5, 1.0))(Mixture(Normal(LOC, torch.full_like(LOC, 0.7)))),
}


@pytest.mark.parametrize(("text", "low", "high"), [("0,", 0, np.inf), (",1e3", -np.inf, 1000), (" -1 , 2.5", -1, 2.5)])
def test_bounds_are_read_from_text_and_written_as_such(text: str, low: float, high: float) -> None:
    assert Bounds.named(text) == Bounds(low, high)
    assert Bounds.named(str(Bounds(low, high))) == Bounds(low, high)


@pytest.mark.parametrize("text", ["", ",", "1", "1,2,3", "a,b", "2,1", "1,1", "nan,nan", 3])
def test_what_are_no_bounds_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="bounds"):
        TableSettings(target="y", bounds=text)


@pytest.mark.parametrize("name", list(PREDICTIONS))
@pytest.mark.parametrize("bounds", [Bounds(0.0), Bounds(0.0, 1.0), Bounds(high=1.0)], ids=str)
def test_quantiles_and_mean_are_inside_and_no_score_is_worse(name: str, bounds: Bounds) -> None:
    before, target = PREDICTIONS[name], torch.tensor([0.0, 0.2, 0.9, 1.0], dtype=torch.float64)
    after = bounds(before)
    levels = torch.linspace(0.01, 0.99, 21, dtype=torch.float64)[:, None]
    for values in (after.icdf(levels), after.mean, after.sample((50,))):
        assert bool(((values >= bounds.low) & (values <= bounds.high)).all())
    assert bool(((after.mean - target).abs() <= (before.mean - target).abs()).all())
    assert bool((crps(after, target) <= crps(before, target) + 1e-9).all())
    torch.testing.assert_close(log_score(after, target), log_score(before, target))
    low, high = (after.icdf(torch.tensor(level)) for level in (0.05, 0.95))
    level = after.cdf(target)
    assert torch.equal((target >= low) & (target <= high), (level >= 0.05) & (level <= 0.95))
    held = (target >= before.icdf(torch.tensor(0.05))) & (target <= before.icdf(torch.tensor(0.95)))
    assert bool((~held | ((target >= low) & (target <= high))).all())
    torch.testing.assert_close(after[1:].mean, after.mean[1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(PREDICTIONS))
def test_the_crps_is_the_integral_between_the_bounds(name: str) -> None:
    before, target = PREDICTIONS[name], torch.tensor([0.0, 0.2, 0.9, 1.0], dtype=torch.float64)
    score = crps(Bounds(0.0, 1.0)(before), target)
    for row, truth in enumerate(target.tolist()):

        def squared(z: float, row: int = row, truth: float = truth) -> float:
            return float((before[row : row + 1].cdf(torch.tensor([z], dtype=torch.float64)) - float(truth <= z)) ** 2)

        parts = [quad(squared, *ends)[0] for ends in ((0, truth), (truth, 1)) if ends[0] < ends[1]]
        assert float(score[row]) == pytest.approx(sum(parts), abs=1e-3)


@given(st.floats(-5, 5), st.floats(0.1, 3), st.floats(-2, 2))
def test_conformal_intervals_keep_their_promise(mean: float, scale: float, truth: float) -> None:
    prediction = Conformal((0.1, 0.2, 0.3, 0.4))(Normal(torch.tensor([mean]), torch.tensor([scale])))
    bounded = Bounds(-2.0, 2.0)(prediction)
    ends = [[each.icdf(torch.tensor(level)) for level in (0.2, 0.8)] for each in (prediction, bounded)]
    held, still = ((low <= truth) & (truth <= high) for low, high in ends)
    assert not held or still


def test_counts_have_what_was_outside_on_their_bounds() -> None:
    bounded = Bounds(1.0, 4.0)(Mixture(Poisson(torch.tensor([[2.0], [3.0]], dtype=torch.float64))))
    whole = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None]
    assert float(bounded.log_prob(whole).exp().sum()) == pytest.approx(1)
    assert bounded.cdf(torch.tensor([4.0])).tolist() == [1.0]
    assert bounded.cdf(torch.tensor([0.0])).tolist() == [0.0]
    torch.testing.assert_close(bounded.cdf(whole)[:, 0], bounded.log_prob(whole).exp().cumsum(0)[:, 0])


def made(folder: Path, n: int = 200) -> Path:
    r = np.random.default_rng(0)
    x = r.normal(size=n)
    frame = pd.DataFrame({"x": x, "share": np.clip(0.5 + 0.4 * x + 0.2 * r.normal(size=n), 0, 1)})
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


@pytest.mark.parametrize("recalibration", ["auto", "conformal"])
def test_a_model_and_its_files_stay_inside(tmp_path: Path, recalibration: str) -> None:
    data = made(tmp_path)
    settings = TableSettings(target="share", bounds="0,1", recalibration=recalibration, **{**QUICK, "max_epochs": 20})
    assert 'bounds = "0,1"' in settings.text()
    fitted = fit_table(data, settings, log=quiet)
    fitted.model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    predict_table(model, data, tmp_path / "p.csv", quantiles=(0.01, 0.5, 0.99))
    table = read(tmp_path / "p.csv").to_pandas()
    names = ["mean", "lower", "upper", "q0.01", "q0.5", "q0.99"]
    assert table[names].to_numpy().min() == 0
    assert table[names].to_numpy().max() == 1
    np.testing.assert_allclose(table["std"] ** 2, table["aleatoric_std"] ** 2 + table["epistemic_std"] ** 2, rtol=1e-5)
    prediction = model(pd.read_csv(data))
    np.testing.assert_allclose(prediction.icdf(torch.tensor(0.05)).numpy(), table["lower"], atol=1e-6)
    evaluation = evaluate_table(model, data).evaluation
    assert evaluation.about["Bounds"].startswith("0,1")
    assert fitted.evaluation.score("CRPS").ensemble > 0
    free = fit_table(data, TableSettings(**{**vars(settings), "bounds": None, "task": "regression"}), log=quiet)
    for score in ("RMSE", "CRPS"):
        assert fitted.evaluation.score(score).ensemble <= free.evaluation.score(score).ensemble
    assert fitted.evaluation.score("NLL").ensemble == pytest.approx(free.evaluation.score("NLL").ensemble)


def test_settings_with_bounds_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(TableSettings(target="y", bounds=",7").text(), encoding="utf-8")
    assert TableSettings(**read_settings(tmp_path / "settings.toml")).chosen_bounds == Bounds(high=7.0)


def test_a_target_outside_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"`share` must be within the bounds '0.1,', but is 0 in row \d+"):
        fit_table(made(tmp_path), TableSettings(target="share", bounds="0.1,"), log=quiet)
    with pytest.raises(TableError, match="bounds 0, are for regression, but the task is classification"):
        TableSettings(target="share", bounds="0,", task="classification")
    frame = pd.DataFrame({"x": np.arange(40.0), "n": [0, 1, 2, 3] * 10, "word": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "n.csv", index=False)
    with pytest.raises(TableError, match="the bounds '0,' need numbers, but `word` is 'a' in row 1; leave"):
        fit_table(tmp_path / "n.csv", TableSettings(target="word", bounds="0,"), log=quiet)
    with pytest.raises(ValueError, match="`bounds` must be whole numbers for counts"):
        fit_table(tmp_path / "n.csv", TableSettings(target="n", bounds="0,3.5", head="poisson"), log=quiet)


def test_whole_numbers_with_bounds_are_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0) % 7, "n": [0, 1, 2, 3] * 15})
    frame.to_csv(tmp_path / "n.csv", index=False)
    fitted = fit_table(tmp_path / "n.csv", TableSettings(target="n", bounds="0,3", **QUICK), log=quiet)
    assert fitted.model.target.task == "regression"


def test_compare_bounds_every_method(tmp_path: Path) -> None:
    data, quick = made(tmp_path, 80), {**QUICK, "target": "share", "task": "regression"}
    bounded = compare_table(data, TableSettings(**quick, bounds="0,1"), 2, log=quiet)
    free = compare_table(data, TableSettings(**quick), 2, log=quiet)
    for score in ("RMSE (lower is better)", "CRPS (lower is better)"):
        for method, values in bounded.scores[score].items():
            assert np.all(np.array(values) <= np.array(free.scores[score][method]) + 1e-9)


def test_a_model_file_with_nonsense_for_bounds_is_refused(tmp_path: Path) -> None:
    fitted = fit_table(made(tmp_path, 60), TableSettings(target="share", bounds="0,1", **QUICK), log=quiet)
    for bounds in ("1,0", "x", [1], {"a": 1}):
        facts: Any = json.loads(json.dumps(dict(fitted.model.facts)))
        facts["settings"]["bounds"] = bounds
        type(fitted.model)(fitted.model.schema, fitted.model.target, fitted.model.ensemble, facts).save(tmp_path / "bad")
        with pytest.raises(ModelFileError):
            load(tmp_path / "bad")

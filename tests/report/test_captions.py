"""Every figure's sentence against the numbers of the page: recomputed from curves and scores, whatever the data."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.distributions import Categorical, LogNormal, Normal

from deep_ensembles.mixture import Mixture
from deep_ensembles.report import Batch, Evaluation, Report, RowFacts, evaluate, first_member
from deep_ensembles.report.charts import evaluation_charts
from deep_ensembles.report.rows import MIN_ROWS
from deep_ensembles.report.words import level, number, percent

made = settings(max_examples=25, deadline=None)
sizes, seeds = st.integers(20, 240), st.integers(0, 10**6)


def figures(evaluation: Evaluation) -> dict[str, str]:
    """The caption of each figure, as a reader sees it."""
    html = Report(evaluation).html
    found = re.findall(r'<figure id="([a-z]+)".*?<figcaption>(.*?)</figcaption>', html, re.DOTALL)
    return {name: re.sub(r"<[^>]+>", "", text).replace("&#39;", "'").replace("&lt;", "<") for name, text in found}


def told(evaluation: Evaluation) -> dict[str, str]:
    """Captions of figures that are all there, each beginning with its verdict."""
    captions = figures(evaluation)
    assert set(evaluation_charts(evaluation)) <= set(captions)
    for name in evaluation_charts(evaluation):
        if name in evaluation.verdicts:
            assert captions[name].startswith(evaluation.verdicts[name])
    return captions


@made
@given(sizes, seeds, st.floats(0, 2), st.sampled_from([0.2, 1.0, 5.0]))
def test_captions_of_numbers(n: int, seed: int, skill: float, stated: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    means = torch.from_numpy(skill * x + 0.3 * rng.normal(size=(3, n)))
    mixture = Mixture(Normal(means, torch.from_numpy(stated * rng.uniform(0.5, 2, n)).expand(3, -1)))
    facts = RowFacts("mass", times=np.arange(n), unit="kg")
    found = evaluate(Batch(mixture, x + rng.normal(size=n), first_member(mixture)), facts=facts)
    captions, rows = told(found), {name: np.array(values) for name, values in found.curves["rows"].items()}
    inside = found.score("90\u202f% coverage").ensemble
    assert f"intervals hold {percent(inside)} of the rows" in captions["calibration"]
    assert ("too narrow." in found.verdicts["calibration"]) <= (inside < 0.9)
    assert ("too wide." in found.verdicts["calibration"]) <= (inside > 0.9)
    outside = ((rows["actual"] < rows["low"]) | (rows["actual"] > rows["high"])).sum()
    assert captions["rows"].startswith(f"{outside} of {n} rows lie outside their {level(0.9)} interval.")
    assert captions["levels"].startswith(f"{percent((rows['actual'] < rows['mean']).mean())} of the targets lie below")
    errors = rows["mean"] - rows["actual"]
    assert (
        f"Predictions are {number(abs(errors.mean()), 3)} too {'high' if errors.mean() > 0 else 'low'}" in captions["levels"]
    )
    p = stats.ttest_1samp(errors, 0).pvalue
    assert 0.04 < p < 0.06 or ("beyond chance" in found.verdicts["levels"]) == (p < 0.05)
    ends = [number(end, 3) for end in np.quantile(rows["mean"], [0.05, 0.95])]
    assert f"predictions are {ends[0]} to {ends[1]}" in captions["target"]
    parts = [np.square(rows[name]).sum() for name in ("epistemic", "aleatoric")]
    assert captions["parts"].startswith(f"{percent(parts[0] / sum(parts))} of the predicted variance")
    assert "none is seen" not in captions["parts"]
    alone = evaluate(Batch(first_member(mixture), x, None)).verdicts["parts"]
    assert alone.startswith("0.0\u202f%")
    assert alone.endswith("Each row was judged by one of them: none is seen.")
    correlation = found.score("Rank correlation").ensemble
    assert f"is {number(correlation, 2)}:" in captions["error"]
    assert ("worse ones" in found.verdicts["error"]) == (correlation < -2 / (n - 1) ** 0.5)
    assert ("chance" in found.verdicts["error"]) == (correlation <= 2 / (n - 1) ** 0.5) == ("surest of are" in trust(found))
    labels = re.findall(r'<text class="label"[^>]*>([^<]*)</text>', Report(found).html)
    measures = [f"{name} standard deviation, in kg" for name in ("predicted", "aleatoric", "epistemic")]
    assert {"mass, in kg", "actual mass, in kg", *measures} <= set(labels)


def trust(found: Evaluation) -> str:
    return found.verdicts.get("trust", "")


@made
@given(sizes, seeds, st.floats(0, 3), st.integers(2, 4))
def test_captions_of_classes(n: int, seed: int, skill: float, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(3, n, n_classes)) * skill
    target = rng.integers(n_classes, size=n)
    logits[:, np.arange(n), target] += skill
    mixture = Mixture(Categorical(logits=torch.from_numpy(logits)))
    names = [f"class {i}" for i in range(n_classes)]
    found = evaluate((mixture, target), constant=Categorical(torch.ones(n_classes)), labels=names)
    captions, curves = told(found), found.curves
    matrix: Any = np.array(list(curves["matrix"].values()))
    assert found.score("Accuracy").ensemble == np.trace(matrix) / n
    assert f"and is in {percent(np.trace(matrix) / n)}:" in captions["reliability"]
    first = curves["target"]["label"][0]
    there, guessed = percent(matrix[first].sum() / n), percent(matrix[:, first].sum() / n)
    assert captions["target"].startswith(f"class {first} is there in {there} of the rows and predicted in {guessed}.")
    off = matrix - np.diag(np.diag(matrix))
    if off.max():
        assert re.search(rf"taken for class \d, in {off.max()} row", captions["matrix"])
    if "accuracy" in found.verdicts:
        place = curves["accuracy"]["threshold"].index(0.9)
        shares = percent(curves["accuracy"]["kept"][place]), percent(curves["accuracy"]["accuracy"][place])
        assert f"in {shares[0]} of the rows, it is right in {shares[1]}." in captions["accuracy"]
    if "roc" in curves:
        area = np.trapezoid(curves["roc"]["found"], curves["roc"]["false"])
        assert abs(area - found.score("AUROC").ensemble) < 0.05
        assert captions["roc"].startswith(f"In {percent(found.score('AUROC').ensemble)} of pairs")
        assert f"{percent(found.score('Average precision').ensemble)}; at random" in captions["precision"]
    if "error" in found.verdicts:
        assert captions["error"].startswith(f"In {percent(found.score('Error detection').ensemble)} of pairs")
        assert ("chance" in found.verdicts["error"]) == ("surest of are" in trust(found))


@made
@given(st.integers(40, 240), seeds, st.floats(0.1, 1.5), st.floats(-1, 1))
def test_captions_of_times(n: int, seed: int, noise: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    latent, end = np.exp(0.8 * x + 0.4 * rng.normal(size=n)), rng.uniform(0.1, 4.0, size=n)
    pairs = np.empty(n, dtype=[("event", bool), ("time", float)])
    pairs["event"], pairs["time"] = latent <= end, np.minimum(latent, end)
    places = torch.from_numpy(0.8 * x + shift).expand(2, -1)
    mixture = Mixture(LogNormal(places, torch.full_like(places, noise)))
    found = evaluate(Batch(mixture, pairs, first_member(mixture)))
    captions, calibration, n_events = told(found), found.verdicts["calibration"], int(pairs["event"].sum())
    assert (f"{n_events} events are too few" in calibration) == (n_events < MIN_ROWS)
    if n_events < MIN_ROWS:
        return
    levels, shares = (found.curves["calibration"][name] for name in ("level", "ensemble"))
    drawn = {round(aim, 2): share for aim, share in zip(levels, shares, strict=True) if share is not None}
    told_of = re.search(r"([\d.]+) % of the times lie below", calibration.replace("\u202f", " "))
    if told_of:
        assert float(told_of[1]) == pytest.approx(100 * drawn[0.5], abs=0.5)
        assert ("come sooner than predicted" in calibration) <= (drawn[0.5] > 0.5)
        assert ("come later than predicted" in calibration) <= (drawn[0.5] < 0.5)
    if "brier" in found.verdicts:
        score = found.score("Integrated Brier score")
        reference, error = re.findall(r"these rows, ([\d.e-]+) \(difference ± ([\d.e-]+)\)", captions["brier"])[0]
        assert f"score, {number(score.ensemble)}, is " in captions["brier"]
        leads = (score.ensemble - float(reference)) / float(error)  # in standard errors, rounded as they are told
        assert ("is lower than" in captions["brier"]) <= (leads < -1.8)
        assert ("is higher than" in captions["brier"]) <= (leads > 1.8)
        assert ("beyond chance" in captions["brier"]) <= (abs(leads) < 2.2)

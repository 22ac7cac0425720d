"""Five lines that follow from the numbers of the page; two classes as scikit-learn ranks them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve
from torch.distributions import Categorical, Normal

from deep_ensembles.mixture import Mixture
from deep_ensembles.report import Batch, Evaluation, RowFacts, evaluate, first_member
from deep_ensembles.report.page import Report
from deep_ensembles.report.segments import grouped
from deep_ensembles.report.summary import findings
from deep_ensembles.report.words import count, number, percent


def two_classes(n: int = 800, seed: int = 0, skill: float = 1.5, offset: float = -3.0, **others: Any) -> Evaluation:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    truth = (rng.uniform(size=n) < 1 / (1 + np.exp(-skill * x - offset))).astype(int)
    logits = np.stack([np.zeros((3, n)), skill * x + offset + 0.3 * rng.normal(size=(3, n)).round(1)], -1)
    mixture = Mixture(Categorical(logits=torch.from_numpy(logits)))
    known = {"labels": ["no", "yes"], "columns": {"x": x, "side": np.where(x > 0, "right", "left")}}
    return evaluate(Batch(mixture, truth, first_member(mixture)), **known, **others)


@pytest.mark.parametrize("rare", [0, 1])
def test_a_rare_class_is_ranked_as_scikit_learn_does(rare: int) -> None:
    rng = np.random.default_rng(1)
    truth = (rng.uniform(size=600) < 0.08).astype(int)
    truth = truth if rare else 1 - truth
    logits = np.stack([np.zeros((2, 600)), (truth + rng.normal(size=(2, 600))).round(1)], -1)  # with ties
    mixture = Mixture(Categorical(logits=torch.from_numpy(logits)))
    found = evaluate((mixture, truth), constant=Categorical(torch.tensor([0.9, 0.1] if rare else [0.1, 0.9])))
    positive, score = truth == rare, mixture.probs[:, rare].numpy()
    assert found.score("AUROC").ensemble == pytest.approx(roc_auc_score(positive, score), abs=1e-12)
    assert found.score("Average precision").ensemble == pytest.approx(average_precision_score(positive, score), abs=1e-12)
    assert found.score("AUROC").constant == 0.5
    assert found.score("Average precision").constant == pytest.approx(positive.mean())
    exact = {
        (round(a, 9), round(b, 9)) for a, b in zip(*roc_curve(positive, score, drop_intermediate=False)[:2], strict=True)
    }
    drawn = found.curves["roc"]
    assert {(round(a, 9), round(b, 9)) for a, b in zip(drawn["false"], drawn["found"], strict=True)} <= exact
    precision, recall, _ = precision_recall_curve(positive, score)
    exact = {(round(a, 9), round(b, 9)) for a, b in zip(recall, precision, strict=True)}
    drawn = found.curves["precision"]
    assert {(round(a, 9), round(b, 9)) for a, b in zip(drawn["recall"], drawn["precision"], strict=True)} <= exact


def test_the_error_of_the_area_is_what_samples_show() -> None:
    scores = [
        two_classes(400, seed, offset=-1.0, constant=Categorical(torch.tensor([0.7, 0.3]))).score("AUROC")
        for seed in range(25)
    ]
    leads, errors = (np.array([getattr(score, name) for score in scores], float) for name in ("lead", "lead_error"))
    assert errors.mean() == pytest.approx(leads.std(ddof=1), rel=0.4)


def test_a_model_that_ranks_well_is_not_called_no_better_than_a_constant() -> None:
    found = two_classes(constant=Categorical(torch.tensor([0.93, 0.07])))
    assert "better than a constant" in found.verdicts["constant"]
    assert "AUROC" in found.verdicts["constant"]


def test_few_rows_that_are_ranked_well_are_better_than_a_guess() -> None:
    """Though the likelihood alone, 1.8 errors lower, would leave it open."""
    rng = np.random.default_rng(1)
    truth = np.zeros(400, int)
    truth[:12] = 1
    chance = 0.039 * np.exp(1.0 * truth + 0.8 * rng.normal(size=400))
    mixture = Mixture(Categorical(probs=torch.from_numpy(np.stack([1 - chance, chance], -1)[None])))
    found = evaluate((mixture, truth), constant=Categorical(torch.tensor([0.97, 0.03])), labels=["no", "yes"])
    nll, area = found.score("NLL"), found.score("AUROC")
    assert area.ensemble > 0.75
    assert nll.lead is not None
    assert nll.lead_error is not None
    assert -1.9 < nll.lead / nll.lead_error < -1.5
    assert "It is better than a constant prediction: its AUROC is" in found.verdicts["constant"]
    assert "It is better than the same guess for every row" in findings(found)[0].text


def test_no_threshold_is_recommended_where_the_surest_are_no_better() -> None:
    rng = np.random.default_rng(0)
    blind = Mixture(Normal(torch.zeros(1, 400), torch.from_numpy(rng.uniform(1, 2, (1, 400)))))
    unsure = Mixture(Categorical(logits=torch.from_numpy(2 * rng.normal(size=(1, 400, 3)))))
    for found in (evaluate((blind, rng.normal(size=400))), evaluate((unsure, rng.integers(3, size=400)))):
        assert len(found.thresholds) == 1
        sentence = "No threshold is recommended: the predictions that it is surest of are no better than the others"
        assert sentence in found.verdicts["trust"]
        assert any(line.text.startswith(sentence) and line.place == "trust" for line in findings(found))
        assert sentence in Report(found).html
        assert "Trust predictions whose" not in Report(found).html


def test_a_rare_class_that_is_never_predicted_is_told_and_no_threshold_of_the_other_is_recommended() -> None:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0, 0.45, 800) ** 2
    mixture = Mixture(Categorical(probs=torch.from_numpy(np.stack([1 - chance, chance], -1)[None])))
    found = evaluate((mixture, (rng.uniform(size=800) < chance).astype(int)), labels=["no", "yes"])
    assert len(found.thresholds) == 1
    assert found.verdicts["trust"] == "No threshold is recommended: each keeps only predictions of no."
    assert "It never predicts `yes`: its probability is above one half in no row" in found.summary
    assert "It never predicts" in findings(found)[0].text
    often = two_classes(offset=0.0)
    assert len(often.thresholds) > 1
    assert "never" not in often.summary


made = settings(max_examples=15, deadline=None)


@made
@given(st.integers(2, 500), st.integers(0, 10**6), st.floats(0, 3), st.floats(-4, 1))
def test_lines_of_two_classes_follow_from_the_page(n: int, seed: int, skill: float, offset: float) -> None:
    check(two_classes(n, seed, skill, offset, constant=Categorical(torch.tensor([0.9, 0.1]))))


@made
@given(st.integers(2, 500), st.integers(0, 10**6), st.floats(0, 2), st.sampled_from([0.1, 1.0, 5.0]), st.booleans())
def test_lines_of_numbers_follow_from_the_page(n: int, seed: int, skill: float, stated: float, drifted: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    mixture = Mixture(
        Normal(torch.from_numpy(skill * x + 0.1 * rng.normal(size=(3, n))), torch.full((3, n), stated).double())
    )
    groups, before = grouped("x", np.concatenate([rng.normal(size=500), x + drifted])), np.zeros(0)
    assert groups is not None
    codes = np.asarray(groups.codes)
    here, before = (np.bincount(part, minlength=len(groups.here)) for part in (codes[500:], codes[:500]))
    facts = RowFacts("y", [groups._replace(here=here, codes=codes[500:], trained=before)], np.arange(n), np.arange(n) + 1)
    check(evaluate((mixture, x + rng.normal(size=n)), constant=Normal(torch.tensor(0.0), torch.tensor(1.5)), facts=facts))


def check(found: Evaluation) -> None:
    """Each line's words against the numbers, and its link against the page."""
    lines, html = findings(found), Report(found).html
    assert 2 <= len(lines) <= 5
    for line in lines:
        assert f'id="{line.place}"' in html
        assert not re.search(r"\bnan\b|None|\{", line.text)
    told = " ".join(line.text for line in lines)
    ways = {lead.clear(found.n_rows) for lead in found.leads}
    is_odd = "Its probabilities are better than the same guess" in told
    assert (is_odd or "It is better than the same guess" in told) == (ways & {-1, 1} == {-1})
    if is_odd:
        assert found.scores[0].ensemble <= found.scores[0].constant
    assert ("It is worse than the same guess" in told) == (ways & {-1, 1} == {1})
    if found.task == "numbers":
        assert f"off by {number(found.score('MAE').ensemble, 3)} on average" in told
    if found.segments is not None and found.segments.clear:
        worst = found.segments.worst[0]
        assert worst.error == max(each.error for each in found.segments.worst if each.is_clear)
        assert worst.error >= 1.1 * worst.elsewhere
        assert worst.p_value < 0.05
    if found.drifts is not None:
        assert ("No column of" in told) == (found.drifts.clear == 0)
        assert ("changed much" in told) == (found.drifts.large > 0)
    if len(found.thresholds) > 1:
        kept = next(line for line in found.thresholds if f"keeps the {count(line.rows)} surest predictions" in told)
        assert (kept.reached > found.thresholds[0].reached) == (found.task == "classes")
        assert "chance" not in found.verdicts["error"]
        assert (percent(kept.reached) if found.task == "classes" else number(kept.reached, 3)) in told


def test_a_change_over_time_is_told() -> None:
    rng = np.random.default_rng(0)
    times = np.arange(300) + np.datetime64("2024-01-01", "s")
    actual = rng.normal(size=300) + np.where(np.arange(300) > 200, 4.0, 0.0)
    mixture = Mixture(Normal(torch.zeros(1, 300).double(), torch.ones(1, 300).double()))
    order = rng.permutation(300)
    found = evaluate((mixture, actual[order]), facts=RowFacts("y", [], times[order]))
    assert len(found.curves["time"]["mean"]) == 10
    assert found.curves["time"]["mean"][-1] == pytest.approx(-actual[270:].mean())
    assert "it has changed beyond chance" in found.verdicts["time"]
    assert any(line.place == "time" for line in findings(found))
    steady = evaluate((mixture, rng.normal(size=300)), facts=RowFacts("y", [], times))
    assert "no more than chance explains" in steady.verdicts["time"]
    tied = np.where(np.arange(300) < 220, times[0], times)
    assert "time" not in evaluate((mixture, actual), facts=RowFacts("y", [], tied)).verdicts

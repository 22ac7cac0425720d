"""No sentence says what the numbers beside it do not."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Normal

from deep_ensembles.mixture import Mixture
from deep_ensembles.report import evaluate
from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.page import Report
from deep_ensembles.report.words import Difference, confidence_verdict, coverage_verdict, lead_verdict

made = settings(max_examples=60, deadline=None)
sizes = st.integers(2, 400)
seeds = st.integers(0, 2**31)


def numbers(n: int, seed: int, skill: float, stated: float) -> Evaluation:
    """Predictions that know a part of the target, and state deviations that are too small or too large."""
    generator = np.random.default_rng(seed)
    known, noise = generator.normal(size=(2, n))
    mean = torch.from_numpy(skill * known + 0.1 * generator.normal(size=(3, n)))
    mixture = Mixture(Normal(mean, torch.full_like(mean, stated)))
    constant = Normal(torch.tensor(0.0, dtype=torch.float64), torch.tensor(2**0.5, dtype=torch.float64))
    return evaluate((mixture, known + noise), constant=constant)


def classes(n: int, seed: int, sharpness: float) -> Evaluation:
    generator = np.random.default_rng(seed)
    logits = sharpness * generator.normal(size=(3, n, 4))
    shares = np.exp(generator.normal(size=4))
    target = generator.choice(4, size=n, p=shares / shares.sum())
    logits[..., np.arange(n), target] += generator.uniform(0, 2)
    return evaluate((Mixture(Categorical(logits=torch.from_numpy(logits))), target), constant=Categorical(torch.ones(4)))


def check(evaluation: Evaluation) -> None:
    n_rows, verdict = evaluation.n_rows, evaluation.verdicts["constant"]
    leads = evaluation.leads
    assert leads
    found = {lead.clear(n_rows) for lead in leads}
    assert verdict.startswith("It is better than a constant") == (found - {0} == {-1})
    assert verdict.startswith("It is worse than a constant") == (found - {0} == {1})
    assert ("Compared with" in verdict) == (found >= {-1, 1})
    leaning = any(lead.change < -1.5 * lead.error for lead in leads)
    assert ("is no better than" in verdict) == (found == {0} and n_rows >= 100 and not leaning)
    assert ("leave open whether" in verdict) == (found == {0} and n_rows >= 100 and leaning)
    assert ("too few to tell" in verdict) == (found == {0} and n_rows < 100)
    for lead in leads:  # the change that is told is that of the listing, in the direction that it has there
        score = evaluation.score(lead.name)
        assert score.constant is not None
        assert np.isclose(abs(score.ensemble - score.constant), abs(lead.change), rtol=1e-6, atol=1e-9)
        if lead.clear(n_rows):
            assert (" higher" in lead.text()) == (score.ensemble > score.constant)
    assert (verdict in evaluation.summary) == (found - {0} != {-1})
    assert verdict in Report(evaluation).html.replace("&#39;", "'") or "<" in verdict


@made
@given(n=sizes, seed=seeds, skill=st.floats(-1, 1), stated=st.sampled_from([0.01, 0.3, 1.0, 10.0]))
def test_what_is_said_of_numbers_follows_from_all_scores(n, seed, skill, stated):
    evaluation = numbers(n, seed, skill, stated)
    check(evaluation)
    said, observed = evaluation.verdicts["calibration"], evaluation.score("90\u202f% coverage").ensemble
    if n < 50:
        assert "as promised" not in said
    if "too narrow" in said:
        assert observed < 0.9
    if "too wide" in said:
        assert observed > 0.9


@made
@given(n=sizes, seed=seeds, sharpness=st.sampled_from([0.1, 1.0, 5.0]))
def test_what_is_said_of_classes_follows_from_all_scores(n, seed, sharpness):
    evaluation = classes(n, seed, sharpness)
    check(evaluation)
    if n < 50:
        assert "honest" not in evaluation.verdicts["reliability"]


def test_points_that_lead_are_not_called_worse_for_their_likelihood() -> None:
    verdict = lead_verdict([Difference("NLL", 0.8, 0.1), Difference("MAE", -3.0, 0.2)], 500)
    assert (
        verdict == "Compared with a constant prediction, its MAE is 3.0 lower (± 0.20), but its NLL is 0.80 higher (± 0.10)."
    )


def test_seventy_per_cent_right_against_thirty_is_better_than_a_constant() -> None:
    right = Difference("Accuracy", -0.4, 0.02, is_share=True, higher_is_better=True)
    assert "is better than a constant prediction: its accuracy is 40.0 points higher" in lead_verdict(
        [right, Difference("NLL", 0.01, 0.1)], 400
    )


def test_twenty_rows_make_nothing_honest() -> None:
    assert "too few to tell" in coverage_verdict(0.9, 0.9, 20)
    assert "too few to tell" in confidence_verdict(0.95, 0.95, 20)
    assert "honest" in confidence_verdict(0.95, 0.95, 500)


def odd_numbers(mean: Any, stated: float, target: Any, constant: tuple[float, float]) -> Evaluation:
    means = torch.tensor(np.tile(mean, (3, 1)), dtype=torch.float64)
    parts = (torch.tensor(value, dtype=torch.float64) for value in constant)
    return evaluate((Mixture(Normal(means, torch.full_like(means, stated))), np.asarray(target)), constant=Normal(*parts))


def odd_classes(named: Any, target: Any, sharpness: float = 8.0) -> Evaluation:
    logits = torch.tensor(np.tile(sharpness * np.eye(3)[np.asarray(named)], (2, 1, 1)))
    return evaluate((Mixture(Categorical(logits=logits)), np.asarray(target)), constant=Categorical(torch.ones(3)))


NOISE, THREE = np.random.default_rng(0).normal(size=200), np.arange(90) % 3
ODD = {
    "the same as the constant": lambda: odd_numbers(np.zeros(200), 1.0, NOISE, (0.0, 1.0)),
    "the same, few": lambda: odd_numbers(np.zeros(12), 1.0, np.ones(12), (0.0, 1.0)),
    "the same, tiny numbers": lambda: odd_numbers(np.full(200, 1e-12), 1e-14, 1e-12 + 1e-14 * NOISE, (1e-12, 1e-14)),
    "the same, huge numbers": lambda: odd_numbers(np.full(200, 1e12), 1e10, 1e12 + 1e10 * NOISE, (1e12, 1e10)),
    "the same but for one row": lambda: odd_numbers(np.zeros(200), 1.0, np.append(NOISE[1:], 1e6), (0.0, 1.0)),
    "exact": lambda: odd_numbers(np.arange(200.0), 1e-3, np.arange(200.0), (100.0, 50.0)),
    "exact, three rows": lambda: odd_numbers(np.arange(3.0), 1e-3, np.arange(3.0), (1.0, 1.0)),
    "two rows": lambda: odd_numbers([0.0, 1.0], 1.0, [0.1, 1.0], (0.0, 1.0)),
    "all outside": lambda: odd_numbers(np.zeros(200), 1e-3, np.arange(200.0), (100.0, 50.0)),
    "one target": lambda: odd_numbers(np.full(60, 3.0), 1.0, np.full(60, 3.0), (0.0, 1.0)),
    "the same for classes": lambda: odd_classes(THREE, np.roll(THREE, 7), 0.0),
    "one class": lambda: odd_classes(THREE, np.ones(90, dtype=np.int64)),
    "all right": lambda: odd_classes(THREE, THREE),
    "all wrong": lambda: odd_classes(THREE, (THREE + 1) % 3),
    "all right, surely": lambda: odd_classes(THREE, THREE, 500.0),
    "all wrong, surely": lambda: odd_classes(THREE, (THREE + 1) % 3, 500.0),
    "five, all right": lambda: odd_classes(THREE[:5], THREE[:5]),
    "five, all wrong": lambda: odd_classes(THREE[:5], (THREE[:5] + 1) % 3),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_said_of_odd_rows_is_true_too(name: str) -> None:
    evaluation = ODD[name]()
    check(evaluation)
    said = " ".join((evaluation.summary, *evaluation.verdicts.values()))
    assert not re.search(r"nan|inf\b|\b1 row are", said)
    assert not re.search(r"\de-1[5-9]", evaluation.verdicts["constant"])
    if name.startswith("the same"):
        assert "It is better than" not in said
        assert "It is worse than" not in said
    if evaluation.n_rows < 10:
        assert "too few to tell whether it is better" in evaluation.verdicts["constant"]


def test_one_row_is_too_few_for_anything() -> None:
    for evaluation in (odd_numbers([0.0], 1.0, [0.1], (0.0, 1.0)), odd_classes([0], [0])):
        assert "1 row is too few to tell more, as chance explains" in " ".join(evaluation.verdicts.values())
        assert "200 points" not in " ".join(evaluation.verdicts.values())
        assert "constant" not in evaluation.verdicts
        assert Report(evaluation).html

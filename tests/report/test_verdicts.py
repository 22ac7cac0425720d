"""No sentence says what the numbers beside it do not."""

import numpy as np
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
    leads = [lead for score in evaluation.scores if (lead := score.difference("lead")) is not None]
    assert leads
    found = {lead.clear(n_rows) for lead in leads}
    assert verdict.startswith("It is better than a constant") == (found - {0} == {-1})
    assert verdict.startswith("It is worse than a constant") == (found - {0} == {1})
    assert ("Compared with" in verdict) == (found >= {-1, 1})
    assert ("is no better than" in verdict) == (found == {0} and n_rows >= 100)
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

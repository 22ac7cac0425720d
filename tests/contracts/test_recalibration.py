"""Every recalibration: leaves a calibrated model alone, betters any other, is plain data, and refuses what it cannot use."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _found import found, is_exported
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal

from deep_ensembles import recalibration
from deep_ensembles._random import seeded
from deep_ensembles.distributions import Delta
from deep_ensembles.metrics import negative_log_likelihood
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Recalibrated, conformal, temperature, variance_scaling
from deep_ensembles.settings import describe, restore

N_ROWS, N_MEMBERS = 2000, 3
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
# What a prediction of each kind must offer, recalibrated or not.
NUMBERS = ("mean", "variance", "stddev", "aleatoric", "epistemic", "mutual_information", "disagreement")
CLASSES = ("probs", "confidence", "mode", "aleatoric", "epistemic", "mutual_information", "disagreement")


def free(n_rows: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N_MEMBERS, n_rows, *shape, generator=generator, dtype=torch.float64)


def numbers(sureness: float = 1.0, n_rows: int = N_ROWS, seed: int = 0) -> Mixture:
    """A mixture whose every deviation is too small by a factor."""
    location, spread = 0.5 * free(n_rows, seed=seed), (0.3 * free(n_rows, seed=seed + 1)).exp()
    mean = (WEIGHTS[:, None] * location).sum(0)
    return Mixture(Normal(mean + (location - mean) / sureness, spread / sureness), WEIGHTS)


def classes(sureness: float = 1.0, n_rows: int = N_ROWS, seed: int = 0) -> Mixture:
    """A mixture whose every logit is too large by a factor."""
    return Mixture(Categorical(logits=sureness * 1.5 * free(n_rows, 4, seed=seed)), WEIGHTS)


def several(sureness: float = 1.0, n_rows: int = N_ROWS) -> Mixture:
    return Mixture(Independent(Normal(free(n_rows, 2), torch.ones(N_MEMBERS, n_rows, 2).double() / sureness), 1))


KINDS: dict[str, Callable[..., Mixture]] = {"numbers": numbers, "classes": classes}


def drawn(mixture: Mixture, seed: int = 2) -> Tensor:
    with seeded(seed):
        return mixture.sample()


def takes(fit: Callable, build: Callable[..., Mixture]) -> bool:
    try:
        fit(build(n_rows=20), drawn(build(n_rows=20)))
    except TypeError:
        return False
    return True


def accepted() -> list:
    return [
        pytest.param(fit.values[0], build, id=f"{fit.id}-{name}")
        for fit in found(recalibration)
        for name, build in KINDS.items()
        if takes(fit.values[0], build)
    ]


every_fit = pytest.mark.parametrize("fit", found(recalibration))
every_pair = pytest.mark.parametrize(("fit", "build"), accepted())
# Conformal classes keep their probabilities: sets are what it is for.
every_better = pytest.mark.parametrize(("fit", "build"), [each for each in accepted() if each.id != "conformal-classes"])


def fitted(fit: Callable, build: Callable[..., Mixture], sureness: float = 1.0) -> Any:
    return fit(build(sureness), drawn(build()))


@every_fit
def test_function_and_result_are_exported(fit):
    assert is_exported(recalibration, fit)
    assert is_exported(recalibration, type(fit(*either(fit))))
    assert type(fit(*either(fit))).__name__ == fit.__name__.title().replace("_", "")


def either(fit: Callable) -> tuple[Mixture, Tensor]:
    build = next(build for build in KINDS.values() if takes(fit, build))
    return build(), drawn(build())


@every_pair
def test_leaves_a_calibrated_model_nearly_alone(fit, build):
    new = build(seed=10)
    after = fitted(fit, build)(new)
    if new.is_discrete:
        torch.testing.assert_close(after.probs, new.probs, atol=0.03, rtol=0)
        return
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        torch.testing.assert_close(new.cdf(after.icdf(torch.tensor(level))), new.mean * 0 + level, atol=0.035, rtol=0)
    torch.testing.assert_close(after.mean, new.mean, atol=0.1, rtol=0)
    torch.testing.assert_close(after.variance, new.variance, atol=0, rtol=0.15)


@every_better
@pytest.mark.parametrize("sureness", [0.25, 4.0], ids=["unsure", "sure"])
def test_betters_held_out_likelihood(fit, build, sureness):
    truth = drawn(build(seed=10), seed=3)
    new = build(sureness, seed=10)
    after = fitted(fit, build, sureness)(new)
    gained = negative_log_likelihood(new, truth) - negative_log_likelihood(after, truth)
    assert gained > 0.05


@pytest.mark.parametrize(("fit", "build"), [(variance_scaling, numbers), (temperature, classes)])
def test_fitting_never_worsens_the_rows_fitted(fit, build):
    before, truth = build(n_rows=7), drawn(build(n_rows=7))
    after = fit(before, truth)(before)
    assert negative_log_likelihood(after, truth) <= negative_log_likelihood(before, truth)


@every_pair
def test_has_the_interface_of_a_mixture(fit, build):
    new = build(n_rows=5)
    after = fitted(fit, build, 2.0)(new)
    assert (after.batch_shape, after.event_shape) == (new.batch_shape, new.event_shape)
    assert (after.n_members, after.is_discrete) == (new.n_members, new.is_discrete)
    for name in CLASSES if new.is_discrete else NUMBERS:
        value = getattr(after, name)
        assert value.shape == getattr(new, name).shape
        assert value.isfinite().all()
    draws = drawn(after)
    assert draws.shape == (5,)
    assert after.log_prob(draws).isfinite().all()
    assert after.entropy().shape == (5,)
    torch.testing.assert_close(after[1:3].log_prob(draws[1:3]), after.log_prob(draws)[1:3])
    if not new.is_discrete:
        torch.testing.assert_close(after.cdf(after.icdf(torch.tensor(0.3))), torch.full((5,), 0.3).double())
        torch.testing.assert_close(after.aleatoric + after.epistemic, after.variance)


@every_pair
def test_works_in_single_precision(fit, build):
    wide = build(3.0, n_rows=5)
    parameters = {k: getattr(wide.components, k).float() for k in ("loc", "scale", "logits") if hasattr(wide.components, k)}
    new = Mixture(type(wide.components)(**parameters), WEIGHTS.float())
    recalibrated = fitted(fit, build, 3.0)
    exact, single = recalibrated(wide), recalibrated(new)
    names = ("probs",) if new.is_discrete else ("mean", "variance")
    for name in names:
        torch.testing.assert_close(getattr(single, name).double(), getattr(exact, name), rtol=1e-5, atol=1e-5)


@every_pair
def test_is_plain_data(fit, build):
    recalibrated = fitted(fit, build, 2.0)
    assert dataclasses.is_dataclass(recalibrated)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(recalibrated, dataclasses.fields(recalibrated)[0].name, 1.0)
    text = json.dumps(describe(recalibrated), allow_nan=False)
    again = restore(json.loads(text))
    assert again == recalibrated
    assert type(again) is type(recalibrated)
    assert describe(fit) == {"name": f"recalibration.{fit.__name__}"}


@every_pair
def test_takes_one_member_and_any_kind_of_target(fit, build):
    mixture, truth = build(n_rows=30), drawn(build(n_rows=30))
    member = mixture.member(0)
    assert fit(member, truth.tolist()) == fit(member, truth.numpy()) == fit(Mixture(member.expand((1, 30))), truth)
    assert fit(member, truth)(member).n_members == 1


@every_pair
def test_does_not_depend_on_the_order_of_rows(fit, build):
    mixture, truth = build(n_rows=50), drawn(build(n_rows=50))
    order = torch.arange(49, -1, -1)
    first, second = (
        np.hstack(dataclasses.astuple(each)) for each in (fit(mixture, truth), fit(mixture[order], truth[order]))
    )
    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)


@every_pair
def test_bad_targets_are_refused(fit, build):
    mixture, truth = build(n_rows=6), drawn(build(n_rows=6)).double()
    unknown = truth.clone()
    unknown[2] = torch.nan
    for target, message in [
        (unknown, "`target` must be finite, got nan"),
        (truth[:5], r"`target` must be of the prediction's shape \(6,\), got \(5,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            fit(mixture, target)
    with pytest.raises(ValueError, match="`target` must be at least 2 rows, got 1"):
        fit(mixture[:1], truth[:1])
    with pytest.raises(ValueError, match="`target` must be at least one"):
        fit(mixture[:0], truth[:0])


@every_pair
def test_bad_predictions_are_refused(fit, build):
    mixture, truth = build(n_rows=6), drawn(build(n_rows=6))
    parameter = "logits" if mixture.is_discrete else "loc"
    getattr(mixture.components, parameter)[0, 3] = torch.nan
    with pytest.raises(ValueError, match="`distribution` must be without NaN"):
        fit(mixture, truth)
    with pytest.raises(ValueError, match="`distribution` must be one prediction per row"):
        fit(build(n_rows=6).expand((2, 6)), truth.expand(2, 6))
    for nothing in (truth, None, Recalibrated(numbers(n_rows=6), (0.0, 1.0), (0.0, 1.0))):
        with pytest.raises(TypeError, match=r"must be a Mixture or a batch of one of torch's|needs a prediction over"):
            fit(nothing, truth)


@every_fit
def test_the_wrong_kind_is_refused(fit):
    """In fitting and in use."""
    right = [build for build in KINDS.values() if takes(fit, build)]
    recalibrated = [fitted(fit, build) for build in right]
    for build in KINDS.values():
        if build not in right:
            with pytest.raises(TypeError, match=f"^`{fit.__name__}` needs a prediction"):
                fit(build(), drawn(build()))
        for each in recalibrated:
            if build not in right or (fit is conformal and each.discrete != build().is_discrete):
                with pytest.raises(TypeError, match=f"^`{fit.__name__}` needs a prediction"):
                    each(build())


@every_fit
def test_several_targets_are_shared_or_refused(fit):
    if fit is variance_scaling:
        assert fit(several(2.0), drawn(several())).factor == pytest.approx(1.6, abs=0.4)
        return
    with pytest.raises(TypeError, match=f"^`{fit.__name__}` needs a prediction"):
        fit(several(), drawn(several()))


@every_fit
def test_points_are_refused(fit):
    points: Distribution = Mixture(Delta(free(5)))
    with pytest.raises(TypeError, match=f"^`{fit.__name__}` needs"):
        fit(points, torch.zeros(5))

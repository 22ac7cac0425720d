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
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, MultivariateNormal, Normal

from deep_ensembles import recalibration
from deep_ensembles._random import seeded
from deep_ensembles.distributions import (
    Delta,
    Gamma,
    Interpolated,
    Laplace,
    LogitNormal,
    LogNormal,
    NegativeBinomial,
    NormalMixture,
    Ordered,
    Poisson,
    StudentT,
    ZeroInflated,
)  # fmt: skip
from deep_ensembles.metrics import negative_log_likelihood
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Recalibrated, choose, conformal, isotonic, temperature, variance_scaling
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


def spread(n_rows: int, *shape: int) -> Tensor:
    return (0.3 * free(n_rows, *shape, seed=5)).exp()


def student_t(df: float) -> Callable[[int], Distribution]:
    return lambda n: StudentT(torch.full((N_MEMBERS, n), df).double(), free(n), spread(n))


def zero_to_one(n: int) -> tuple[Tensor, Tensor]:
    zero = torch.zeros(N_MEMBERS, n).double()
    return zero, zero + 1


FAMILIES: dict[str, Callable[[int], Distribution]] = {
    "StudentT": student_t(3.0),
    "StudentT-2": student_t(2.0),
    "StudentT-1": student_t(1.0),
    "Laplace": lambda n: Laplace(free(n), spread(n)),
    "NormalMixture": lambda n: NormalMixture(Categorical(logits=free(n, 2)), Normal(free(n, 2, seed=3), spread(n, 2))),
    "LogNormal": lambda n: LogNormal(free(n), spread(n)),
    "Gamma": lambda n: Gamma(2 * spread(n), spread(n)),
    "LogitNormal": lambda n: LogitNormal(free(n), spread(n), *zero_to_one(n)),
    "Interpolated": lambda n: Interpolated(
        free(n, 4).sort(-1).values + torch.arange(4) / 10, torch.tensor([0.1, 0.4, 0.6, 0.9])
    ),
    "Poisson": lambda n: Poisson(4 * spread(n)),
    "NegativeBinomial": lambda n: NegativeBinomial(spread(n), logits=1 + 0.3 * free(n)),
    "ZeroInflated": lambda n: ZeroInflated(free(n), Poisson(4 * spread(n))),
    "MultivariateNormal": lambda n: MultivariateNormal(free(n, 2), scale_tril=torch.diag_embed(spread(n, 2))),
    "Independent-Gamma": lambda n: Independent(Gamma(2 * spread(n, 2), spread(n, 2)), 1),
    "Ordered": lambda n: Ordered(logits=free(n, 4)),
    "Bernoulli": lambda n: Independent(Bernoulli(logits=free(n, 3)), 1),
}
COUNTS = ("Poisson", "NegativeBinomial", "ZeroInflated")
POSITIVE = ("LogNormal", "Gamma", "LogitNormal", *COUNTS)
every_family = pytest.mark.parametrize("name", FAMILIES)
one_number = [name for name in FAMILIES if name not in ("MultivariateNormal", "Independent-Gamma", "Ordered", "Bernoulli")]
every_number = pytest.mark.parametrize("name", one_number)


def of_family(name: str, n_rows: int = 300) -> tuple[Mixture, Tensor]:
    mixture = Mixture(FAMILIES[name](n_rows), WEIGHTS)
    return mixture, drawn(mixture)


@every_family
@pytest.mark.parametrize("fit", [*found(recalibration), pytest.param(choose, id="choose")])
def test_every_family_is_recalibrated_or_refused_with_a_cure(fit, name):
    mixture, truth = of_family(name)
    try:
        fitted_one = fit(mixture, truth)
    except TypeError as error:
        message = str(error)
        assert message.startswith(f"`{fit.__name__}` needs")
        assert type(getattr(mixture.components, "base_dist", mixture.components)).__name__ in message
        assert any(f"`{cure}" in message for cure in ("isotonic", "temperature", "variance_scaling", "target("))
        assert len(message) < 300
        assert fit is not choose
        return
    after = mixture if fitted_one is None else fitted_one(mixture)
    draws = drawn(after)
    assert after.support.check(draws).all()
    assert after.log_prob(truth).isfinite().all()
    assert negative_log_likelihood(after, truth) < negative_log_likelihood(mixture, truth) + 0.05 or fit is conformal
    if after.kind in ("classes", "labels"):
        assert after.probs.isfinite().all()
        assert isinstance(after.components, type(mixture.components))
        return
    if name != "StudentT-1":
        assert after.mean.isfinite().all()
        assert after.epistemic.isfinite().all()
    assert not after.variance.isnan().any()
    assert bool(after.variance.isinf().any()) == name.startswith(("StudentT-1", "StudentT-2"))


@pytest.mark.parametrize("fit", found(recalibration))
def test_what_is_refused_is_what_cannot_be_right(fit):
    refused = {
        "variance_scaling": {*POSITIVE, "Independent-Gamma", "Ordered", "Bernoulli"},
        "isotonic": {"MultivariateNormal", "Independent-Gamma", "Ordered", "Bernoulli"},
        "conformal": {"MultivariateNormal", "Independent-Gamma", "Bernoulli"},
        "temperature": set(FAMILIES) - {"Ordered", "Bernoulli"},
    }[fit.__name__]
    assert {name for name in FAMILIES if not takes(fit, lambda n_rows, name=name: of_family(name, n_rows)[0])} == refused


@every_number
def test_a_recalibrated_family_agrees_with_its_own_quantiles(name):
    """Moments and entropy against sums over many quantiles, which know nothing of how they are integrated."""
    after = Recalibrated(of_family(name, 2)[0], (0.0, 0.1, 0.3, 0.5, 0.9, 1.0), (0.0, 0.2, 0.3, 0.6, 0.8, 1.0))
    levels = (torch.arange(20_000).double() + 0.5) / 20_000
    values = after.icdf(levels[:, None])
    torch.testing.assert_close(after.entropy(), -after.log_prob(values).mean(0), rtol=0, atol=0.01)
    assert after.support.check(values[:, None]).all()
    if name.startswith("StudentT"):  # what heavy tails add is not seen by a sum
        return
    torch.testing.assert_close(after.mean, values.mean(0), rtol=0, atol=float(2e-3 * values.std()))
    if name != "LogNormal":
        torch.testing.assert_close(after.variance, values.var(0), rtol=0.02, atol=0)


@every_number
def test_the_identity_changes_nothing(name):
    mixture, truth = of_family(name, 20)
    same = Recalibrated(mixture, (0.0, 0.25, 1.0), (0.0, 0.25, 1.0))
    torch.testing.assert_close(same.log_prob(truth), mixture.log_prob(truth))
    torch.testing.assert_close(same.icdf(torch.tensor(0.7)), mixture.icdf(torch.tensor(0.7)))
    torch.testing.assert_close(same.entropy(), mixture.entropy(), rtol=0, atol=0.02)
    torch.testing.assert_close(same.variance, mixture.variance, rtol=2e-3, atol=0)
    if name == "StudentT-1":
        with pytest.raises(ValueError, match="the mean of StudentT does not exist"):
            _ = same.mean
        return
    deviation = torch.where(mixture.stddev.isinf(), 1.0, mixture.stddev)
    assert ((same.mean - mixture.mean).abs() <= 1e-3 * deviation).all()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("fit", [isotonic, conformal])
def test_recalibrated_counts_are_counts(name, fit):
    mixture, truth = of_family(name, 60)
    after = fit(mixture, truth)(mixture)
    counts = torch.arange(400.0).double()[:, None]
    probabilities = after.log_prob(counts).exp()
    torch.testing.assert_close(probabilities.sum(0), torch.ones(60).double(), rtol=1e-9, atol=0)
    torch.testing.assert_close(probabilities.cumsum(0), after.cdf(counts), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close((counts * probabilities).sum(0), after.mean, rtol=1e-6, atol=0)
    squares = ((counts - after.mean).square() * probabilities).sum(0)
    torch.testing.assert_close(squares, after.variance, rtol=1e-5, atol=0)
    assert (after.log_prob(torch.tensor(-1.0)) == -torch.inf).all()
    assert (after.log_prob(torch.tensor(1.5)) == -torch.inf).all()
    for level in (0.0, 0.05, 0.5, 0.95):
        quantile = after.icdf(torch.tensor(level))
        assert (quantile == quantile.floor()).all()
        assert (quantile >= 0).all()
        assert (after.cdf(quantile) >= level * (1 - 1e-12)).all()
        assert ((after.cdf(quantile - 1) < level) | (quantile == 0)).all()
    low, high = (after.icdf(torch.tensor(level)) for level in (0.05, 0.95))
    assert ((truth >= low) & (truth <= high)).double().mean() >= 0.9


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_fitted_by_levels_that_depend_on_nothing_else(name):
    mixture, truth = of_family(name, 200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    for fit in (isotonic, conformal):
        first, second = (
            np.hstack(dataclasses.astuple(fit(*rows))) for rows in ((mixture, truth), (mixture[order], truth[order]))
        )
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", COUNTS)
def test_calibrated_counts_stay_calibrated(name):
    """F(y) itself is never below P(0): only levels drawn below it are even."""
    mixture, truth = of_family(name, N_ROWS)
    recalibrated = isotonic(mixture, truth)
    np.testing.assert_allclose(recalibrated.before, recalibrated.after, rtol=0, atol=0.04)


def test_targets_that_a_family_cannot_take_are_refused():
    for name, wrong in (("LogNormal", -1.0), ("LogitNormal", 1.5), ("Poisson", 2.5), ("Poisson", -1.0)):
        mixture, truth = of_family(name, 20)
        truth[3] = wrong
        with pytest.raises(ValueError, match=f"`target` must be a value that {name} can take, got {wrong}"):
            isotonic(mixture, truth)


def test_rows_without_a_mean_leave_the_variance_of_others():
    df = torch.tensor([[0.8, 1.5, 3.0]]).double()
    rows = Recalibrated(Mixture(StudentT(df, torch.zeros(1, 3).double(), torch.ones(1, 3).double())), (0.0, 1.0), (0.0, 1.0))
    torch.testing.assert_close(rows.variance, torch.tensor([torch.inf, torch.inf, 3.0]).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(rows[1:].mean, torch.zeros(2).double(), rtol=0, atol=1e-3)


def test_labels_share_one_temperature():
    sure, truth = of_family("Bernoulli")[0], of_family("Bernoulli")[1]
    doubled = Mixture(Independent(Bernoulli(logits=2 * sure.components.base_dist.logits), 1), WEIGHTS)
    assert temperature(doubled, truth).temperature == pytest.approx(2 * temperature(sure, truth).temperature, rel=1e-4)
    assert choose(doubled, truth) is not None


def test_families_without_a_mean_are_stretched_about_the_median():
    mixture, truth = of_family("StudentT-1", N_ROWS)
    middle = mixture.icdf(torch.tensor(0.5))
    recalibrated = variance_scaling(mixture, middle + 2 * (truth - middle))
    assert recalibrated.factor == pytest.approx(2.0, rel=0.1)
    torch.testing.assert_close(recalibrated(mixture).icdf(torch.tensor(0.5)), middle)


@pytest.mark.parametrize(("df", "rtol"), [(1.2, 1e-3), (2.1, 1e-3), (3.0, 1e-4)])
def test_heavy_tails_are_integrated_to_their_end(df, rtol):
    """A map that puts twice the mass above the median: moments of half a Student-t are known."""
    standard = Mixture(StudentT(torch.tensor([[df]]).double(), torch.zeros(1, 1).double(), torch.ones(1, 1).double()))
    after = Recalibrated(standard, (0.0, 0.5, 1.0), (0.0, 0.25, 1.0))
    gamma = torch.lgamma(torch.tensor([(df + 1) / 2, df / 2]).double())
    half = 2 * df**0.5 / (df - 1) * (gamma[0] - gamma[1]).exp() / torch.pi**0.5  # E|Y|
    torch.testing.assert_close(after.mean, (0.5 * half)[None], rtol=rtol, atol=0)
    if df > 2:
        torch.testing.assert_close(after.variance, (df / (df - 2) - after.mean.square()), rtol=rtol, atol=0)

"""Every head's distribution against SciPy, in the tails and for extreme parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from _found import found
from _references import InterpolatedLaw, LogitNormalLaw, MixtureLaw, NegativeBinomialLaw, Reference, ZeroInflatedLaw
from scipy import special, stats
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles import distributions as own
from deep_ensembles import heads
from deep_ensembles.distributions import indexed, log_density, tails
from deep_ensembles.scoring import crps

LEVELS = (1e-12, 1e-9, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12)
DEVIATIONS = (-40, -5, -1, 0, 1, 5, 40)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class Entry:
    """SciPy's law for a distribution of one row, and distributions with extreme parameters; the rest of them is slow."""

    law: Callable[[Any], Any]
    extremes: list[Distribution]
    slow: list[Distribution]


def _student_t(d: Any) -> Any:
    return stats.t(d.df.item(), d.loc.item(), d.scale.item())


def _normal_mixture(d: Any) -> Any:
    normals = d.component_distribution
    laws = [stats.norm(m, s) for m, s in zip(normals.loc.tolist(), normals.scale.tolist(), strict=True)]
    return MixtureLaw(d.mixture_distribution.probs.tolist(), laws)


def _negative_binomial(d: Any) -> Any:
    return NegativeBinomialLaw(d.total_count.item(), d.mean.item())


def _zero_inflated(d: Any) -> Any:
    return ZeroInflatedLaw(torch.sigmoid(d.logits).item(), LAWS[type(d.of)](d.of))


LAWS: dict[type, Callable[[Any], Any]] = {
    own.Poisson: lambda d: stats.poisson(d.rate.item()),
    own.NegativeBinomial: _negative_binomial,
}


def negative_binomial(size: float, mean: float) -> Distribution:
    return own.NegativeBinomial(numbers(size), logits=numbers(math.log(mean / size)))


def normals(ratio: float) -> Distribution:
    weights, parts = (
        Categorical(numbers(0.2, 0.5, 0.3)[None]),
        Normal(numbers(0, 1, 5)[None], numbers(1, 1 / ratio, 2)[None]),
    )
    return own.NormalMixture(weights, parts)


def logit_normal(scale: float, loc: float) -> Distribution:
    return own.LogitNormal(numbers(loc), numbers(scale), numbers(0), numbers(1))


def zero_inflated(share: float, of: Distribution) -> Distribution:
    return own.ZeroInflated(numbers(special.logit(share)), of)


ENTRIES = {
    "normal": Entry(
        lambda d: stats.norm(d.loc.item(), d.scale.item()),
        [Normal(numbers(1e3), numbers(1e-3)), Normal(numbers(-2), numbers(1e6))],
        [],
    ),
    "laplace": Entry(
        lambda d: stats.laplace(d.loc.item(), d.scale.item()),
        [own.Laplace(numbers(1e3), numbers(1e-3)), own.Laplace(numbers(-2), numbers(1e6))],
        [],
    ),
    "student_t": Entry(
        _student_t,
        [own.StudentT(numbers(df), numbers(1.5), numbers(2)) for df in (0.5, 1, 2.1, 1e6)],
        [own.StudentT(numbers(df), numbers(1.5), numbers(2)) for df in (0.7, 1.05, 1.5, 2, 3, 10, 100, 1e3)],
    ),
    "gaussian_mixture": Entry(_normal_mixture, [normals(1), normals(1e6)], [normals(10), normals(1e3)]),
    "log_normal": Entry(
        lambda d: stats.lognorm(d.scale.item(), scale=math.exp(d.loc.item())),
        [own.LogNormal(numbers(0.3), numbers(scale)) for scale in (1e-3, 3, 5)],
        [own.LogNormal(numbers(0.3), numbers(scale)) for scale in (0.1, 1)],
    ),
    "gamma": Entry(
        lambda d: stats.gamma(d.concentration.item(), scale=1 / d.rate.item()),
        [own.Gamma(numbers(shape), numbers(shape / 2)) for shape in (1e-2, 0.5, 100, 1e5)],
        [own.Gamma(numbers(shape), numbers(shape / 2)) for shape in (0.1, 1, 3, 1e4)],
    ),
    "logit_normal": Entry(
        lambda d: LogitNormalLaw(d.loc.item(), d.scale.item(), d.low.item(), d.high.item()),
        [logit_normal(1e-3, -30), logit_normal(10, 3), logit_normal(1, 0)],
        [logit_normal(scale, loc) for scale in (1e-3, 0.1, 3, 10) for loc in (-30, -3, 0)],
    ),
    "quantiles": Entry(
        lambda d: InterpolatedLaw(d.values.numpy(), d.levels.numpy()),
        [own.Interpolated(numbers(0, 1, 3, 3.5, 1e3)[None], numbers(0.01, 0.25, 0.5, 0.75, 0.99))],
        [],
    ),
    "poisson": Entry(
        LAWS[own.Poisson],
        [own.Poisson(numbers(rate)) for rate in (1e-4, 1, 1e3)],
        [own.Poisson(numbers(rate)) for rate in (0.1, 30, 1e5)],
    ),
    "negative_binomial": Entry(
        _negative_binomial,
        [negative_binomial(*pair) for pair in ((1e-2, 1e-3), (1, 1), (30, 1e3), (1e6, 1))],
        [negative_binomial(*pair) for pair in ((1e-2, 1), (1, 1e3), (1, 1e5), (1e6, 1e3), (1e6, 1e6), (0.1, 1e3))],
    ),
    "zero_inflated": Entry(
        _zero_inflated,
        [zero_inflated(0.3, own.Poisson(numbers(20))), zero_inflated(0.999, negative_binomial(0.5, 30))],
        [zero_inflated(share, negative_binomial(0.5, 1e3)) for share in (1e-6, 0.3)],
    ),
}  # fmt: skip
# Heads of classes, labels, vectors and points have tests of their own below, and in the contract of heads.
OTHERS = {"bernoulli", "categorical", "multivariate_normal", "ordinal", "point"}


def test_every_head_has_a_reference():
    names = {each.id for each in found(heads)}
    missing = names - set(ENTRIES) - OTHERS
    assert not missing, f"add an entry with SciPy's law to ENTRIES for the heads in {sorted(missing)}"
    assert set(ENTRIES) | OTHERS == names


def cases(which: str) -> list[Any]:
    return [
        pytest.param(entry.law, distribution, id=f"{name}-{number}")
        for name, entry in ENTRIES.items()
        for number, distribution in enumerate(getattr(entry, which))
    ]


def from_raw_outputs() -> list[Any]:
    kinds = {each.id: each.values[0] for each in found(heads)}
    rows = [(name, kinds[name]()(torch.randn(1, kinds[name]().raw_size(1), generator=torch.Generator().manual_seed(1))
             .double())) for name in ENTRIES]  # fmt: skip
    return [pytest.param(ENTRIES[name].law, distribution, id=name) for name, distribution in rows]


@pytest.mark.parametrize(("law", "distribution"), [*from_raw_outputs(), *cases("extremes")])
def test_equals_scipy(law, distribution):
    check(law, distribution)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "distribution"), cases("slow"))
def test_equals_scipy_for_more_parameters(law, distribution):
    check(law, distribution)


def close(value: Any, expected: Any, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(value, dtype=float).reshape(-1), np.asarray(expected, dtype=float).reshape(-1),
                               rtol=1e-6, atol=atol)  # fmt: skip


@np.errstate(all="ignore")
def check(law: Callable[[Any], Any], distribution: Distribution) -> None:
    row = indexed(distribution, 0)
    reference = Reference(law(row), getattr(row, "kinks", numbers()).tolist())
    quantiles = [reference.quantile(level) for level in LEVELS]
    if hasattr(distribution, "icdf"):
        close([distribution.icdf(numbers(level)).item() for level in LEVELS], quantiles)
    values = set(quantiles)
    if math.isfinite(reference.variance) and math.isfinite(reference.mean):
        values |= {reference.mean + z * math.sqrt(reference.variance) for z in DEVIATIONS}
        close(distribution.mean, reference.mean)
        close(distribution.variance, reference.variance)
    points = np.array(sorted(math.floor(value) if reference.is_whole else value for value in values), dtype=float)
    lower, upper = tails(distribution, torch.tensor(points))
    close(lower, reference.cdf(points), atol=1e-250)  # digits in the tails too
    close(upper, reference.sf(points), atol=1e-250)
    inside = points[(reference.cdf(points) > 0) & (reference.sf(points) > 0)]
    close(log_density(distribution, torch.tensor(inside)), reference.logpdf(inside))
    close(distribution.entropy(), reference.entropy())
    if math.isfinite(reference.mean) or getattr(row, "df", numbers(1)).item() > 0.6:
        targets = [quantiles[place] for place in (0, 4, 6, 9, 12)]
        close(torch.stack([crps(distribution, numbers(target)) for target in targets]), [*map(reference.crps, targets)])
    torch.manual_seed(0)
    shares = tails(distribution, distribution.sample((4000,)).double()[:, 0])[1].mean().item()
    middle = reference.expectation(reference.sf) if reference.is_whole else 0.5
    assert shares == pytest.approx(middle, abs=5 / math.sqrt(12 * 4000))


def test_large_rates_are_exact():
    """Where SciPy's own incomplete gamma function is 4 % off; by adding up probabilities."""
    rate, k = 1e7, 10_015_034.0
    terms = k + 1 + np.arange(20_000.0)
    expected = math.fsum(np.exp(terms * math.log(rate) - rate - special.gammaln(terms + 1)))
    assert tails(own.Poisson(numbers(rate)), numbers(k))[1].item() == pytest.approx(expected, rel=1e-6, abs=0)
    assert own.Poisson(numbers(rate)).icdf(numbers(1 - expected * (1 + 1e-9))).item() == k


def test_a_negative_binomial_at_one_half_is_least():
    """P(Y < n) is ½ for n successes of probability ½."""
    assert negative_binomial(1e6, 1e6).icdf(numbers(0.5)).item() == 999_999


def test_ordered_classes_equal_sums():
    probabilities = np.array([0.1, 0.2, 0.05, 0.65])
    classes = own.Ordered(probs=torch.tensor(probabilities)[None])
    law = stats.rv_discrete(values=(range(4), probabilities))
    close(classes.cdf(numbers(*range(4))[:, None]), law.cdf(range(4)))
    close(classes.mean, law.mean())
    close(classes.variance, law.var())
    close(classes.entropy(), stats.entropy(probabilities))
    for level in (0.05, 0.1, 0.11, 0.3, 0.34, 0.36, 1.0):
        assert classes.icdf(numbers(level)).item() == law.ppf(level)
    for target in range(4):
        expected = sum((law.cdf(k) - (target <= k)) ** 2 for k in range(4))
        close(crps(classes, torch.tensor([target])), expected)


@pytest.mark.parametrize("rank", [None, 2])
def test_vectors_equal_scipy(rank):
    head = heads.MultivariateNormal(rank=rank)
    distribution = head(torch.randn(3, head.raw_size(4), generator=torch.Generator().manual_seed(0)).double())
    points = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double() * 40
    for row in range(3):
        law = stats.multivariate_normal(distribution.mean[row].numpy(), distribution.covariance_matrix[row].numpy())
        close(distribution.log_prob(points)[row], law.logpdf(points[row].numpy()))
        close(distribution.entropy()[row], law.entropy())
        close(distribution.variance[row], np.diag(law.cov))


@pytest.mark.parametrize("name", list(ENTRIES))
@pytest.mark.parametrize("what", ["cdf", "icdf", "crps"])
def test_gradients_equal_differences(name, what):
    head = {each.id: each.values[0] for each in found(heads)}[name]()
    raw = torch.randn(3, head.raw_size(1), generator=torch.Generator().manual_seed(2)).double()
    target = numbers(0.2, 0.5, 0.7) if head.kind == "numbers" else numbers(0, 1, 4)

    def function(outputs: Tensor) -> Tensor:
        distribution = head(outputs)
        if what == "icdf":
            return distribution.icdf(numbers(0.2, 0.5, 0.9))
        return distribution.cdf(target) if what == "cdf" else crps(distribution, target)

    if what == "icdf" and head.kind == "counts":
        assert function(raw).isfinite().all()  # whole numbers do not move with the parameters
        return
    leaf = raw.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf).sum(), leaf)
    step = 1e-6
    for place in range(raw.shape[1]):
        moved = torch.zeros_like(raw)
        moved[:, place] = step
        difference = (function(raw + moved) - function(raw - moved)) / (2 * step)
        torch.testing.assert_close(gradient[:, place], difference, rtol=1e-5, atol=1e-7)

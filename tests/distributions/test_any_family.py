"""Mixtures of families that no head of ours gives: right, or refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from _references import MixtureLaw, Reference
from scipy import stats
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution, constraints, transforms

from deep_ensembles import distributions as own
from deep_ensembles.distributions import rebuilt
from deep_ensembles.mixture import Mixture, concatenated
from deep_ensembles.scoring import crps

WEIGHTS = (0.5, 0.0, 0.3, 0.2)
A, B, LOC, P = (0.7, 2.0, 1.3, 5.0), (1.5, 0.4, 3.0, 0.8), (0.0, 2.0, -3.0, 10.0), (0.2, 0.5, 0.7, 0.95)
LEVELS = (1e-6, 1e-3, 0.05, 0.299, 0.501, 0.7, 0.95, 1 - 1e-3, 1 - 1e-6)


def column(values: tuple[float, ...], *own_dims: int) -> Tensor:
    """`[member, row, *own]` of one row."""
    parameter = torch.tensor(values, dtype=torch.float64)
    return parameter.reshape(-1, 1, *[1] * len(own_dims)).expand(-1, 1, *own_dims)


a, b, loc, p = (column(values) for values in (A, B, LOC, P))
zero, one = torch.zeros_like(a), torch.ones_like(a)
LOGIT = transforms.SigmoidTransform().inv


def laws(make: Callable[..., Any], *parameters: tuple[float, ...]) -> list[Any]:
    return [make(*values) for values in zip(*parameters, strict=True)]


def two_student_ts() -> Distribution:
    weights = td.Categorical(torch.tensor([0.3, 0.7], dtype=torch.float64).expand(4, 1, 2))
    parts = td.StudentT(column((3.0, 4.0, 5.0, 6.0), 2), torch.stack([loc, loc + 9], -1), torch.stack([a, b], -1))
    return td.MixtureSameFamily(weights, parts)


KNOWN: dict[str, tuple[Distribution, list[Any]]] = {
    "exponential": (td.Exponential(a), laws(lambda a: stats.expon(scale=1 / a), A)),
    "weibull": (td.Weibull(b, a), laws(lambda b, a: stats.weibull_min(a, scale=b), B, A)),
    "gumbel": (td.Gumbel(loc, a), laws(stats.gumbel_r, LOC, A)),
    "cauchy": (td.Cauchy(loc, a), laws(stats.cauchy, LOC, A)),
    "half_normal": (td.HalfNormal(a), laws(lambda a: stats.halfnorm(scale=a), A)),
    "half_cauchy": (td.HalfCauchy(a), laws(lambda a: stats.halfcauchy(scale=a), A)),
    "uniform": (td.Uniform(loc, loc + a), laws(stats.uniform, LOC, A)),
    "beta": (td.Beta(a, b), laws(stats.beta, A, B)),
    "pareto": (td.Pareto(b, a + 1.5), laws(lambda b, a: stats.pareto(a + 1.5, scale=b), B, A)),
    "inverse_gamma": (td.InverseGamma(a + 2.2, b), laws(lambda a, b: stats.invgamma(a + 2.2, scale=b), A, B)),
    "chi2": (td.Chi2(a), laws(stats.chi2, A)),
    "geometric": (td.Geometric(p), laws(lambda p: stats.geom(p, loc=-1), P)),
    "binomial": (td.Binomial(column((10.0, 3.0, 1.0, 50.0)), p), laws(stats.binom, (10, 3, 1, 50), P)),
    "bernoulli": (td.Bernoulli(p), laws(stats.bernoulli, P)),
    "student_ts": (
        two_student_ts(),
        laws(lambda n, m, a, b: MixtureLaw([0.3, 0.7], [stats.t(n, m, a), stats.t(n, m + 9, b)]), (3, 4, 5, 6), LOC, A, B),
    ),
    "logistic": (
        td.TransformedDistribution(td.Uniform(zero, one), [LOGIT, transforms.AffineTransform(loc, a)]),
        laws(stats.logistic, LOC, A),
    ),
    "log_gamma": (
        td.TransformedDistribution(td.Gamma(a, one), [transforms.ExpTransform().inv]),
        laws(stats.loggamma, A),
    ),
    "falling": (
        td.TransformedDistribution(td.Gumbel(zero, a), [transforms.AffineTransform(loc, -1.0)]),
        laws(stats.gumbel_l, LOC, A),
    ),
    "exp_normal": (
        td.TransformedDistribution(td.Normal(loc / 10, b), [transforms.ExpTransform()]),
        laws(lambda m, b: stats.lognorm(b, scale=math.exp(m / 10)), LOC, B),
    ),
    "scaled": (own.Scaled(td.Beta(a, b), one * 3, one * 2), laws(lambda a, b: stats.beta(a, b, 3, 2), A, B)),
    "student_t": (own.StudentT(a + 2, loc, b), laws(lambda a, m, b: stats.t(a + 2, m, b), A, LOC, B)),
    "log_normal": (own.LogNormal(loc / 5, b), laws(lambda m, b: stats.lognorm(b, scale=math.exp(m / 5)), LOC, B)),
    "gamma": (own.Gamma(a, b), laws(lambda a, b: stats.gamma(a, scale=1 / b), A, B)),
    "poisson": (own.Poisson(10 * a), laws(lambda a: stats.poisson(10 * a), A)),
    "negative_binomial": (own.NegativeBinomial(a, probs=p), laws(lambda a, p: stats.nbinom(a, 1 - p), A, P)),
}  # fmt: skip
every_known = pytest.mark.parametrize(("components", "laws"), KNOWN.values(), ids=KNOWN)


def close(value: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(value).reshape(-1), np.asarray(expected).reshape(-1), rtol=1e-6, atol=1e-9)


@pytest.fixture
def no_warnings():
    with np.errstate(all="ignore"):
        yield


@every_known
@pytest.mark.usefixtures("no_warnings")
def test_a_mixture_equals_scipy(components, laws):
    mixture, reference = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64)), mixed(laws)
    quantiles = [reference.quantile(level) for level in LEVELS]
    close([mixture.icdf(torch.tensor(level, dtype=torch.float64)).item() for level in LEVELS], quantiles)
    points = torch.tensor(quantiles, dtype=torch.float64)[:, None]
    close(mixture.cdf(points), reference.cdf(np.array(quantiles)))
    close(mixture.log_prob(points), reference.logpdf(np.array(quantiles)))
    if math.isfinite(reference.mean):
        close(mixture.mean, reference.mean)
    if math.isfinite(reference.variance):
        close(mixture.variance, reference.variance)
        close(mixture.aleatoric + mixture.epistemic, reference.variance)
        close(mixture.moment_matched().mean, reference.mean)
    for target in (quantiles[0], quantiles[3], quantiles[5], quantiles[8]):
        close(crps(mixture, torch.tensor([target], dtype=torch.float64)), reference.crps(target))


@every_known
@pytest.mark.usefixtures("no_warnings")
def test_information_equals_quadrature(components, laws):
    mixture, reference = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64)), mixed(laws)
    knots = [] if reference.is_whole else reference.knots()

    def divergence(law: Any) -> float:
        def log_ratio(y: Any) -> Any:
            return Reference(law).logpdf(y) - reference.logpdf(y)

        return Reference(law, knots).expectation(lambda y: np.nan_to_num(log_ratio(y), neginf=0.0, posinf=0.0))

    divergences = [divergence(law) for law in laws]
    close(mixture.entropy(), reference.entropy())
    close(mixture.mutual_information, sum(w * d for w, d in zip(WEIGHTS, divergences, strict=True) if w > 0))
    close(mixture.disagreement, sum(d for w, d in zip(WEIGHTS, divergences, strict=True) if w > 0))


def mixed(laws: list[Any]) -> Reference:
    return Reference(MixtureLaw(WEIGHTS, laws))


@every_known
def test_samples_have_the_shares(components, laws):
    mixture = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64))
    torch.manual_seed(0)
    lower, upper = mixture.tails(mixture.sample((4000,)))
    assert (lower.mean() - upper.mean()).item() == pytest.approx(_expected_difference(mixture), abs=0.05)


def _expected_difference(mixture: Mixture) -> float:
    """E[F(Y)] - E[1 - F(Y)]: 0 for numbers, P(Y = Y') for counts."""
    if mixture.kind == "numbers":
        return 0.0
    counts = torch.arange(400.0, dtype=torch.float64)[:, None]
    return mixture.log_prob(counts).exp().square().sum().item()


@every_known
@pytest.mark.parametrize("batch", [(), (0,), (2, 3)])
def test_shapes_rows_and_parts(components, laws, batch):
    """Batches of several dimensions, of none, and without rows."""
    places = torch.zeros(batch, dtype=torch.long)
    mixture = Mixture(
        rebuilt(components, lambda parameter: parameter[:, places]), torch.tensor(WEIGHTS, dtype=torch.float64)
    )
    one_row = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64))
    assert mixture.batch_shape == batch
    target = torch.full(batch, one_row.icdf(torch.tensor(0.4)).item(), dtype=torch.float64)
    for measure in (lambda m, y: m.log_prob(y), lambda m, y: m.cdf(y), lambda m, y: m.icdf(torch.tensor(0.4)),
                    lambda m, y: m.entropy(), lambda m, y: crps(m, y)):  # fmt: skip
        value = measure(mixture, target)
        assert value.shape == batch
        expected = measure(one_row, target.reshape(-1)[:1]) if target.numel() else value.new_zeros(1)
        torch.testing.assert_close(value, expected.reshape(()).expand(batch), rtol=1e-9, atol=1e-9)
    assert mixture.sample((5,)).shape == (5, *batch)
    assert mixture.expand((2, *batch)).batch_shape == (2, *batch)
    assert mixture.member(1).batch_shape == batch
    if batch == (2, 3):
        assert mixture[0].batch_shape == (3,)
        assert concatenated([mixture[:1], mixture[1:]]).batch_shape == batch


@every_known
def test_single_precision_is_finite(components, laws):
    single = Mixture(rebuilt(components, lambda parameter: parameter.float()), torch.tensor(WEIGHTS, dtype=torch.float64))
    double = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64))
    target = double.icdf(torch.tensor([0.4])).float()
    for measure in (lambda m: m.entropy(), lambda m: m.cdf(target), lambda m: crps(m, target)):
        torch.testing.assert_close(measure(single).double(), measure(double).double(), rtol=2e-3, atol=1e-4)


class Triangle(Distribution):
    """A user's family with nothing but a density, a distribution function and a support."""

    arg_constraints: ClassVar = {"width": constraints.positive}

    def __init__(self, width: Tensor, validate_args: bool | None = None) -> None:
        self.width = width
        super().__init__(width.shape, validate_args=False)

    @property
    def support(self):
        return constraints.interval(torch.zeros_like(self.width), self.width)

    def log_prob(self, value: Tensor) -> Tensor:
        return (2 * value / self.width**2).log()

    def cdf(self, value: Tensor) -> Tensor:
        return (value / self.width) ** 2


@pytest.mark.usefixtures("no_warnings")
def test_what_a_family_leaves_out_is_computed():
    mixture = Mixture(Triangle(column((1.0, 2.0))))
    triangles = [stats.triang(1, scale=width) for width in (1.0, 2.0)]
    reference = Reference(MixtureLaw((0.5, 0.5), triangles), [1.0])
    close(mixture.mean, reference.mean)
    close(mixture.variance, reference.variance)
    close(mixture.entropy(), reference.entropy())
    close(mixture.icdf(torch.tensor(0.3, dtype=torch.float64)), reference.quantile(0.3))
    close(crps(mixture, torch.tensor([0.4], dtype=torch.float64)), reference.crps(0.4))
    torch.manual_seed(0)
    assert mixture.sample((5000,)).mean().item() == pytest.approx(reference.mean, abs=0.03)


class Doubled(transforms.Transform):
    """A transform that does not say whether it rises, which is left to torch's own error."""

    domain = codomain = constraints.real
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        return 2 * x

    def _inverse(self, y: Tensor) -> Tensor:
        return y / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.full_like(x, math.log(2))


third = torch.full((4, 1, 3), 1 / 3, dtype=torch.float64)
square = torch.eye(2, dtype=torch.float64).expand(4, 1, 2, 2)
OTHERS: dict[str, Distribution] = {
    "von_mises": td.VonMises(p, b),
    "kumaraswamy": td.Kumaraswamy(a, b),
    "continuous_bernoulli": td.ContinuousBernoulli(p),
    "relaxed_bernoulli": td.RelaxedBernoulli(torch.tensor(0.7, dtype=torch.float64), probs=p),
    "folded": td.TransformedDistribution(td.Normal(loc, a), [transforms.AbsTransform()]),
    "doubled": td.TransformedDistribution(td.Normal(loc, a), [Doubled()]),
    "logistic_normal": td.LogisticNormal(third[..., :2], third[..., :2]),
    "dirichlet": td.Dirichlet(third),
    "fisher_snedecor": td.FisherSnedecor(a + 1, b + 5),
    "one_hot": td.OneHotCategorical(third),
    "multinomial": td.Multinomial(5, third),
    "low_rank": td.LowRankMultivariateNormal(third, third[..., None], third),
    "multivariate_normal": td.MultivariateNormal(third[..., :2], square),
    "independent": td.Independent(td.Exponential(third), 1),
    "wishart": td.Wishart(5 * one, square),
    "lkj": td.LKJCholesky(3, a),
    "delta": own.Delta(loc),
    "categorical": td.Categorical(third),
    "ordered": own.Ordered(third),
}
QUESTIONS: dict[str, Callable[[Mixture, Tensor], Any]] = {
    "log_prob": lambda mixture, y: mixture.log_prob(y),
    "cdf": lambda mixture, y: mixture.cdf(y),
    "tails": lambda mixture, y: mixture.tails(y)[1],
    "icdf": lambda mixture, y: mixture.icdf(torch.tensor(0.3)),
    **{name: partial(lambda mixture, y, name: getattr(mixture, name), name=name)
       for name in ("mean", "variance", "aleatoric", "epistemic", "mutual_information", "disagreement")},
    "entropy": lambda mixture, y: mixture.entropy(),
    "moment_matched": lambda mixture, y: mixture.moment_matched().sample(),
    "rows": lambda mixture, y: mixture[[0, 0]].sample(),
    "expand": lambda mixture, y: mixture.expand((3, 1)).sample(),
    "member": lambda mixture, y: mixture.member(1).sample(),
    "crps": crps,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("components", OTHERS.values(), ids=OTHERS)
def test_is_finite_or_refused_in_one_sentence(components, question):
    mixture = Mixture(components, torch.tensor(WEIGHTS, dtype=torch.float64))
    torch.manual_seed(0)
    target = mixture.sample()
    try:
        answer = QUESTIONS[question](mixture, target)
    except (TypeError, ValueError, NotImplementedError) as error:
        message = str(error)
    else:
        assert bool(answer.isfinite().all())
        return
    assert 20 < len(message) <= 300
    names = (own.family(components), "Mixture", "crps", "a point prediction has no density; use")
    assert any(name in message for name in names)


def test_the_number_of_trials_is_kept():
    assert (Mixture(td.Multinomial(5, third)).member(0).sample().sum(-1) == 5).all()


def test_tails_too_heavy_for_the_score_are_refused():
    with pytest.raises(ValueError, match="the `crps` of StudentT is infinite, or nearly so"):
        crps(Mixture(own.StudentT(one * 0.5, zero, one)), torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(("df", "expected"), [(1.0, 2 * math.log(2) / math.pi)])
def test_the_score_of_heavy_tails_is_finite(df, expected):
    """Of a standard Cauchy at 0: 2 ∫ (1 - F)² = 2 log 2 / π."""
    heavy = own.StudentT(*(torch.tensor([value], dtype=torch.float64) for value in (df, 0.0, 1.0)))
    close(crps(heavy, torch.zeros(1, dtype=torch.float64)), expected)

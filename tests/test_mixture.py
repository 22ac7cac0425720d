"""The mixture against SciPy, torch's own mixture and quadrature."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm
from torch import Tensor
from torch.distributions import (
    Categorical,
    Cauchy,
    Distribution,
    Exponential,
    Gumbel,
    Independent,
    Laplace,
    LogNormal,
    MixtureSameFamily,
    Normal,
    StudentT,
    Uniform,
)

from deep_ensembles._random import seeded
from deep_ensembles.distributions import Delta
from deep_ensembles.mixture import Mixture, concatenated

quick = settings(deadline=None, derandomize=True, max_examples=60)
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normals(*batch: int) -> Normal:
    """Three members."""
    return Normal(3 * noise(3, *batch), noise(3, *batch, seed=1).exp())


def several(*batch: int) -> Independent:
    """Three members, two targets."""
    return Independent(normals(*batch, 2), 1)


def classes(*batch: int) -> Categorical:
    """Three members, four classes."""
    return Categorical(logits=noise(3, *batch, 4))


def points(*batch: int) -> Delta:
    return Delta(noise(3, *batch))


def column(*values: float) -> Tensor:
    """One value per member, for a batch of one."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


EASY = Mixture(Normal(column(0.0, 2.0), column(1.0, 0.5)))
UNEVEN = Mixture(Normal(column(0.0, 2.0), column(1.0, 0.5)), torch.tensor([0.9, 0.1], dtype=torch.float64))
FAR = Mixture(Normal(column(0.0, 1e3), column(1.0, 1e-2)), torch.tensor([0.3, 0.7]))
NESTED = Mixture(Normal(column(0.0, 0.0, 5.0), column(1.0, 1e-3, 20.0)), WEIGHTS)
FURTHER = Mixture(Normal(column(-1e6, 1e6), column(1e-3, 1e3)))
every_mixture = pytest.mark.parametrize(
    "mixture", [EASY, UNEVEN, FAR, NESTED, FURTHER], ids=["easy", "uneven", "far", "nested", "further"]
)
every_family = pytest.mark.parametrize("family", [normals, several, classes, points])


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    n = draw(st.integers(1, 5))
    columns = [draw(st.lists(each, min_size=n, max_size=n))
               for each in (st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0.01, 1))]  # fmt: skip
    return Mixture(Normal(column(*columns[0]), column(*columns[1])), torch.tensor(columns[2], dtype=torch.float64))


class TestDensities:
    @every_mixture
    def test_log_prob_and_cdf_equal_scipy(self, mixture):
        m, s = mixture.components.mean.numpy(), mixture.components.stddev.numpy()
        values = np.concatenate([m + s * z for z in (-3, -0.5, 0, 1, 3)])[:, 0]
        weights = mixture.weights.numpy()
        given = torch.tensor(values)[:, None]
        np.testing.assert_allclose(
            mixture.log_prob(given)[:, 0], np.log(weights @ norm.pdf(values, m, s)), rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(mixture.cdf(given)[:, 0], weights @ norm.cdf(values, m, s), rtol=1e-10, atol=0)

    def test_log_prob_far_out_does_not_underflow(self):
        value = torch.tensor([100.0], dtype=torch.float64)
        expected = np.logaddexp(norm.logpdf(100, 0, 1), norm.logpdf(100, 2, 0.5)) - math.log(2)
        assert EASY.log_prob(value).item() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
    @pytest.mark.parametrize("sample", [(), (5,), (5, 1)])
    def test_equals_torchs_mixture(self, batch, sample):
        components = normals(*batch)
        ours = Mixture(components, WEIGHTS)
        last = Normal(components.loc.movedim(0, -1), components.scale.movedim(0, -1))
        theirs = MixtureSameFamily(Categorical(WEIGHTS.expand(*batch, 3)), last)
        value = noise(*sample, *batch, seed=2)
        torch.testing.assert_close(ours.log_prob(value), theirs.log_prob(value))
        torch.testing.assert_close(ours.cdf(value), theirs.cdf(value))
        torch.testing.assert_close(ours.mean, theirs.mean)
        torch.testing.assert_close(ours.variance, theirs.variance)

    def test_several_targets_equal_torchs_mixture(self):
        components = several(4)
        last = Independent(Normal(components.mean.movedim(0, 1), components.stddev.movedim(0, 1)), 1)
        theirs = MixtureSameFamily(Categorical(WEIGHTS.expand(4, 3)), last)
        ours, value = Mixture(components, WEIGHTS), noise(6, 4, 2, seed=2)
        assert (ours.batch_shape, ours.event_shape) == ((4,), (2,))
        torch.testing.assert_close(ours.log_prob(value), theirs.log_prob(value))
        torch.testing.assert_close(ours.mean, theirs.mean)
        torch.testing.assert_close(ours.variance, theirs.variance)

    def test_cdf_of_several_targets_is_of_each(self):
        components, value = several(4), noise(4, 2, seed=2)
        for t in range(2):
            alone = Mixture(Normal(components.mean[..., t], components.stddev[..., t]), WEIGHTS)
            joint = Mixture(components, WEIGHTS)
            torch.testing.assert_close(joint.cdf(value)[:, t], alone.cdf(value[:, t]))
            torch.testing.assert_close(joint.icdf(torch.tensor(0.3))[:, t], alone.icdf(torch.tensor(0.3)))

    def test_a_value_is_broadcast_over_the_batch(self):
        mixture = Mixture(normals(4), WEIGHTS)
        torch.testing.assert_close(mixture.log_prob(torch.tensor(0.5)), mixture.log_prob(torch.full((4,), 0.5)))
        assert mixture.cdf(torch.tensor(0.5)).shape == (4,)

    def test_is_differentiable(self):
        leaf = noise(3, 4).requires_grad_()
        function = lambda means: Mixture(Normal(means, torch.ones_like(means)), WEIGHTS).log_prob(noise(4, seed=2))  # noqa: E731
        assert torch.autograd.gradcheck(function, leaf)


# Levels from the far lower to the far upper tail; the upper one is as fine as numbers below 1 are.
TAIL = 10.0 ** torch.linspace(-300, -1, 300, dtype=torch.float64)
FINE = torch.cat([TAIL, torch.linspace(0.1, 0.9, 4001, dtype=torch.float64), 1 - TAIL[TAIL > 1e-16].flip(0)])[:, None]


class TestQuantiles:
    @every_mixture
    def test_inverts_the_cdf(self, mixture):
        levels = [1e-12, 1e-6, 0.01, 0.25, 0.3, 0.5, 0.7, 0.75, 0.99, 1 - 1e-6, 1 - 1e-12]
        assert_inverse(mixture, torch.tensor(levels, dtype=torch.float64))

    @quick
    @given(mixture=mixtures(), level=st.floats(1e-12, 1 - 1e-12))
    def test_inverts_any_cdf(self, mixture, level):
        assert_inverse(mixture, torch.tensor([level], dtype=torch.float64))

    @pytest.mark.parametrize("kind", ["uniform", "uneven", "partly zero"])
    def test_members_of_very_different_spread(self, kind):
        for chunk in range(14):
            assert_inverse(*random_mixtures(chunk, kind, n_rows=500))

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["uniform", "uneven", "partly zero"])
    def test_a_million_mixtures(self, kind):
        for chunk in range(100, 270):
            assert_inverse(*random_mixtures(chunk, kind, n_rows=2000))

    @pytest.mark.parametrize("level", [0.3, 0.05, 1 - 1e-9])
    def test_where_steps_alone_go_round_in_circles(self, level):
        means, scales = (72875.6, 72076.9, 71320.5, 71339.9, 70833.3), (62.9, 19.1, 13.7, 1270.5, 31.9)
        mixture = Mixture(Normal(column(*means), column(*scales)))
        cdf = lambda y: np.mean(norm.cdf(y, means, scales)) - level  # noqa: E731
        expected = brentq(cdf, 60_000, 90_000, xtol=1e-10, rtol=1e-14)
        assert mixture.icdf(torch.tensor(level, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-10, abs=0)

    @every_mixture
    def test_never_falls_as_the_level_rises(self, mixture):
        quantiles = mixture.icdf(FINE)
        assert (quantiles[1:] >= quantiles[:-1]).all()
        close = torch.linspace(0.3, 0.3 + 1e-12, 1001, dtype=torch.float64)[:, None]
        assert (mixture.icdf(close).diff(dim=0) >= 0).all()

    def test_equals_an_independent_root(self):
        cdf = lambda y: 0.9 * norm.cdf(y, 0, 1) + 0.1 * norm.cdf(y, 2, 0.5)  # noqa: E731
        for level in (1e-6, 0.1, 0.5, 0.95):
            expected = brentq(lambda y, level=level: cdf(y) - level, -10, 10, xtol=1e-14, rtol=1e-14)
            assert UNEVEN.icdf(torch.tensor(level, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-8)

    def test_of_one_member_equals_scipy(self):
        one = Mixture(Normal(column(3.0), column(2.0)))
        np.testing.assert_allclose(one.icdf(FINE), norm.ppf(FINE, 3, 2), rtol=1e-13, atol=1e-14)

    def test_ends_are_infinite(self):
        assert EASY.icdf(torch.tensor([[0.0], [1.0]])).flatten().tolist() == [-math.inf, math.inf]

    def test_ends_leave_out_members_without_weight(self):
        mixture = Mixture(Uniform(column(0.0, 1.0, -5.0), column(2.0, 4.0, 9.0)), torch.tensor([0.5, 0.5, 0.0]))
        assert mixture.icdf(torch.tensor([[0.0], [0.25], [1.0]])).flatten().tolist() == [0.0, 1.0, 4.0]

    def test_between_members_far_apart_is_the_middle(self):
        mixture = Mixture(Normal(column(-100.0, 100.0), column(1.0, 1.0)))
        assert mixture.icdf(torch.tensor(0.5)).item() == 0

    @pytest.mark.parametrize("family", [Laplace, Gumbel, Cauchy, Uniform, Exponential, LogNormal])
    def test_other_families(self, family):
        first, second = 10 * noise(4, 200), (2 * noise(4, 200, seed=1)).exp()
        parameters = {Uniform: (first, first + second), Exponential: (second,), LogNormal: (first / 10, second.clamp_max(5))}
        mixture = Mixture(family(*parameters.get(family, (first, second))), torch.tensor([0.5, 0.3, 0.2, 0.0]))
        # Free of checks, as torch refuses to ask for the density outside of a support.
        assert_inverse(mixture[:], torch.tensor([1e-6, 0.01, 0.3, 0.5, 0.6, 0.99, 1 - 1e-6]))

    @pytest.mark.parametrize("n_members", [1, 5, 15])
    def test_student_t_of_any_tail(self, n_members):
        degrees = 2.05 + (3 * noise(n_members, 500, seed=2)).exp()
        components = StudentT(degrees, 10 * noise(n_members, 500) + 1e3, (2 * noise(n_members, 500, seed=1)).exp())
        assert_inverse(Mixture(components), torch.tensor([1e-12, 1e-6, 0.05, 0.5, 0.95, 1 - 1e-9], dtype=torch.float64))
        far = torch.tensor([[0.0], [1e-250], [1e-30], [1.0]], dtype=torch.float64)
        few = Mixture(components)[:20]
        quantiles = few.icdf(far)
        assert (quantiles[0] == -math.inf).all()
        assert (quantiles[-1] == math.inf).all()
        torch.testing.assert_close(few.cdf(quantiles), far.expand_as(quantiles), rtol=1e-11, atol=0)

    @pytest.mark.parametrize("n_members", [1, 4])
    def test_members_that_are_mixtures_themselves(self, n_members):
        parts = Normal(10 * noise(n_members, 200, 3), (2 * noise(n_members, 200, 3, seed=1)).exp())
        mixture = Mixture(MixtureSameFamily(Categorical(logits=3 * noise(n_members, 200, 3, seed=2)), parts))
        assert_inverse(mixture, torch.tensor([1e-9, 0.05, 0.5, 0.95, 1 - 1e-9], dtype=torch.float64))

    def test_single_precision(self):
        mixture = Mixture(Normal(3 * noise(3, 500).float(), (3 * noise(3, 500, seed=1)).exp().float()))
        assert_inverse(mixture, torch.tensor([1e-12, 1e-5, 0.05, 0.5, 0.95, 1 - 1e-6]))

    @pytest.mark.parametrize("shape", [(), (4,), (7, 1), (7, 4), (2, 7, 4)])
    def test_shapes(self, shape):
        assert Mixture(normals(4)).icdf(torch.full(shape, 0.5)).shape == torch.broadcast_shapes(shape, (4,))

    @pytest.mark.parametrize(
        ("batch", "shape"), [((), (3,)), ((2, 3), (5, 1, 1)), ((2, 1), (2, 4)), ((0,), ()), ((3,), (0, 3))]
    )
    def test_levels_are_broadcast_over_the_batch(self, batch, shape):
        mixture, levels = Mixture(normals(*batch), WEIGHTS), torch.full(shape, 0.3, dtype=torch.float64)
        quantiles = mixture.icdf(levels)
        assert quantiles.shape == torch.broadcast_shapes(batch, shape)
        torch.testing.assert_close(mixture.cdf(quantiles), torch.full_like(quantiles, 0.3), rtol=1e-14, atol=0)

    @pytest.mark.parametrize("n_members", [5, 50])
    def test_equal_rows_and_levels_have_equal_quantiles(self, n_members):
        mixture = Mixture(Normal(noise(n_members, 1), noise(n_members, 1, seed=1).exp())).expand((1001,))
        quantiles = mixture.icdf(torch.tensor([[0.3], [0.5], [0.5]]))
        assert (quantiles[0] == quantiles[0, 0]).all()
        assert (quantiles[1:] == quantiles[1, 0]).all()

    def test_rows_do_not_depend_on_their_number(self):
        mixture, levels = Mixture(normals(20_000), WEIGHTS), torch.tensor([[0.05], [0.95]])
        torch.testing.assert_close(
            mixture.icdf(levels)[:, 9000:9010], mixture[9000:9010].icdf(levels), rtol=1e-13, atol=1e-14
        )

    def test_is_differentiable(self):
        leaf = noise(3, 4).requires_grad_()
        level = torch.tensor([[0.1], [0.8]], dtype=torch.float64)
        function = lambda means: Mixture(Normal(means, 1 + means.square()), WEIGHTS).icdf(level)  # noqa: E731
        assert torch.autograd.gradcheck(function, leaf)

    @pytest.mark.parametrize("level", [-0.1, 1.1, math.nan])
    def test_refuses_what_is_no_probability(self, level):
        with pytest.raises(ValueError, match="`value` must be probabilities between 0 and 1"):
            EASY.icdf(torch.tensor(level))


def random_mixtures(seed: int, kind: str, n_rows: int) -> tuple[Mixture, Tensor]:
    """Mixtures of 1 to 50 members, spread ratios up to a million, and three levels for each: low, any and high."""
    generator = torch.Generator().manual_seed(seed)
    share = lambda *shape: torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    n_members = 1 + int(50 * share(1) ** 2)
    scales = 1e6 ** (share(n_members, n_rows) * share(1, n_rows))
    means = (
        noise(n_members, n_rows, seed=seed) * scales.amax(0) ** share(n_members, n_rows)
        + 1e6 * noise(seed % 2, seed=seed).sum()
    )
    weights = 1e-6 ** share(n_members) if kind != "uniform" else torch.ones(n_members).double()
    weights[1:][share(n_members - 1) < 0.3 * (kind == "partly zero")] = 0
    tails = 1e-12 ** share(2, n_rows)
    return Mixture(Normal(means, scales), weights), torch.stack([tails[0], share(n_rows), 1 - tails[1]])


def assert_inverse(mixture: Mixture, levels: Tensor) -> None:
    """The cdf is the level up to the rounding of the cdf and of the quantile itself; a higher level is no lower quantile."""
    levels = levels.to(mixture.weights).reshape(len(levels), -1)
    quantiles, eps = mixture.icdf(levels), torch.finfo(mixture.weights.dtype).eps
    rounding = eps * (1 + quantiles.abs() * mixture.log_prob(quantiles).exp())
    assert ((mixture.cdf(quantiles) - levels).abs() <= 4 * rounding).all()
    ordered = mixture.icdf(levels.sort(0).values)
    assert (ordered[1:] >= ordered[:-1]).all()


class TestMoments:
    @quick
    @given(mixture=mixtures())
    def test_law_of_total_variance(self, mixture):
        w = mixture.weights.numpy()
        m, s = mixture.components.mean.numpy()[:, 0], mixture.components.stddev.numpy()[:, 0]
        assert mixture.mean.item() == pytest.approx(w @ m, rel=1e-9, abs=1e-9)
        assert mixture.aleatoric.item() == pytest.approx(w @ s**2, rel=1e-9)
        assert mixture.epistemic.item() == pytest.approx(w @ (m - w @ m) ** 2, rel=1e-9, abs=1e-9)
        assert mixture.variance.item() == pytest.approx((mixture.aleatoric + mixture.epistemic).item(), rel=1e-12)
        second = w @ (s**2 + m**2)
        assert mixture.variance.item() == pytest.approx(second - (w @ m) ** 2, abs=1e-9 * second)

    def test_spread_between_members_survives_a_huge_offset(self):
        mixture = Mixture(Normal(column(1e9, 1e9 + 2), column(1e-3, 1e-3)))
        assert mixture.epistemic.item() == pytest.approx(1.0)
        assert mixture.variance.item() == pytest.approx(1.0 + 1e-6)

    @pytest.mark.parametrize("family", [normals, several])
    def test_moment_matched(self, family):
        mixture = Mixture(family(4), WEIGHTS)
        matched = mixture.moment_matched()
        assert (matched.batch_shape, matched.event_shape) == (mixture.batch_shape, mixture.event_shape)
        torch.testing.assert_close(matched.mean, mixture.mean)
        torch.testing.assert_close(matched.variance, mixture.variance)

    def test_samples_have_the_moments(self):
        mixture = Mixture(normals(4), WEIGHTS)
        with seeded(0):
            draws = mixture.sample((100_000,))
        deviation = mixture.stddev
        assert ((draws.mean(0) - mixture.mean).abs() < 0.02 * deviation).all()
        assert ((draws.std(0) / deviation - 1).abs() < 0.02).all()
        level = (draws <= mixture.icdf(torch.tensor(0.2))).double().mean(0)
        torch.testing.assert_close(level, torch.full((4,), 0.2).double(), rtol=0, atol=0.01)

    def test_targets_of_one_draw_come_from_one_member(self):
        apart = Independent(Normal(torch.tensor([[[0.0, 0.0]], [[100.0, 100.0]]]), torch.ones(2, 1, 2)), 1)
        with seeded(0):
            draws = Mixture(apart, torch.tensor([0.25, 0.75])).sample((10_000,))[:, 0]
        assert torch.equal(draws[:, 0] > 50, draws[:, 1] > 50)
        assert (draws[:, 0] > 50).double().mean().item() == pytest.approx(0.75, abs=0.02)

    @every_family
    @pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
    @pytest.mark.parametrize("shape", [(), (5,), (2, 5)])
    def test_shape_of_samples(self, family, batch, shape):
        mixture = Mixture(family(*batch))
        draws = mixture.sample(shape)
        assert draws.shape == (*shape, *batch, *mixture.event_shape)
        assert not draws.requires_grad

    @pytest.mark.parametrize("family", [normals, several, points])
    def test_no_samples(self, family):
        assert Mixture(family(4)).sample((0,)).shape[:2] == (0, 4)
        assert Mixture(family(0)).sample((5,)).shape[:2] == (5, 0)


class TestFarTails:
    """As exact as SciPy where torch's own normal distribution has lost all digits."""

    def test_of_one_member(self):
        z = torch.linspace(-37, 8, 2001, dtype=torch.float64)
        one = Mixture(Normal(column(0.0), column(1.0)))
        np.testing.assert_allclose(one.cdf(z[:, None])[:, 0], ndtr(z.numpy()), rtol=2e-13, atol=0)
        for value, level in zip(z[::200], ndtr(z.numpy())[::200], strict=True):
            assert one.cdf(value[None]).item() == pytest.approx(level, rel=2e-13, abs=0)

    def test_in_single_precision(self):
        z = torch.linspace(-12, 5, 2001)
        np.testing.assert_allclose(
            Mixture(Normal(torch.zeros(1, 1), 1.0)).cdf(z[:, None])[:, 0], ndtr(z.double().numpy()), rtol=3e-5
        )

    @pytest.mark.parametrize("level", [1e-300, 1e-100, 1e-20, 1e-16, 1e-15, 1e-9])
    def test_of_two_members(self, level):
        two = Mixture(Normal(column(0.0, 1.0), column(1.0, 1.0)))
        point = two.icdf(torch.tensor(level, dtype=torch.float64))
        below = (ndtr(point.item()) + ndtr(point.item() - 1)) / 2
        assert below == pytest.approx(level, rel=1e-12, abs=0)
        assert two.cdf(point).item() == pytest.approx(level, rel=1e-12, abs=0)

    @pytest.mark.parametrize("level", [1e-15, 1e-12, 1e-9])
    def test_above_the_mean(self, level):
        """As far above as the same level lies below, in a mixture that is turned round."""
        upper = UNEVEN.icdf(torch.tensor(1 - level, dtype=torch.float64)).item()
        turned = Mixture(Normal(-UNEVEN.components.loc, UNEVEN.components.scale), UNEVEN.weights)
        lower = turned.icdf(torch.tensor(1 - (1 - level), dtype=torch.float64)).item()
        assert upper == pytest.approx(-lower, rel=1e-13, abs=0)


class TestOneMember:
    """A mixture of one is the single model."""

    @pytest.mark.parametrize("family", [normals, several, classes])
    def test_log_prob(self, family):
        components, value = family(4), torch.ones(4, 2) if family is several else torch.ones(4)
        assert_same(Mixture(_first(components)).log_prob(value), components.log_prob(value)[0])

    @pytest.mark.parametrize("family", [normals, several, points])
    def test_moments_and_quantiles(self, family):
        alone = Mixture(_first(family(4)))
        single = alone.member(0)
        marginal = single.base_dist if isinstance(single, Independent) else single
        assert torch.equal(alone.mean, single.mean)
        assert torch.equal(alone.variance, single.variance)
        assert torch.equal(alone.aleatoric, single.variance)
        assert (alone.epistemic == 0).all()
        for level in (0.0, 1e-6, 0.1, 0.5, 0.975, 1.0):
            expected = marginal.icdf(torch.full((), level, dtype=torch.float64))
            torch.testing.assert_close(alone.icdf(torch.tensor(level, dtype=torch.float64)), expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(alone.cdf(single.mean + 0.5), marginal.cdf(single.mean + 0.5), rtol=1e-12, atol=0)

    @pytest.mark.parametrize("family", [normals, classes])
    def test_information(self, family):
        alone = Mixture(_first(family(4)))
        torch.testing.assert_close(alone.entropy(), alone.member(0).entropy(), rtol=1e-9, atol=1e-9)
        assert (alone.mutual_information < 1e-9).all()
        assert (alone.disagreement < 1e-9).all()

    def test_probabilities(self):
        alone = Mixture(_first(classes(4)))
        assert_same(alone.probs, classes(4).probs[0])
        assert_same(alone.logits, classes(4).logits[0])


def assert_same(one: Tensor, two: Tensor) -> None:
    """Equal but for the last bits, which classes lose when their logits are normalised anew."""
    torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


def _first(components: Distribution) -> Distribution:
    """The components of the first member alone, the member axis kept."""
    if isinstance(components, Categorical):
        return Categorical(logits=components.logits[:1])
    if isinstance(components, Delta):
        return Delta(components.loc[:1])
    if isinstance(components, Independent):
        return Independent(_first(components.base_dist), 1)
    return Normal(components.loc[:1], components.scale[:1])


class TestInformation:
    @every_mixture
    def test_normals_equal_quadrature(self, mixture):
        m, s, w = mixture.components.mean.numpy()[:, 0], mixture.components.stddev.numpy()[:, 0], mixture.weights.numpy()
        crossed = np.array([_cross_entropy(m, s, w, member) for member in range(len(w))])
        own = 0.5 * np.log(2 * np.pi * np.e * s**2)
        assert mixture.entropy().item() == pytest.approx(w @ crossed, rel=1e-7, abs=1e-9)
        assert mixture.mutual_information.item() == pytest.approx(w @ (crossed - own), rel=1e-6, abs=1e-8)
        assert mixture.disagreement.item() == pytest.approx((crossed - own).sum(), rel=1e-6, abs=1e-8)

    def test_heavier_tails_equal_quadrature(self):
        mixture = Mixture(StudentT(torch.full((2, 1), 5.0).double(), column(0.0, 3.0), column(1.0, 0.5)))

        def integrand(y: float) -> float:
            log = mixture.log_prob(torch.tensor([y], dtype=torch.float64)).item()
            return -log * math.exp(log)

        expected = sum(quad(integrand, a, b)[0] for a, b in [(-math.inf, 0), (0, 3), (3, math.inf)])
        assert mixture.entropy().item() == pytest.approx(expected, rel=1e-5)

    def test_classes_are_exact(self):
        mixture = Mixture(classes(5), WEIGHTS)
        p = mixture.components.probs
        mean = (WEIGHTS[:, None, None] * p).sum(0)
        total = -(mean * mean.log()).sum(-1)
        divergences = (p * (p / mean).log()).sum(-1)
        torch.testing.assert_close(mixture.entropy(), total)
        torch.testing.assert_close(mixture.mutual_information, (WEIGHTS[:, None] * divergences).sum(0))
        torch.testing.assert_close(mixture.disagreement, divergences.sum(0))
        torch.testing.assert_close(mixture.aleatoric + mixture.epistemic, total)

    def test_classes_that_are_certain(self):
        agree = Mixture(Categorical(logits=torch.tensor([[[0.0, -1e15]], [[0.0, -1e15]]])))
        differ = Mixture(Categorical(logits=torch.tensor([[[0.0, -1e15]], [[-1e15, 0.0]]])))
        assert agree.entropy().item() == agree.mutual_information.item() == 0
        assert differ.entropy().item() == pytest.approx(math.log(2))
        assert differ.mutual_information.item() == pytest.approx(math.log(2))

    @pytest.mark.parametrize("family", [normals, classes])
    def test_disagreement_is_members_times_mutual_information(self, family):
        mixture = Mixture(family(4))
        torch.testing.assert_close(mixture.disagreement, 3 * mixture.mutual_information)

    @quick
    @given(mixture=mixtures())
    def test_mutual_information_has_its_bounds(self, mixture):
        information = mixture.mutual_information.item()
        assert 0 <= information <= -(mixture.weights * mixture.weights.log()).sum().item() + 1e-6

    @pytest.mark.parametrize("family", [normals, classes])
    @pytest.mark.parametrize("batch", [(), (2, 4)])
    def test_shapes(self, family, batch):
        mixture = Mixture(family(*batch))
        assert mixture.entropy().shape == mixture.mutual_information.shape == mixture.disagreement.shape == batch

    def test_no_rows(self):
        mixture = Mixture(normals(0))
        assert mixture.entropy().shape == mixture.mutual_information.shape == mixture.disagreement.shape == (0,)

    def test_many_rows_are_integrated_in_chunks(self):
        mixture = Mixture(normals(5000), WEIGHTS)
        torch.testing.assert_close(mixture.entropy()[4990:], mixture[4990:].entropy())

    def test_several_targets_are_refused(self):
        with pytest.raises(TypeError, match="use `variance`"):
            Mixture(several(4)).entropy()


def _cross_entropy(m: np.ndarray, s: np.ndarray, w: np.ndarray, member: int) -> float:
    """-E[log p] under one member, over ±37 of its deviations, cut at the knots of every component."""

    def integrand(y: float) -> float:
        logs = norm.logpdf(y, m, s)
        return -math.exp(logs[member]) * np.logaddexp.reduce(logs + np.log(w))

    knots = (m[:, None] + s[:, None] * np.array([-10, -6, -3, -1, 0, 1, 3, 6, 10])).ravel()
    low, high = m[member] - 37 * s[member], m[member] + 37 * s[member]
    edges = sorted({low, high, *(knot for knot in knots if low < knot < high)})
    return sum(quad(integrand, a, b, epsabs=1e-12)[0] for a, b in pairwise(edges))


class TestClasses:
    def test_probabilities_are_averaged(self):
        mixture = Mixture(classes(5), WEIGHTS)
        expected = (WEIGHTS[:, None, None] * mixture.components.probs).sum(0)
        torch.testing.assert_close(mixture.probs, expected)
        torch.testing.assert_close(mixture.logits, expected.log())
        torch.testing.assert_close(mixture.confidence, expected.amax(-1))
        assert torch.equal(mixture.mode, expected.argmax(-1))
        torch.testing.assert_close(mixture.log_prob(torch.arange(5) % 4), expected.log()[range(5), torch.arange(5) % 4])
        torch.testing.assert_close(mixture.moment_matched().probs, expected)

    def test_logits_of_what_is_nearly_impossible(self):
        mixture = Mixture(Categorical(logits=torch.tensor([[[0.0, -1000.0]], [[0.0, -1010.0]]], dtype=torch.float64)))
        expected = np.logaddexp(-1000, -1010) - math.log(2)
        assert mixture.logits[0, 1].item() == pytest.approx(expected, rel=1e-12)

    def test_samples_have_the_probabilities(self):
        mixture = Mixture(classes(2), WEIGHTS)
        with seeded(0):
            draws = mixture.sample((50_000,))
        frequencies = torch.nn.functional.one_hot(draws, 4).double().mean(0)
        torch.testing.assert_close(frequencies, mixture.probs, rtol=0, atol=0.01)

    @pytest.mark.parametrize("name", ["probs", "logits", "confidence", "mode"])
    def test_a_continuous_prediction_has_none(self, name):
        with pytest.raises(AttributeError, match="needs a prediction over classes"):
            getattr(Mixture(normals(4)), name)


class TestPoints:
    """Members that predict a value and nothing else."""

    def test_variance_is_the_empirical_variance(self):
        mixture = Mixture(points(6))
        values = mixture.components.loc
        torch.testing.assert_close(mixture.mean, values.mean(0))
        torch.testing.assert_close(mixture.variance, values.var(0, correction=0))
        assert (mixture.aleatoric == 0).all()
        torch.testing.assert_close(mixture.moment_matched().stddev, values.std(0, correction=0))

    @pytest.mark.parametrize("level", [0.1, 0.4, 0.75, 0.99])
    def test_quantiles_are_values_of_members(self, level):
        """The least value y with cdf(y) ≥ q."""
        values = torch.tensor([[5.0, -1.0], [0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
        quantiles = Mixture(Delta(values), WEIGHTS).icdf(torch.tensor(level))
        for i in range(2):
            order = values[:, i].argsort()
            place = int((WEIGHTS[order].cumsum(0) < level).sum())
            assert quantiles[i].item() == values[order[place], i].item()

    def test_quantiles_are_near_values_of_members(self):
        values = noise(7, 20)
        quantiles = Mixture(Delta(values)).icdf(torch.tensor([[0.1], [0.5], [0.9]]))
        expected = np.quantile(values, [0.1, 0.5, 0.9], axis=0, method="inverted_cdf")
        np.testing.assert_allclose(quantiles, expected, rtol=1e-12, atol=1e-12)

    def test_there_is_no_density(self):
        for ask in (lambda: Mixture(points(2)).log_prob(torch.zeros(2)), lambda: Mixture(points(2)).entropy()):
            with pytest.raises(NotImplementedError, match="no density"):
                ask()


class TestParts:
    @every_family
    def test_member(self, family):
        components = family(4)
        member = Mixture(components).member(2)
        assert type(member) is type(components)
        assert (member.batch_shape, member.event_shape) == ((4,), components.event_shape)
        assert_same(_values(member), _values(components)[2])

    @every_family
    @pytest.mark.parametrize(
        "rows",
        [0, -1, slice(1, 3), slice(None, None, 2), [3, 0], torch.tensor([2, 2]), torch.tensor([True, False, True, False])],
        ids=["first", "last", "slice", "stride", "list", "tensor", "mask"],
    )
    def test_rows(self, family, rows):
        mixture = Mixture(family(4), WEIGHTS)
        assert_same(_values(mixture[rows].components), _values(mixture.components)[:, rows])
        assert torch.equal(mixture[rows].weights, mixture.weights)
        assert mixture[rows].event_shape == mixture.event_shape

    @every_family
    @pytest.mark.parametrize("rows", [(1, 2), (slice(None), 2), (..., 2), (None, 1)], ids=repr)
    def test_rows_of_a_batch_of_two_dimensions(self, family, rows):
        """An index speaks of the batch, never of targets or classes."""
        mixture = Mixture(family(2, 4), WEIGHTS)
        number = torch.arange(8).reshape(2, 4)[rows]
        flat = _values(mixture.components).flatten(1, 2)
        assert mixture[rows].batch_shape == number.shape
        assert_same(_values(mixture[rows].components), flat[:, number])

    @every_family
    def test_more_indices_than_the_batch_has_are_refused(self, family):
        with pytest.raises(IndexError):
            Mixture(family(4))[:, 0]

    @every_family
    @pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
    def test_expand(self, family, shape):
        mixture = Mixture(family(4), WEIGHTS)
        larger = mixture.expand(shape)
        assert (larger.batch_shape, larger.event_shape) == (shape, mixture.event_shape)
        assert torch.equal(larger.weights, mixture.weights)
        assert_same(_values(larger[(0,) * (len(shape) - 1)].components), _values(mixture.components))

    @every_family
    def test_concatenated(self, family):
        mixture = Mixture(family(5), WEIGHTS)
        joined = concatenated([mixture[:2], mixture[2:3], mixture[3:]])
        assert_same(_values(joined.components), _values(mixture.components))
        assert torch.equal(joined.weights, mixture.weights)
        assert (joined.batch_shape, joined.event_shape) == ((5,), mixture.event_shape)

    def test_repr(self):
        assert repr(Mixture(several(4))) == "Mixture(3 × Normal, batch=[4], event=[2])"
        assert Mixture(several(4)).n_members == 3


def _values(distribution: Distribution) -> Tensor:
    """What distinguishes the predictions of a test: logits of classes, else means."""
    return distribution.logits if isinstance(distribution, Categorical) else distribution.mean


class TestWeights:
    def test_are_uniform_unless_given(self):
        assert Mixture(normals(4)).weights.tolist() == pytest.approx([1 / 3] * 3)

    def test_are_normalised(self):
        assert Mixture(normals(4), torch.tensor([1, 3, 4])).weights.tolist() == [0.125, 0.375, 0.5]
        assert Mixture(normals(4), [1, 3, 4]).weights.dtype == torch.float64

    @pytest.mark.parametrize("family", [normals, classes])
    def test_a_member_of_weight_zero_has_no_say(self, family):
        components, value = family(4), torch.ones(4)
        without, alone = Mixture(components, torch.tensor([1.0, 0.0, 0.0])), Mixture(_first(components))
        torch.testing.assert_close(without.log_prob(value), alone.log_prob(value))
        torch.testing.assert_close(without.entropy(), alone.entropy())
        assert (without.mutual_information < 1e-9).all()
        if family is normals:
            torch.testing.assert_close(without.variance, alone.variance)
            torch.testing.assert_close(without.icdf(torch.tensor(0.2)), alone.icdf(torch.tensor(0.2)))

    @pytest.mark.parametrize(
        "weights", [[1, 1], [1, 1, 1, 1], [[1, 1, 1]], [0, 0, 0], [1, -1, 1], [1, math.nan, 1], [1, math.inf, 1]], ids=repr
    )
    def test_bad_ones_are_refused(self, weights):
        with pytest.raises(ValueError, match=r"^`weights` must be 3 finite numbers ≥ 0, not all 0, got \["):
            Mixture(normals(4), torch.tensor(weights, dtype=torch.float64))

    def test_components_need_members(self):
        with pytest.raises(ValueError, match=r"^`components` must have a batch shape"):
            Mixture(Normal(0.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_information_is_finite_where_a_member_without_weight_sees_only_what_the_others_exclude(dtype):
    torch.manual_seed(0)
    logits = torch.randn(2, 200, 1000, dtype=dtype)
    logits[0, :, 500:] = -torch.inf
    logits[1, :, :500] = -torch.inf
    mixture = Mixture(torch.distributions.Categorical(logits=logits, validate_args=False), torch.tensor([1.0, 0.0]))
    for measure in (mixture.entropy(), mixture.mutual_information, mixture.disagreement):
        assert bool(measure.isfinite().all())

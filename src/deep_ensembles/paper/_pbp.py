"""Assumed-density filtering of many runs at once: examples one after another, then the priors of the weights."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

# Shape and rate of both gamma priors: as if the mean square of 12 weights, and of 12 residuals, had been seen to be 1.
_PRIOR = (6.0, 6.0)
# A weight that knows nothing but its prior has an infinite cavity variance: there is nothing to refine then.
_GREATEST_CAVITY = 1e6
# An update that takes more than this share of a variance is refused.
_GREATEST_SHRINK = 1 - 1e-9


class Filter:
    """The state of training.

    Shape:
        hidden `[run, 2, input + 1, hidden]` and output `[run, 2, hidden + 1]`: means and variances of the weights;
        noise and prior `[run, 2]`: shape and rate of the precisions' gamma distributions. Per weight, what its prior
        factor adds to its own precision `[run, weight]`, and to the prior's shape and rate `[run, weight, 2]`.
    """

    def __init__(self, means: tuple[Tensor, Tensor]) -> None:
        n_runs = len(means[0])
        variance = _PRIOR[1] / (_PRIOR[0] - 1)
        self.hidden, self.output = (torch.stack([mean, torch.full_like(mean, variance)], dim=1) for mean in means)
        self.noise, self.prior = (means[0].new_tensor(_PRIOR).repeat(n_runs, 1) for _ in range(2))
        n_weights = sum(mean[0].numel() for mean in means)
        self._site_precision = means[0].new_full((n_runs, n_weights), 1 / variance)
        self._site_gamma = means[0].new_zeros(n_runs, n_weights, 2)
        self._steps = torch.empty_like(self.hidden)

    def update(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Learn examples `[step, run, 2, 1, input + 1]` and `[step, run, 1]`; the summed log-evidence of each run."""
        examples = zip(inputs.unbind(), targets.unbind(), strict=True)
        return torch.stack([self._learn(x, y) for x, y in examples]).sum(0)

    def _learn(self, x: Tensor, y: Tensor) -> Tensor:
        """Move every distribution by one example per run, in place; the example's log-evidence `[run]`."""
        hidden = rectified(Moments(*(x @ self.hidden).squeeze(2).unbind(1)))
        inputs, weights = activations(hidden.moments), Moments(*self.output.unbind(1))
        predicted = output_moments(weights, inputs)
        residual = y - predicted.mean
        total = total_variances(predicted.variance, self.noise)
        by = evidence_gradient(residual, total)
        to_weights, to_inputs = factor_gradient(weights, inputs, by), factor_gradient(inputs, weights, by)
        to_hidden = hidden.backward(Moments(to_inputs.mean[:, :-1], to_inputs.variance[:, :-1]))
        _move(self.hidden, torch.mul(_relative_steps(to_hidden).unsqueeze(2), x.mT, out=self._steps))
        _move(self.output, _relative_steps(to_weights))
        log_z = log_evidence(residual, total)
        self.noise = matched_gamma(self.noise, log_z)
        return log_z[:, 0]

    def refine_prior(self) -> None:
        """Take each weight's prior factor out, match it anew, and put it back: one sweep of expectation propagation.

        All weights are refined together, each against the prior without its own factor, where the paper goes from weight
        to weight; both settle at the same point, though one sweep per epoch leads there at another pace. The weight itself
        gets a normal factor with the prior's mean variance.
        """
        mean, variance = (torch.cat([self.hidden[:, i].flatten(1), self.output[:, i]], dim=1) for i in range(2))
        cavity = 1 / (1 / variance - self._site_precision)
        centre = mean * cavity / variance
        without = self.prior.unsqueeze(1) - self._site_gamma
        usable = (cavity > 0) & (cavity < _GREATEST_CAVITY) & (without[..., 0] > 1) & (without[..., 1] > 0)
        log_z = log_evidence(centre.unsqueeze(-1), total_variances(cavity.unsqueeze(-1), without))
        site = torch.where(usable.unsqueeze(-1), matched_gamma(without, log_z) - without, self._site_gamma)
        prior = self.prior + (site - self._site_gamma).sum(1)
        usable &= ((prior[:, 0] > 1) & (prior[:, 1] > 0)).unsqueeze(1)
        self.prior = torch.where(usable.any(1, keepdim=True), prior, self.prior)
        self._site_gamma = torch.where(usable.unsqueeze(-1), site, self._site_gamma)
        self._site_precision = torch.where(usable, (without[..., 0] - 1) / without[..., 1], self._site_precision)
        refined = 1 / (1 / cavity + self._site_precision)
        moments = (torch.where(usable, centre * refined / cavity, mean), torch.where(usable, refined, variance))
        for i, moment in enumerate(moments):
            self.hidden[:, i] = moment[:, : -self.output.shape[-1]].reshape_as(self.hidden[:, i])
            self.output[:, i] = moment[:, -self.output.shape[-1] :]


def _relative_steps(by: "Moments") -> Tensor:
    """Of $m' = m + v g$ and $v' = v - v^2 c$, the $g$ and $c$, `[run, 2, …]`."""
    return torch.stack([by.mean, by.mean.square().sub_(by.variance, alpha=2)], dim=1)


def _move(weights: Tensor, steps: Tensor) -> None:
    """Apply steps relative to the variances; a weight whose variance would not stay positive stays as it is."""
    mean, variance = weights.unbind(1)
    steps = steps.mul_(variance.unsqueeze(1))
    change, shrink = steps.unbind(1)
    if not float(shrink.amax()) < _GREATEST_SHRINK:
        valid = (shrink < _GREATEST_SHRINK) & shrink.isfinite() & change.isfinite()
        change, shrink = torch.where(valid, change, 0.0), torch.where(valid, shrink, 0.0)
    mean.add_(change)
    variance.addcmul_(variance, shrink, value=-1)


# Below this many standard deviations the rectifier lets through less than 1e-89 of the scale; squares do not underflow yet.
_LEAST_RATIO = -20.0
# About 1 for an example that does not surprise; far below, the matched shape and rate would overflow.
_LEAST_EXCESS = 1e-9
# Z, Z₁ and Z₂ have the precision's gamma shape raised by 0, 1 and 2: the mean of 1/precision is rate / (shape − 1, 0, + 1).
_RAISED = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)


class Moments(NamedTuple):
    """Means and variances of independent variables, of the same shape; or derivatives by them."""

    mean: Tensor
    variance: Tensor


class Rectified(NamedTuple):
    """Moments of max(0, z) for a normal z, and what their derivatives need."""

    moments: Moments
    deviation: Tensor
    cdf: Tensor
    pdf: Tensor
    ratio: Tensor

    def backward(self, by: Moments) -> Moments:
        r"""Derivatives by the mean and variance of z, from those by the mean and variance of max(0, z).

        $\partial(\bar a, v_a)/\partial m = (\Phi,\ 2\bar a(1-\Phi))$ and
        $\partial(\bar a, v_a)/\partial v = (\phi/2\sqrt v,\ \Phi - u\phi)$.
        """
        doubled = (by.variance * self.moments.mean).mul_(2)
        by_mean = torch.addcmul(doubled, self.cdf, by.mean - doubled)
        by_variance = (by.mean * self.pdf).div_(self.deviation).mul_(0.5)
        by_variance.addcmul_(by.variance, torch.addcmul(self.cdf, self.ratio, self.pdf, value=-1))
        return Moments(by_mean, by_variance)


def rectified(z: Moments) -> Rectified:
    r"""The rectifier's moments: with $\alpha = m/\sqrt v$ and $u(\alpha) = \alpha\Phi(\alpha) + \phi(\alpha)$,

    $\bar a = \sqrt v\, u(\alpha)$ and $v_a = v\,(\Phi(\alpha) - u(\alpha)\,u(-\alpha))$; note $u(-\alpha) = u(\alpha) -
    \alpha$. These are the paper's moments rearranged so that there is no quotient φ/Φ, which is 0/0 for very negative α.
    """
    deviation = z.variance.sqrt()
    alpha = (z.mean / deviation).clamp_min_(_LEAST_RATIO)
    scaled = alpha * -math.sqrt(0.5)
    cdf = torch.erfc(scaled).mul_(0.5)
    pdf = scaled.square_().neg_().exp_().mul_(1 / math.sqrt(2 * math.pi))
    ratio = torch.addcmul(pdf, alpha, cdf)
    share = torch.addcmul(cdf, ratio, ratio - alpha, value=-1).clamp_min_(0)
    return Rectified(Moments(deviation * ratio, z.variance * share), deviation, cdf, pdf, ratio)


def features(standardized: Tensor, n_hidden: int) -> Tensor:
    """Inputs and the bias' 1, scaled for both layers, and their squares: `[..., row, input]` → `[..., 2, row, input + 1]`,
    which times the hidden weights' means and variances are the hidden layer's means and variances."""
    padded = pad(standardized, (0, 1), value=1.0)
    scaled = padded / math.sqrt(padded.shape[-1] * (n_hidden + 1))
    return torch.stack([scaled, scaled.square()], dim=-3)


def activations(hidden: Moments) -> Moments:
    """The hidden units and, last, the constant that carries the output's bias."""
    constant = 1 / math.sqrt(hidden.mean.shape[-1] + 1)
    return Moments(pad(hidden.mean, (0, 1), value=constant), pad(hidden.variance, (0, 1)))


def output_moments(weights: Moments, inputs: Moments) -> Moments:
    r"""Moments of $\sum_i w_i a_i$ for independent $w_i, a_i$: $\sum \bar w\bar a$ and
    $\sum v_w(\bar a^2 + v_a) + \bar w^2 v_a$; both `[..., hidden + 1]` → `[..., 1]`."""
    second = torch.addcmul(inputs.variance, inputs.mean, inputs.mean)
    variances = (weights.variance * second).addcmul_(weights.mean.square(), inputs.variance)
    return Moments((weights.mean * inputs.mean).sum(-1, keepdim=True), variances.sum(-1, keepdim=True))


def factor_gradient(factor: Moments, other: Moments, by: Moments) -> Moments:
    """Derivatives of `output_moments` by one of its two factors, weights or inputs, from those by its results `[..., 1]`."""
    by_mean = (by.mean * other.mean).addcmul_(2 * by.variance * other.variance, factor.mean)
    return Moments(by_mean, torch.addcmul(other.variance, other.mean, other.mean).mul_(by.variance))


def total_variances(variance: Tensor, gamma: Tensor) -> Tensor:
    """Variances under which Z, Z₁ and Z₂ are computed, `[..., 3]`: of a normal variable `[..., 1]`, and of noise whose
    precision has a gamma distribution, shape and rate `[..., 2]`. The Student-t distribution this makes is taken as the
    normal distribution of the same variance."""
    return (gamma[..., 1:] / (gamma[..., :1] + _RAISED)).add_(variance)


def log_evidence(residual: Tensor, total: Tensor) -> Tensor:
    """log Z, log Z₁, log Z₂ `[..., 3]` of a residual `[..., 1]`, but for a constant."""
    return (residual.square() / total).add_(total.log()).mul_(-0.5)


def evidence_gradient(residual: Tensor, total: Tensor) -> Moments:
    """Derivatives of log Z by the predicted mean and variance, `[..., 1]` each."""
    inverse = total[..., :1].reciprocal()
    by_mean = inverse * residual
    return Moments(by_mean, by_mean.square().sub_(inverse).mul_(0.5))


def matched_gamma(gamma: Tensor, log_z: Tensor) -> Tensor:
    r"""The gamma distribution with the moments of the posterior: $\alpha' = [Z Z_2 Z_1^{-2}(\alpha+1)/\alpha - 1]^{-1}$,
    $\beta' = [Z_2 Z_1^{-1}(\alpha+1)/\beta - Z_1 Z^{-1}\alpha/\beta]^{-1}$; as it was where that is none with α' > 1."""
    growth = (log_z[..., 1:] - log_z[..., :-1]).exp_()
    shape, rate = gamma[..., :1], gamma[..., 1:]
    first = growth[..., :1] * shape
    excess = growth[..., 1:] * (shape + 1) - first
    matched = torch.cat([first, rate], dim=-1).div_(excess)
    return torch.where((excess > _LEAST_EXCESS) & (first > excess), matched, gamma)

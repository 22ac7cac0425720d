"""Head and scoring rule together: what a raw network output costs, and how the cost changes with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from deep_ensembles.heads import Categorical, GaussianMixture, HeadFunction, Normal, Point, StudentT
from deep_ensembles.heads.numbers import MOST_DEGREES, MOST_LOGIT
from deep_ensembles.scoring import ScoringRule, log_score, squared_error

_softplus_backward = torch.ops.aten.softplus_backward.grad_input

Derivative = Callable[[Any, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Criterion:
    """The training loss of every sample, ℓ(head(raw), target), and its derivative with respect to the raw output.

    The derivative is automatic; for the usual pairs of head and rule it is written out: on small networks
    automatic differentiation would be most of the cost of a step. Tests hold both to the same value.

    Arguments:
        head: raw output → distribution.
        rule: distribution and target → loss.
    """

    head: HeadFunction
    rule: ScoringRule

    @property
    def is_censored(self) -> bool:
        """Whether targets are pairs of a time and whether it was an event's."""
        return bool(getattr(self.rule, "is_censored", False))

    @property
    def uses_autograd(self) -> bool:
        """Whether the derivative is automatic."""
        return (type(self.head), self.rule) not in _DERIVATIVES

    def losses(self, raw: Tensor, target: Tensor) -> Tensor:
        """One loss per sample, `[run, batch]`."""
        losses = self.rule(self.head(raw), target)
        if losses.shape != raw.shape[:2]:
            raise ValueError(f"`scoring_rule` must give one value per sample {list(raw.shape[:2])}, "
                             f"got {list(losses.shape)}")  # fmt: skip
        return losses

    def raw_gradient(self, raw: Tensor, target: Tensor) -> Tensor:
        """The derivative of each sample's loss with respect to its raw output, shaped like `raw`."""
        known = _DERIVATIVES.get((type(self.head), self.rule))
        if known is not None:
            return known(self.head, raw, target)
        with torch.enable_grad():
            leaf = raw.detach().requires_grad_()
            return torch.autograd.grad(self.losses(leaf, target).sum(), leaf)[0]


def _normal_log_score(head: Normal, raw: Tensor, target: Tensor) -> Tensor:
    """∂/∂µ = (µ - y)/σ² and ∂/∂r₂ = ½ softplus′(r₂) (σ² - (µ - y)²)/σ⁴, in place and in an order that cannot overflow."""
    gradient = raw.clone()
    mean, spread = gradient.chunk(2, dim=-1)
    variance = F.softplus(spread).add_(head.min_variance)
    mean.sub_(target.view(mean.shape))
    of_variance = torch.addcmul(variance, mean, mean, value=-1)
    mean.div_(variance)
    _softplus_backward(of_variance, spread, 1, 20, grad_input=spread).div_(variance.square_()).mul_(0.5)
    return gradient


def _student_t_log_score(head: StudentT, raw: Tensor, target: Tensor) -> Tensor:
    """With m = µ - y, v = σ² and q = (v - m²) / (νv + m²): ∂/∂µ = (ν+1)m / (νv + m²), ∂/∂v = ½ νq/v and

    ∂/∂ν = ½ [ψ(ν/2) - ψ((ν+1)/2) + log(1 + m²/(νv)) + q].
    """
    gradient = raw.clone()
    mean, spread, *tail = gradient.chunk(head.raw_size(1), dim=-1)
    variance = F.softplus(spread).add_(head.min_variance)
    df = head.degrees(tail[0] if tail else mean)
    square = mean.sub_(target.view(mean.shape)).square()
    part = df * variance
    whole = part + square
    quotient = torch.sub(variance, square).div_(whole)
    mean.addcmul_(mean, df).div_(whole)
    if tail:
        half = df.double() / 2
        of_df = torch.digamma(half).sub_(torch.digamma(half + 0.5)).to(raw.dtype)
        of_df.add_(square.div_(part).log1p_()).add_(quotient).masked_fill_(df >= MOST_DEGREES, 0.0)
        _softplus_backward(of_df, tail[0], 1, 20, grad_input=tail[0])
    _softplus_backward(quotient.mul_(df).div_(variance), spread, 1, 20, grad_input=spread)
    gradient[..., mean.shape[-1] :].mul_(0.5)
    return gradient


def _gaussian_mixture_log_score(head: GaussianMixture, raw: Tensor, target: Tensor) -> Tensor:
    """With responsibilities ρ and d = µ - y: ∂/∂a = π - ρ, ∂/∂µ = ρ d/v and ∂/∂v = ½ ρ (v - d²)/v²."""
    gradient = torch.empty_like(raw, memory_format=torch.contiguous_format)
    logits, mean, spread = raw.unflatten(-1, (3, head.k, -1)).unbind(-3)  # [..., k, target]
    of_logits, of_mean, of_spread = gradient.unflatten(-1, (3, head.k, -1)).unbind(-3)
    variance = F.softplus(spread).add_(head.min_variance)
    distance = mean - target.reshape(*raw.shape[:-1], 1, -1)
    pull = distance / variance
    weights = logits.clamp(-MOST_LOGIT, MOST_LOGIT)
    share = (weights - 0.5 * (variance.log() + pull * distance)).softmax(-2)
    torch.sub(weights.softmax(-2), share, out=of_logits)
    of_logits.masked_fill_(weights != logits, 0.0)
    torch.mul(share, pull, out=of_mean)
    of_variance = (1 - pull * distance).div_(variance).mul_(share).mul_(0.5)
    _softplus_backward(of_variance, spread, 1, 20, grad_input=of_spread)
    return gradient


def _categorical_log_score(head: Categorical, raw: Tensor, target: Tensor) -> Tensor:
    """∂/∂r_k = p_k - δ_{k=y}."""
    index = target.long().unsqueeze(-1)
    return raw.softmax(-1).scatter_add_(-1, index, raw.new_full((1,), -1.0).expand(index.shape))


def _point_squared_error(head: Point, raw: Tensor, target: Tensor) -> Tensor:
    """∂/∂r = 2 (r - y), averaged over targets."""
    return (raw - target.view(raw.shape)).mul_(2.0 / raw.shape[-1])


_DERIVATIVES: dict[tuple[type, Any], Derivative] = {
    (Normal, log_score): _normal_log_score,
    (StudentT, log_score): _student_t_log_score,
    (GaussianMixture, log_score): _gaussian_mixture_log_score,
    (Categorical, log_score): _categorical_log_score,
    (Point, squared_error): _point_squared_error,
}

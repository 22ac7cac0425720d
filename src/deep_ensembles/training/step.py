"""One training step, Algorithm 1 of the paper: what a raw output costs, and the gradient of ℓ(x) + ℓ(x′) of every run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional as F

from deep_ensembles._random import Generators, torch_generators
from deep_ensembles.heads import Categorical, GaussianMixture, HeadFunction, Normal, Point, StudentT
from deep_ensembles.heads.numbers import MOST_DEGREES, MOST_LOGIT
from deep_ensembles.members import Members
from deep_ensembles.perturbations import Divergence, Perturbation
from deep_ensembles.scoring import ScoringRule, log_score, squared_error
from deep_ensembles.training.data import Rows

_softplus_backward = torch.ops.aten.softplus_backward.grad_input


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


_DERIVATIVES: dict[tuple[type, Any], Callable[[Any, Tensor, Tensor], Tensor]] = {
    (Normal, log_score): _normal_log_score,
    (StudentT, log_score): _student_t_log_score,
    (GaussianMixture, log_score): _gaussian_mixture_log_score,
    (Categorical, log_score): _categorical_log_score,
    (Point, squared_error): _point_squared_error,
}


@dataclass(frozen=True)
class Algorithm:
    """What the gradient of a step depends on besides the networks: loss and perturbation.

    Arguments:
        criterion: the loss ℓ per sample.
        perturbation: how x′ is found; none for plain training on ℓ(x).
        unlabelled: more rows for a perturbation that needs no targets; theirs mean nothing.
    """

    criterion: Criterion
    perturbation: Perturbation | None
    unlabelled: Rows | None = None

    @property
    def uses_randomness(self) -> bool:
        """Whether the perturbation draws random numbers."""
        return self.perturbation is not None and getattr(self.perturbation, "uses_randomness", True)

    @property
    def needs_target(self) -> bool:
        """Whether x′ costs ℓ(x′, y), and not the divergence of its prediction from that for x."""
        return getattr(self.perturbation, "needs_target", True)

    def uses_autograd(self, members: Members) -> bool:
        """Whether anything in a step differentiates automatically; a user's own perturbation may."""
        perturbs = self.perturbation is not None and getattr(self.perturbation, "uses_autograd", True)
        return members.uses_autograd or self.criterion.uses_autograd or perturbs or not self.needs_target

    def gradient(
        self,
        members: Members,
        inputs: Tensor,
        targets: Tensor,
        coefficient: Tensor | float,
        scale: Tensor | None,
        seeds: Sequence[Sequence[int]],
        unlabelled: Tensor | None = None,
    ) -> Tensor:
        """Put the gradient into the members' buffer; returns the raw output for x.

        Arguments:
            coefficient: what each sample's loss counts for, a number or `[run, batch]`.
            scale: the range of each input dimension by run, for the perturbation.
            seeds: three per run: dropout for x, dropout for x′, the perturbation.
            unlabelled: as many inputs without targets.
        """
        units = members.training_units()
        if len(units) > 1:
            parts = (inputs, targets, coefficient, scale, seeds, unlabelled)
            return torch.cat([self.gradient(unit, *(_of_member(m, part) for part in parts)) for m, unit in enumerate(units)])
        loss = _Loss(self.criterion, members, seeds[0], targets, coefficient)
        reused = self.perturbation is not None and self.needs_target and getattr(self.perturbation, "uses_gradient", True)
        raw = loss.backward(inputs, input_gradient=reused)
        if self.perturbation is None or scale is None:
            return raw
        generators = torch_generators(seeds[2], inputs.device) if self.uses_randomness else None
        if self.needs_target:
            nearby = self._nearby(loss, inputs, raw, scale, generators)
            replace(loss, seeds=seeds[1]).backward(nearby, accumulate=True)
        else:
            self._smooth(loss, inputs, raw, scale, generators, unlabelled)
        return raw

    def _nearby(self, loss: "_Loss", inputs: Tensor, raw: Tensor, scale: Tensor, generators: Generators) -> Tensor:
        """x′ for x with this raw output; gradients and running statistics stay as they are."""
        assert self.perturbation is not None

        def predict(x: Tensor) -> Distribution:
            return self.criterion.head(raw if x is inputs and not x.requires_grad else loss.raw(x))

        nearby = self.perturbation(loss, predict, inputs, scale, generators)
        loss.restore()
        if nearby.shape != inputs.shape:
            raise ValueError(f"`perturbation` must keep the shape {list(inputs.shape)}, got {list(nearby.shape)}")
        return nearby.detach()

    def _smooth(
        self, loss: "_Loss", inputs: Tensor, raw: Tensor, scale: Tensor, generators: Generators, unlabelled: Tensor | None
    ) -> None:
        """Add the gradient of the divergence between the predictions for x, held fixed, and x′: the mean over all rows.

        Dropout is the same for both, or the divergence would be that of two networks.
        """
        coefficient = loss.coefficient
        if unlabelled is not None:
            if not isinstance(coefficient, float):  # of as many samples again, each of which counts as usual
                coefficient = torch.cat([coefficient, torch.full_like(coefficient, 1 / inputs.shape[1])], 1)
            coefficient = coefficient / 2
            inputs = torch.cat([inputs, unlabelled], 1)
            raw = loss.members.forward(inputs, loss.seeds)
        divergence, weight = Divergence(self.criterion.head(raw), generators), getattr(self.perturbation, "weight", 1.0)
        smoothness = Criterion(self.criterion.head, lambda distribution, _: weight * divergence(distribution))
        smooth = replace(loss, criterion=smoothness, coefficient=coefficient)
        smooth.backward(self._nearby(smooth, inputs, raw, scale, generators), accumulate=True)


def _of_member(m: int, part: Any) -> Any:
    """What belongs to one member, of tensors `[member, …]` and lists of seeds; other things belong to all."""
    if isinstance(part, Tensor):
        return part[m : m + 1]
    return [purpose[m : m + 1] for purpose in part] if isinstance(part, Sequence) else part


@dataclass
class _Loss:
    """The loss of each sample as a function of the inputs, which perturbations may differentiate once.

    What their passes change besides is kept, and put back by `restore`.
    """

    criterion: Criterion
    members: Members
    seeds: Sequence[int]
    targets: Tensor
    coefficient: Tensor | float
    _saved: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)
    _last: Tensor | None = field(default=None, init=False)  # inputs of a pass that is not yet differentiated
    _step: tuple[Tensor, Tensor | None] | None = field(default=None, init=False)

    def backward(self, inputs: Tensor, input_gradient: bool = False, accumulate: bool = False) -> Tensor:
        """The training step itself: put the gradient of the weighted loss into the members' buffer; the raw output."""
        raw = self.members.forward(inputs, self.seeds, input_gradient)
        self._step = inputs, self.members.backward(self._raw_gradient(raw), accumulate)
        return raw

    def _raw_gradient(self, raw: Tensor) -> Tensor:
        gradient, factor = self.criterion.raw_gradient(raw, self.targets), self.coefficient
        return gradient.mul_(factor if isinstance(factor, float) else factor.reshape(*factor.shape, *[1] * (raw.dim() - 2)))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Losses `[run, batch]`, differentiable once with respect to the inputs."""
        return self.criterion.losses(self.raw(inputs), self.targets)

    def gradient(self, inputs: Tensor) -> Tensor:
        """The gradient with respect to the inputs; free for the inputs of the training step itself."""
        if self._step is not None and self._step[0] is inputs and self._step[1] is not None:
            return self._step[1]
        inputs = inputs.detach()
        return self.input_gradient(inputs, self._raw_gradient(self.forward(inputs)))

    def raw(self, inputs: Tensor) -> Tensor:
        """Raw outputs `[run, batch, raw]`, differentiable once."""
        return _Differentiable.apply(inputs, self)  # type: ignore[no-untyped-call]

    def forward(self, inputs: Tensor) -> Tensor:
        """A pass that `input_gradient` may follow."""
        if not self._saved:
            self._saved = [(tensor, tensor.clone()) for tensor in self.members.changing_views()]
        self._last = inputs
        return self.members.forward(inputs, self.seeds, input_gradient=True)

    def input_gradient(self, inputs: Tensor, raw_gradient: Tensor) -> Tensor:
        """The gradient with respect to the inputs."""
        if self._last is not inputs:
            self.forward(inputs)
        self._last = None  # members forget a pass once it is differentiated
        return cast(Tensor, self.members.backward(raw_gradient))

    def restore(self) -> None:
        """Put back the parameters' gradients and the running statistics."""
        for tensor, before in self._saved:
            tensor.copy_(before)
        self._saved = []


class _Differentiable(torch.autograd.Function):
    """A forward pass whose gradient is the members' own backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, loss: _Loss) -> Tensor:
        ctx.inputs, ctx.loss = inputs.detach(), loss
        return loss.forward(ctx.inputs)

    @staticmethod
    def backward(ctx: Any, raw_gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.loss.input_gradient(ctx.inputs, raw_gradient), None

"""Learning rate schedules and optimisers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from deep_ensembles._checks import check_number


class Schedule(Protocol):
    """The factor on the learning rate at step `step` of `total`."""

    def __call__(self, step: int, total: int, /) -> float: ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate throughout, as in the paper.

    Example:
        >>> Constant()(7, 10)
        1.0
    """

    def __call__(self, step: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    r"""A linear warm-up, then half a cosine down, $f + (1 - f)\,\tfrac12 (1 + \cos \pi t)$ for $t$ from 0 to 1.

    References:
        Loshchilov & Hutter (2017).

    Arguments:
        warmup: the share of all steps over which the rate rises to its full value.
        final: the factor *f* at the end.

    Example:
        >>> [round(Cosine(warmup=0.25)(step, 8), 3) for step in range(8)]
        [0.5, 1.0, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]
    """

    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        check_number("warmup", self.warmup, low=0, high=1)
        check_number("final", self.final, low=0, high=1)

    def __call__(self, step: int, total: int) -> float:
        warm = round(self.warmup * total)
        if step < warm:
            return (step + 1) / warm
        through = (step - warm) / max(1, total - warm)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, through)))


class Optimizer(Protocol):
    """Changes parameters in place, given gradients and two moments that it keeps up to date."""

    def __call__(self, tensors: Sequence[list[Tensor]], step: Tensor, learning_rate: float, weight_decay: float, /) -> None:
        """`tensors` are parameters, gradients, first and second moments; `step` counts from 1."""


@dataclass(frozen=True)
class _FusedAdam:
    """The settings of both kinds of Adam, and the call of torch's kernel for all parameters at once."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    kernel: ClassVar[Callable[..., None]]

    def __post_init__(self) -> None:
        check_number("beta1", self.beta1, low=0, high=1, below=True)
        check_number("beta2", self.beta2, low=0, high=1, below=True)
        check_number("epsilon", self.epsilon, low=0, above=True)

    def __call__(self, tensors: Sequence[list[Tensor]], step: Tensor, learning_rate: float, weight_decay: float) -> None:
        rates = {"lr": learning_rate, "beta1": self.beta1, "beta2": self.beta2, "weight_decay": weight_decay}
        steps = [step] * len(tensors[0])
        type(self).kernel(*tensors, [], steps, **rates, eps=self.epsilon, amsgrad=False, maximize=False)


@dataclass(frozen=True)
class Adam(_FusedAdam):
    r"""Adam; weight decay λ is the gradient of $\tfrac{\lambda}{2}\|\theta\|^2$, that is, a Gaussian prior on the weights.

    With N rows and a prior of variance τ², the maximum a posteriori estimate that the paper suggests is λ = 1/(N τ²).

    References:
        Kingma & Ba (2015); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.
    """

    kernel = staticmethod(torch._fused_adam_)


@dataclass(frozen=True)
class AdamW(_FusedAdam):
    """Adam with weight decay apart from the gradient: parameters shrink by learning rate × λ each step.

    References:
        Loshchilov & Hutter (2019).
    """

    kernel = staticmethod(torch._fused_adamw_)

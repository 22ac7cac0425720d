"""How the learning rate changes while a run is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

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

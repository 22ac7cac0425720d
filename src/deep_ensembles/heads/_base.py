"""What a head promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor
from torch.distributions import Distribution

HeadFunction = Callable[[Tensor], Distribution]


@runtime_checkable
class Head(Protocol):
    """Turns raw network outputs `[..., batch, raw]` into a distribution with batch shape `[..., batch]`."""

    @property
    def discrete(self) -> bool:
        """Whether targets are classes (0 … K-1) rather than numbers."""

    def raw_size(self, n_targets: int) -> int:
        """How many raw outputs a network needs for `n_targets` numbers or classes."""

    def __call__(self, raw: Tensor) -> Distribution:
        """The predictive distribution of a raw output."""

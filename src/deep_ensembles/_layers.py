"""Layers that torch lacks: a smooth clip, periodic embeddings of numbers, skip connections."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class SmoothClip(nn.Module):
    r"""Numbers of any size brought between -limit and limit, small ones almost unchanged: $x / \sqrt{1 + (x / c)^2}$.

    References:
        Holzmüller, Grinsztajn, Steinwart (2024).

    Arguments:
        limit: c.
    """

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + (x / self.limit).square()).sqrt()

    def extra_repr(self) -> str:
        return f"limit={self.limit:g}"


class Periodic(nn.Module):
    r"""Numbers, and beside each a learned linear map of waves of it: $[x_i,\ V_i^T \cos(2 \pi w_i x_i + b_i)]$.

    Frequencies are $w \sim N(0, \sigma^2)$ at first, phases $b$ uniform. So that training changes both slowly, they are kept
    in units of a tenth: optimisers of the kind of Adam take steps of the same length whatever the unit.

    References:
        Gorishniy, Rubachev, Babenko (2022); Holzmüller, Grinsztajn, Steinwart (2024).

    Arguments:
        in_features: how many numbers there are.
        n_frequencies: how many waves there are of each.
        scale: σ.
        n_outputs: how many outputs there are of each number, besides itself.
        columns: which numbers are embedded; all by default. The others stay as they are.

    Shape:
        `[batch, in_features]` → `[batch, in_features + n_outputs · embedded columns]`
    """

    RATE = 0.1  # the unit of frequencies and phases

    def __init__(
        self,
        in_features: int,
        n_frequencies: int,
        scale: float,
        n_outputs: int,
        columns: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        embedded = list(range(in_features)) if columns is None else list(columns)
        self.columns = None if len(embedded) == in_features else embedded
        n, shape = len(embedded), (len(embedded), n_frequencies)
        self.sizes = (in_features, n, n_frequencies, n_outputs)
        self.frequency = nn.Parameter(torch.randn(shape, dtype=dtype) * (2 * math.pi * scale / self.RATE))
        self.phase = nn.Parameter((torch.rand(shape, dtype=dtype) * 2 - 1) * (math.pi / self.RATE))
        bound = n_frequencies**-0.5
        self.weight = nn.Parameter((torch.rand(n, n_frequencies, n_outputs, dtype=dtype) * 2 - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        chosen = x if self.columns is None else x[..., self.columns]
        waves = (chosen.unsqueeze(-1) * (self.frequency * self.RATE) + self.phase * self.RATE).cos()
        return torch.cat([x, torch.einsum("...ik,iko->...io", waves, self.weight).flatten(-2)], -1)

    def extra_repr(self) -> str:
        return "in_features={}, embedded={}, n_frequencies={}, n_outputs={}".format(*self.sizes)


class Skip(nn.Sequential):
    """A sequence of layers whose input is added to its output, x + f(x)."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + y

"""Multi-layer perceptrons for tables of numbers: periodic embeddings, a smooth clip, skip connections."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.networks.mlp import checked_sizes, make_activation

_CLIP = 3.0
_WAVE_OUTPUTS = 3  # numbers that stand for the waves of a column


def periodic_mlp(
    in_features: int,
    out_features: int,
    hidden_sizes: Sequence[int] = (128, 128),
    activation: str = "silu",
    n_frequencies: int = 16,
    frequency_scale: float = 0.3,
    columns: Sequence[int] | None = None,
    dropout: float = 0.0,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron that sees waves of each number beside the number itself.

    Inputs, which should be standardised, are first brought smoothly between -3 and 3.

    Waves let a network follow steps and bends that plain layers learn slowly; on many tables they matter more than anything
    else. Hidden layers after the first of the same size add to their input. The last layer starts at 0, so that a network
    first says the same of all rows.

    References:
        Gorishniy, Rubachev, Babenko (2022); Holzmüller, Grinsztajn, Steinwart (2024).

    Arguments:
        in_features, out_features, hidden_sizes, activation, dropout, dtype: as for `mlp`.
        n_frequencies: waves per number; 0 for none.
        frequency_scale: the spread of their frequencies at first.
        columns: the numbers that have waves; all by default.

    Shape:
        `[batch, in_features]` → `[batch, out_features]`

    Example:
        >>> periodic_mlp(8, 2, hidden_sizes=(32, 32))
        Sequential(
          (0): SmoothClip(limit=3)
          (1): Periodic(in_features=8, embedded=8, n_frequencies=16, n_outputs=3)
          (2): Linear(in_features=32, out_features=32, bias=True)
          (3): SiLU()
          (4): Skip(
            (0): Linear(in_features=32, out_features=32, bias=True)
            (1): SiLU()
          )
          (5): Linear(in_features=32, out_features=2, bias=True)
        )
    """
    check_integer("in_features", in_features, low=1)
    check_integer("out_features", out_features, low=1)
    check_integer("n_frequencies", n_frequencies, low=0)
    check_number("dropout", dropout, low=0, high=1)
    check_number("frequency_scale", frequency_scale, low=0, above=True)
    known = columns is None or all(0 <= column < in_features for column in columns)
    require(known, "columns", f"columns from 0 to {in_features - 1}", columns)
    layers: list[nn.Module] = [SmoothClip(_CLIP)]
    size = in_features
    if n_frequencies and (columns is None or len(columns)):
        layers.append(Periodic(in_features, n_frequencies, frequency_scale, _WAVE_OUTPUTS, columns))
        size += _WAVE_OUTPUTS * (in_features if columns is None else len(columns))
    for hidden in checked_sizes(hidden_sizes):
        block = [nn.Linear(size, hidden), make_activation(activation)]
        block += [nn.Dropout(dropout)] if dropout > 0 else []
        is_first = not any(isinstance(layer, nn.Linear) for layer in layers)
        layers += [Skip(*block)] if hidden == size and not is_first else block
        size = hidden
    last = nn.Linear(size, out_features)
    nn.init.zeros_(last.weight)
    return nn.Sequential(*layers, last).to(dtype=dtype)


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
    ) -> None:
        super().__init__()
        embedded = list(range(in_features)) if columns is None else list(columns)
        self.columns = None if len(embedded) == in_features else embedded
        n, shape = len(embedded), (len(embedded), n_frequencies)
        self.sizes = (in_features, n, n_frequencies, n_outputs)
        self.frequency = nn.Parameter(torch.randn(shape) * (2 * math.pi * scale / self.RATE))
        self.phase = nn.Parameter((torch.rand(shape) * 2 - 1) * (math.pi / self.RATE))
        bound = n_frequencies**-0.5
        self.weight = nn.Parameter((torch.rand(n, n_frequencies, n_outputs) * 2 - 1) * bound)

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

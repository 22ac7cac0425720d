"""Multi-layer perceptrons for tables of numbers: periodic embeddings, a smooth clip, skip connections."""

from collections.abc import Sequence

import torch
from torch import nn

from deep_ensembles._checks import check_flag, check_integer, check_number, require
from deep_ensembles._layers import Periodic, Skip, SmoothClip
from deep_ensembles.networks.mlp import checked_sizes, make_activation

_WAVE_OUTPUTS = 3  # numbers that stand for the waves of a column


def periodic_mlp(
    in_features: int,
    out_features: int,
    hidden_sizes: Sequence[int] = (128, 128),
    activation: str = "silu",
    n_frequencies: int = 16,
    frequency_scale: float = 0.3,
    columns: Sequence[int] | None = None,
    clip: float | None = 3.0,
    skip: bool = True,
    dropout: float = 0.0,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron that sees waves of each number beside the number itself.

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
        clip: bring inputs smoothly between -clip and clip; None to take them as they are.
        skip: whether hidden layers add to their input.

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
    check_flag("skip", skip)
    check_number("frequency_scale", frequency_scale, low=0, above=True)
    known = columns is None or all(0 <= column < in_features for column in columns)
    require(known, "columns", f"columns from 0 to {in_features - 1}", columns)
    layers: list[nn.Module] = [] if clip is None else [SmoothClip(clip)]
    size = in_features
    if n_frequencies and (columns is None or len(columns)):
        layers.append(Periodic(in_features, n_frequencies, frequency_scale, _WAVE_OUTPUTS, columns, dtype))
        size += _WAVE_OUTPUTS * (in_features if columns is None else len(columns))
    for hidden in checked_sizes(hidden_sizes):
        block = [nn.Linear(size, hidden, dtype=dtype), make_activation(activation)]
        block += [nn.Dropout(dropout)] if dropout > 0 else []
        is_first = not any(isinstance(layer, nn.Linear) for layer in layers)
        layers += [Skip(*block)] if skip and hidden == size and not is_first else block
        size = hidden
    last = nn.Linear(size, out_features, dtype=dtype)
    nn.init.zeros_(last.weight)
    return nn.Sequential(*layers, last)

"""Multi-layer perceptrons for tables of numbers: embeddings of them, a smooth clip, skip connections."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.networks.mlp import checked_sizes, make_activation

_CLIP = 3.0


def periodic_mlp(
    in_features: int,
    out_features: int,
    hidden_sizes: Sequence[int] = (128, 128),
    activation: str = "silu",
    n_frequencies: int = 16,
    frequency_scale: float = 0.3,
    columns: Sequence[int] | None = None,
    n_bins: int = 0,
    sets_bins: bool = True,
    embedding_size: int = 3,
    levels: Mapping[int, int] | None = None,
    repeated: Mapping[int, int] | None = None,
    dropout: float = 0.0,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron that sees waves of each number, or its place between quantiles, beside the number itself.

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
        columns: the numbers that have waves and bins; all by default.
        n_bins: between quantiles of the rows that the network is trained on; 0 for none.
        sets_bins: False for room for bins that stay empty, so that the network can join an ensemble of some that have them.
        embedding_size: numbers that stand for the waves and bins of a column.
        levels: columns that hold numbers of categories, 0 for unknown ones, and how many there are of each; see `Levels`.
        repeated: columns of numbers that repeat, and how many of their values have a learned vector each; see `Values`.

    Shape:
        `[batch, in_features]` → `[batch, out_features]`

    Example:
        >>> periodic_mlp(8, 2, hidden_sizes=(32, 32))
        Sequential(
          (0): SmoothClip(limit=3)
          (1): NumberEmbedding(in_features=8, embedded=8, n_frequencies=16, n_bins=0, n_outputs=3)
          (2): Linear(in_features=32, out_features=32, bias=True)
          (3): SiLU()
          (4): Skip(
            (0): Linear(in_features=32, out_features=32, bias=True)
            (1): SiLU()
          )
          (5): Linear(in_features=32, out_features=2, bias=True)
        )
    """
    for name, size in (("in_features", in_features), ("out_features", out_features), ("embedding_size", embedding_size)):
        check_integer(name, size, low=1)
    check_integer("n_frequencies", n_frequencies, low=0)
    check_integer("n_bins", n_bins, low=0)
    check_number("dropout", dropout, low=0, high=1)
    check_number("frequency_scale", frequency_scale, low=0, above=True)
    known = columns is None or all(0 <= column < in_features for column in columns)
    require(known, "columns", f"columns from 0 to {in_features - 1}", columns)
    layers: list[nn.Module] = [Levels(in_features, levels)] if levels else []
    size, embedded = in_features + Vectors.N_OUTPUTS * len(levels or ()), range(in_features) if columns is None else columns
    if repeated:
        layers.append(Values(size, repeated))
        size += Vectors.N_OUTPUTS * len(repeated)
    layers.append(SmoothClip(_CLIP))
    if (n_frequencies or n_bins) and len(embedded):
        sizes = (n_frequencies, frequency_scale, n_bins, embedding_size)
        layers.append(NumberEmbedding(size, *sizes, embedded, sets_bins))
        size += embedding_size * len(embedded)
    hidden_sizes = checked_sizes(hidden_sizes)
    layers += _hidden_layers(size, hidden_sizes, activation, dropout)
    last = nn.Linear((size, *hidden_sizes)[-1], out_features)
    nn.init.zeros_(last.weight)
    return nn.Sequential(*layers, last).to(dtype=dtype)


def _hidden_layers(size: int, hidden_sizes: Sequence[int], activation: str, dropout: float) -> list[nn.Module]:
    """Layers of these sizes, after `size` numbers; those of the same size as the one before add to its output."""
    layers: list[nn.Module] = []
    for hidden in hidden_sizes:
        block = [nn.Linear(size, hidden), make_activation(activation), *([nn.Dropout(dropout)] if dropout > 0 else [])]
        layers += [Skip(*block)] if hidden == size and layers else block
        size = hidden
    return layers


class SmoothClip(nn.Module):
    r"""Numbers of any size brought between -limit and limit, small ones almost unchanged: $x / \sqrt{1 + (x / c)^2}$.

    References:
        Holzmüller, Grinsztajn, Steinwart (2024).

    Arguments:
        limit: c.
    """

    LARGEST = 1e15  # larger numbers are the limit too, and their squares may be infinite

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        x = x.clamp(-self.LARGEST, self.LARGEST)
        return x / (1 + (x / self.limit).square()).sqrt()

    def extra_repr(self) -> str:
        return f"limit={self.limit:g}"


class NumberEmbedding(nn.Module):
    r"""Numbers, and beside each a learned linear map of waves and bins of it: $[x_i,\ V_i^T f(x_i)]$.

    Waves are $\cos(2 \pi w_i x_i + b_i)$, at first with frequencies $w \sim N(0, \sigma^2)$ and uniform phases $b$. So that
    training changes both slowly, they are kept in units of a tenth: optimisers of the kind of Adam take steps of the same
    length whatever the unit.

    Bins lie between quantiles, and say how far a number has come through each: $(x - q_k) / (q_{k+1} - q_k)$, at least 0 and
    at most 1. They are no weights: before it begins, training sets them by `bins` of the rows that the network is trained
    on. As long as they are not set they are 0, so that networks with and without them can be members of one ensemble.

    References:
        Gorishniy, Rubachev, Babenko (2022); Holzmüller, Grinsztajn, Steinwart (2024).

    Arguments:
        in_features: how many numbers there are.
        n_frequencies: how many waves there are of each.
        scale: σ.
        n_bins: how many bins there are of each, at most: fewer where quantiles are equal.
        n_outputs: how many outputs there are of each number, besides itself.
        columns: which numbers are embedded; all by default. The others stay as they are.
        sets_bins: whether training sets the bins.

    Shape:
        `[batch, in_features]` → `[batch, in_features + n_outputs · embedded columns]`
    """

    RATE = 0.1  # the unit of frequencies and phases
    start: Tensor
    slope: Tensor

    def __init__(
        self,
        in_features: int,
        n_frequencies: int,
        scale: float,
        n_bins: int,
        n_outputs: int,
        columns: Sequence[int] | None = None,
        sets_bins: bool = True,
    ) -> None:
        super().__init__()
        embedded = list(range(in_features)) if columns is None else list(columns)
        self.columns = None if len(embedded) == in_features else embedded
        self.sizes = (in_features, len(embedded), n_frequencies, n_bins, n_outputs)
        self.sets_bins = sets_bins and n_bins > 0
        n, waves, bins = len(embedded), (len(embedded), n_frequencies), (len(embedded), n_bins)
        if n_frequencies:
            self.frequency = nn.Parameter(torch.randn(waves) * (2 * math.pi * scale / self.RATE))
            self.phase = nn.Parameter((torch.rand(waves) * 2 - 1) * (math.pi / self.RATE))
        of_waves = (torch.rand(n, n_frequencies, n_outputs) * 2 - 1) * max(1, n_frequencies) ** -0.5
        # Networks learn better if bins say nothing at first.
        self.weight = nn.Parameter(torch.cat([of_waves, torch.zeros(n, n_bins, n_outputs)], 1))
        if n_bins:
            self.register_buffer("start", torch.zeros(bins))
            self.register_buffer("slope", torch.zeros(bins))

    def bins(self, x: Tensor) -> dict[str, Tensor]:
        """Where the bins of rows start, and the reciprocals of their lengths, `[embedded, n_bins]` each; 0 for none."""
        chosen = x if self.columns is None else x[:, self.columns]
        _, n, _, n_bins, _ = self.sizes
        start, slope = torch.zeros(2, n, n_bins, dtype=torch.float64)
        quantiles = np.quantile(chosen.double().cpu().numpy(), np.linspace(0, 1, n_bins + 1), axis=0)
        for i, edges in enumerate(map(np.unique, quantiles.T.astype(np.float32))):
            start[i, : len(edges) - 1] = torch.from_numpy(edges[:-1])
            slope[i, : len(edges) - 1] = 1 / torch.from_numpy(np.diff(edges))
        return {"start": start, "slope": slope}

    def forward(self, x: Tensor) -> Tensor:
        _, _, n_frequencies, n_bins, _ = self.sizes
        chosen, features = (x if self.columns is None else x[..., self.columns]).unsqueeze(-1), []
        if n_frequencies:
            features.append((chosen * (self.frequency * self.RATE) + self.phase * self.RATE).cos())
        if n_bins:
            features.append(((chosen - self.start) * self.slope).clamp(0, 1))
        return torch.cat([x, torch.einsum("...ik,iko->...io", torch.cat(features, -1), self.weight).flatten(-2)], -1)

    def extra_repr(self) -> str:
        names = ("in_features", "embedded", "n_frequencies", "n_bins", "n_outputs")
        return ", ".join(f"{name}={size}" for name, size in zip(names, self.sizes, strict=True))


class Vectors(nn.Module):
    """Numbers, and learned vectors for some columns: one for each value that training knows, and one for all others.

    So that the vector of unknown values says what is known without them, and how much less that is, training takes a few
    rows at random for unknown.

    References:
        Guo, Berkhahn (2016).

    Arguments:
        in_features: how many numbers there are.
        name: of the setting that has the columns.
        counts: the columns that have vectors, and how many each has.
        most: the most that a column has, that of unknown values, 0, among them.

    Shape:
        `[batch, in_features]` → `[batch, in_features + 8 · columns]`
    """

    N_OUTPUTS, UNKNOWN = 8, 0.1  # numbers in a vector, and the share of rows taken for unknown in training
    BUFFERS: ClassVar[tuple[str, str]]  # what training sets
    replaces: ClassVar[bool]  # whether vectors stand in place of their numbers, not beside them

    def __init__(self, in_features: int, name: str, counts: Mapping[int, int], most: int) -> None:
        super().__init__()
        known = all(0 <= column < in_features and n > 0 for column, n in counts.items())
        require(known, name, f"columns from 0 to {in_features - 1}, and a number ≥ 1 for each", counts)
        self.in_features, self.columns, self.most = in_features, list(counts), most
        self.weight = nn.Parameter(torch.randn(len(counts), most, self.N_OUTPUTS) * 0.3)

    def places(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Which vector each number has, from numbers and buffers `[..., column, batch]` and `[..., column, *]`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        chosen = x[..., self.columns]
        known = nn.functional.dropout(torch.ones_like(chosen), self.UNKNOWN, self.training) > 0
        first, second = (getattr(self, name) for name in self.BUFFERS)
        places = self.places(chosen.mT.contiguous(), first, second) * known.mT
        vectors = self.weight.gather(1, places.unsqueeze(-1).expand(-1, -1, self.N_OUTPUTS))
        others = x.index_fill(-1, torch.tensor(self.columns, device=x.device), 0) if self.replaces else x
        return torch.cat([others, vectors.transpose(0, 1).flatten(1)], -1)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, columns={self.columns}, levels={self.most}"


class Levels(Vectors):
    """Numbers of categories replaced by vectors, one for each level of each column; other numbers stay as they are.

    Level 0 stands for all that training does not know. Numbers come standardised: training sets `shift` and `scale`, by
    which they become whole again.

    Arguments:
        in_features: how many numbers there are.
        levels: columns of categories, and how many levels each has, 0 among them.
    """

    BUFFERS, replaces = ("shift", "scale"), True

    def __init__(self, in_features: int, levels: Mapping[int, int]) -> None:
        super().__init__(in_features, "levels", levels, max(levels.values()))
        self.register_buffer("shift", torch.zeros(len(levels)))
        self.register_buffer("scale", torch.ones(len(levels)))

    def places(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return torch.addcmul(first.unsqueeze(-1), x, second.unsqueeze(-1)).round_().clamp_(0, self.most - 1).long()


class Values(Vectors):
    """Numbers, and beside those that repeat a vector for each value.

    The number of a shop, a batch or a setting may have an effect of its own, which nothing smooth follows: trees can set
    a single value apart, and so can networks that see this. Before it begins, training sets by `values` which values of the
    rows that the network is trained on have a vector.

    Arguments:
        in_features: how many numbers there are.
        repeated: columns of numbers that repeat, and how many different ones there are at most.
    """

    BUFFERS, replaces = ("low", "high"), False
    REACH = 1e-5  # relative, from a value to what is taken for it: standardising rounds
    NONE = 1e30  # beyond all numbers

    def __init__(self, in_features: int, repeated: Mapping[int, int]) -> None:
        super().__init__(in_features, "repeated", repeated, max(repeated.values()) + 1)
        for name in self.BUFFERS:
            self.register_buffer(name, torch.full((len(repeated), self.most - 1), self.NONE))

    def values(self, x: Tensor) -> dict[str, Tensor]:
        """The ends of the interval around each value that repeats, `[column, value]` each."""
        ends = torch.full((2, len(self.columns), self.most - 1), self.NONE, dtype=torch.float64)
        for i, column in enumerate(x[:, self.columns].double().cpu().numpy().T):
            values, counts = np.unique(column, return_counts=True)
            most_frequent = np.argsort(-counts, kind="stable")[: self.most - 1]
            kept = torch.from_numpy(values[np.sort(most_frequent[counts[most_frequent] > 1])])
            reach = self.REACH * kept.abs().clamp(min=1)
            ends[:, i, : len(kept)] = torch.stack([kept - reach, kept + reach])
        return {"low": ends[0], "high": ends[1]}

    def places(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        places = torch.searchsorted(first, x, right=True)  # 0 below all of them
        ends = torch.cat([torch.full_like(second[..., :1], -self.NONE), second], -1)
        return places * (x <= ends.gather(-1, places))


class Skip(nn.Sequential):
    """A sequence of layers whose input is added to its output, x + f(x)."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + y

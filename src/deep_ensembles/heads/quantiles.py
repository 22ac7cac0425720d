"""Quantiles at chosen levels, without a formula for what lies between."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import Interpolated
from deep_ensembles.heads._base import Numbers, for_targets, limited, positive, split_raw


@dataclass(frozen=True)
class Quantiles(Numbers):
    r"""Quantiles that never cross: the middle one is $r_1$, the others are $\mathrm{softplus}(r_k) + \text{floor}$ apart.

    They become a distribution by straight lines between them and exponential tails beyond (see `Interpolated`). Train it
    with the scoring rule `pinball`, which looks at these levels alone; `log_score` and `crps` work too. Members are averaged
    as distribution functions.

    References:
        Koenker & Bassett (1978).

    Arguments:
        levels: at least two, increasing, between 0 and 1.
        min_gap: the floor under the distance of neighbours, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, level · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> Quantiles((0.1, 0.5, 0.9))(torch.tensor([[0.0, 0.5413, 0.5413]])).values
        tensor([[-1.0001,  0.0000,  1.0001]])
    """

    levels: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    min_gap: float = 1e-4
    point: ClassVar = "median"
    rule: ClassVar = "pinball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            check_number("levels", level, low=0, high=1, above=True, below=True)
        increasing = len(self.levels) >= 2 and list(self.levels) == sorted(set(self.levels))
        require(increasing, "levels", "at least two, increasing", self.levels)
        check_number("min_gap", self.min_gap, low=0, above=True)

    def raw_size(self, n_targets: int) -> int:
        return len(self.levels) * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        middle, *rest = split_raw(self, raw, len(self.levels))
        first = (len(self.levels) - 1) // 2
        gaps = [positive(gap, self.min_gap) for gap in rest]
        values = [limited(middle)]
        values += [values[0] + step for step in _steps(gaps[first:])]
        values = [*reversed([values[0] - step for step in _steps(gaps[:first])]), *values]
        levels = torch.tensor(self.levels, dtype=raw.dtype, device=raw.device)
        return for_targets(_interpolated(levels), torch.stack(values, dim=-1), own_dims=1)


def _steps(gaps: list[Tensor]) -> list[Tensor]:
    """Their running sums."""
    return list(torch.stack(gaps).cumsum(0)) if gaps else []


def _interpolated(levels: Tensor):  # type: ignore[no-untyped-def]
    return lambda values, validate_args: Interpolated(values, levels)

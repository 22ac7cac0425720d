"""Quantiles at chosen levels, without a formula for what lies between."""

from dataclasses import dataclass
from functools import partial

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
    point = "median"
    rule = "pinball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            check_number("levels", level, low=0, high=1, above=True, below=True)
        increasing = len(self.levels) >= 2 and list(self.levels) == sorted(set(self.levels))
        require(increasing, "levels", "at least two, increasing", self.levels)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        return len(self.levels) * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        middle, *rest = split_raw(self, raw)
        below = (len(self.levels) - 1) // 2
        centre, gaps = limited(middle).unsqueeze(-1), positive(torch.stack(rest, dim=-1), self.min_gap)
        lower = (centre - gaps[..., :below].cumsum(-1)).flip(-1)
        values = torch.cat([lower, centre, centre + gaps[..., below:].cumsum(-1)], dim=-1)  # [..., target, level]
        return for_targets(partial(Interpolated, levels=raw.new_tensor(self.levels)), values, own_dims=1)

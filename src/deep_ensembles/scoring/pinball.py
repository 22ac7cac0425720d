"""The pinball loss of quantiles."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import Interpolated, marginal
from deep_ensembles.mixture import mixture_of
from deep_ensembles.scoring._base import aligned, over_targets, require_numbers, require_quantiles

_LEVELS = tuple(i / 20 for i in range(1, 20))


def pinball(distribution: Distribution, target: Tensor, levels: Sequence[float] | None = None) -> Tensor:
    r"""Mean pinball loss of quantiles, $\frac1L\sum_\ell (y - q_\ell)(\tau_\ell - 1\{y < q_\ell\})$, in the target's units.

    Over ever more evenly spaced levels, twice the loss becomes the `crps`. Averaged over targets. Of counts it is a metric
    alone: their quantiles jump, so that a network learns nothing from them. Other levels:
    `functools.partial(pinball, levels=(0.1, 0.5, 0.9))`.

    References:
        Koenker & Bassett (1978); Gneiting & Raftery (2007), section 6.1.

    Arguments:
        levels: between 0 and 1; by default those of the head `Quantiles`, for other heads 0.05, 0.1, …, 0.95.

    Example:
        >>> standard = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
        >>> pinball(standard, torch.ones(1), levels=(0.5,))
        tensor([0.5000])
    """
    require_numbers("pinball", distribution)
    shares, values = _quantiles(distribution, levels)
    above = aligned(distribution, target) - values
    losses = (shares.to(above) - 0.5) * above + above.abs() / 2  # where it is 0, the slope between both sides'
    return over_targets(distribution, losses.mean(0))


def _quantiles(distribution: Distribution, levels: Sequence[float] | None) -> tuple[Tensor, Tensor]:
    """Levels and their quantiles, both broadcastable to `[level, ..., batch, *event]`."""
    single = marginal(getattr(distribution, "components", distribution))
    if levels is None and isinstance(single, Interpolated):
        if not hasattr(distribution, "n_members"):
            return single.levels.movedim(-1, 0), single.values.movedim(-1, 0)
        levels = single.levels.reshape(-1, single.levels.shape[-1])[0].tolist()
    require_quantiles("pinball", single)
    levels = _LEVELS if levels is None else levels
    require(len(levels) > 0, "levels", "at least one number", levels)
    for level in levels:
        check_number("levels", level, low=0, high=1, above=True, below=True)
    shape = distribution.batch_shape + distribution.event_shape
    shares = torch.tensor(levels, dtype=torch.float64).reshape(-1, *[1] * len(shape))
    return shares, mixture_of(distribution).icdf(shares)

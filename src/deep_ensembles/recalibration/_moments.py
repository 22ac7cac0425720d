"""Moments of a mixture of normals whose levels are mapped: on a grid where that is enough, else exactly."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from deep_ensembles.mixture import Mixture

_POINTS = (64, 256)
_REACH = 5.5
# A grid will do where its step is at most this share of the narrowest member's deviation, or less where the map is rough.
_STEP = 0.35
_GRID_ELEMENTS, _EXACT_ROWS, _ENTRIES = 2**17, 512, 2**16


def mapped_moments(mixture: Mixture, before: Sequence[float], after: Sequence[float]) -> Tensor:
    """First and second moment about the mixture's mean, `[2, row]`, of normals seen through a map of levels."""
    means, scales = mixture.components.loc - mixture.mean, mixture.components.scale  # type: ignore[attr-defined]
    low, high = (means - _REACH * scales).amin(0), (means + _REACH * scales).amax(0)
    needed = (high - low) / (_STEP * scales.amin(0)) * _roughness(before, after) ** 0.5 + 1  # points
    found = means.new_empty(2, means.shape[1])
    for fewer, points in pairwise((0, *_POINTS)):
        for rows in ((needed > fewer) & (needed <= points)).nonzero()[:, 0].split(_GRID_ELEMENTS // points):
            own = means[:, rows], scales[:, rows]
            found[:, rows] = _on_a_grid(points, mixture.weights, own, tuple(before), tuple(after))
    for rows in (~(needed <= _POINTS[-1])).nonzero()[:, 0].split(_EXACT_ROWS):
        found[:, rows] = _exactly(mixture[rows], means[:, rows], scales[:, rows], before, after)
    return found


@functools.lru_cache(8)
def _looked_up(before: tuple[float, ...], after: tuple[float, ...]) -> Tensor:
    """The map at so many equal steps that looking it up is as good as computing it, and quicker than finding the piece."""
    entries = (np.arange(_ENTRIES + 1) + 0.5) / _ENTRIES
    return torch.from_numpy(np.interp(entries, before, after).astype(np.float32))


def _roughness(before: Sequence[float], after: Sequence[float]) -> float:
    """The greatest change of slope, by the density that it meets; at least 1. The error of a grid grows with it."""
    changes = np.abs(np.diff(np.diff(after) / np.diff(before)))
    density = np.exp(-(ndtri(np.asarray(before[1:-1])) ** 2) / 2)
    return float(max(1.0, 3 * np.max(changes * density, initial=0.0)))


def _on_a_grid(
    n_points: int, weights: Tensor, members: tuple[Tensor, Tensor], before: tuple[float, ...], after: tuple[float, ...]
) -> Tensor:
    r"""By $\mathbb{E}[Y] = b - \int_a^b G$ and $\mathbb{E}[Y^2] = b^2 - 2\int_a^b yG$, trapezoids in units of the spread.

    The trapezoidal rule is exact for smooth functions that end flat, as G does; yG ends with slope 1, which adds
    $h^2/12$. What is left is due to the kinks of the map: some 1e-3 of the spread.
    """
    means, scales = members
    unit = ((means.square() + scales.square()) * weights.unsqueeze(1)).sum(0).sqrt()
    centres, widths = (means / unit).float(), (scales / unit).float()
    low, high = (centres - _REACH * widths).amin(0), (centres + _REACH * widths).amax(0)
    share = torch.linspace(0, 1, n_points, device=means.device).unsqueeze(1)
    points = torch.lerp(low, high, share)  # [point, row]
    levels = torch.full_like(points, 0.5)
    steepness = 1 / (widths * math.sqrt(2))
    for weight, offset, slope in zip(weights.tolist(), -centres * steepness, steepness, strict=True):
        levels.add_(torch.addcmul(offset, points, slope).erf_(), alpha=weight / 2)
    mapped = _looked_up(before, after).to(means.device)[levels.mul_(_ENTRIES).long()]
    mapped[0], mapped[-1] = mapped[0] / 2, 0.5
    step = (high - low) / (n_points - 1)
    first = high - mapped.sum(0) * step
    second = high.square() - 2 * (mapped * points).sum(0) * step + step.square() / 6
    return torch.stack([first * unit, second * unit.square()]).to(means.dtype)


def _exactly(mixture: Mixture, means: Tensor, scales: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    r"""Piece by piece of the map.

    On a piece of slope s the moments are s times the mixture's between two of its quantiles a, and with
    $z = (a - \mu)/\sigma$ they are, below a, $\mu\Phi(z) - \sigma\varphi(z)$ and
    $(\mu^2 + \sigma^2)\Phi(z) - \sigma(\mu + a)\varphi(z)$.
    """
    levels, values = (mixture.weights.new_tensor(each) for each in (before, after))
    ends = (mixture.icdf(levels[1:-1, None]) - mixture.mean).unsqueeze(1)  # [level, 1, row]
    z = (ends - means) / scales  # [level, member, row]
    below, density = torch.special.ndtr(z), torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    first = means * below - scales * density
    second = (means.square() + scales.square()) * below - scales * (means + ends) * density
    whole = torch.stack([means, means.square() + scales.square()]).unsqueeze(1)  # [moment, 1, member, row]
    parts = torch.cat([torch.zeros_like(whole), torch.stack([first, second]), whole], dim=1)
    averaged = (parts * mixture.weights.unsqueeze(-1)).sum(2)  # [moment, level, row]
    return (averaged.diff(dim=1) * (values.diff() / levels.diff()).unsqueeze(-1)).sum(1)

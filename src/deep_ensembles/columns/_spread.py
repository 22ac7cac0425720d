"""Numbers of any size and spread as inputs of moderate size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles.columns._column import enough

HEAVY = 20.0
_LARGEST = 1e6


def middle_and_scale(values: NDArray[np.float64]) -> tuple[float, float]:
    """The median, and the distance between the quartiles; where that is 0, the mean distance from the median.

    Example:
        >>> middle_and_scale(np.array([1.0, 2, 3, 4, 100]))
        (3.0, 2.0)
    """
    first, middle, third = np.quantile(values / 4, (0.25, 0.5, 0.75)) * 4
    spread = third - first
    if not spread > 0:
        spread = np.abs(values / 4 - middle / 4).mean() * 4
    return float(middle), float(spread) if 0 < spread < np.inf else 1.0


def spread_of(name: str, kind: str, read: NDArray[np.float64]) -> dict[str, Any]:
    """What a column of numbers keeps of its training values: ends, middle and scale, and how many are missing."""
    known = read[~np.isnan(read)]
    if not len(known):
        raise ValueError(f"column `{name}` has no {kind} in it; leave it out")
    middle, scale = middle_and_scale(known)
    missing = len(read) - len(known)
    ends = {"low": float(known.min()), "high": float(known.max())}
    return {**ends, "middle": middle, "scale": scale, "missing": missing, "marked": enough(missing, len(read))}


def moderate(values: NDArray[np.float64], middle: float, scale: float, ends: tuple[float, float]) -> NDArray[np.float64]:
    r"""Values about their middle in units of their scale, $z = (x - m) / s$, compressed and bounded.

    Where training values went beyond $|z| = 20$, $\operatorname{arsinh} z$ takes the place of z: a signed logarithm.
    What lies more than the length of the training range outside it is moved to there, so that no single absurd value
    decides what a network says. NaN, for missing, becomes the middle, 0.

    Arguments:
        values: in float64, so that large offsets keep their digits.
        middle: m.
        scale: s.
        ends: the least and the largest value of training.

    Example:
        >>> moderate(np.array([3.0, 5.0, np.nan, 1e30]), 3.0, 2.0, (1.0, 7.0)).tolist()
        [0.0, 1.0, 0.0, 5.0]
    """
    with np.errstate(over="ignore"):
        low, high = ((end - middle) / scale for end in ends)
        inputs = values - middle
        inputs /= scale
    if max(abs(low), abs(high)) > HEAVY:
        low, high = float(np.arcsinh(low)), float(np.arcsinh(high))
        np.arcsinh(inputs, out=inputs)
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    np.clip(inputs, 2 * low - high, 2 * high - low, out=inputs)
    np.copyto(inputs, 0, where=np.isnan(inputs))
    return inputs

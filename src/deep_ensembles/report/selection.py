"""Which rows to keep, to show and to gather: thresholds, samples and bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deep_ensembles.metrics import risk_coverage_curve
from deep_ensembles.report._facts import Vector
from deep_ensembles.report.evaluation import Stop

_SHOWN = 240
_CURVE_POINTS = 100


def stops(doubt: Vector, value: Vector, wanted: Vector, least: bool) -> list[Stop]:
    """All rows and their mean, then for each demand the most rows whose mean meets it: those of least doubt.

    Rows of equal doubt are kept or dropped together. Demands that no threshold meets are left out.

    Arguments:
        doubt: the less, the sooner a row is kept; the threshold is one that occurs.
        value: whose mean over kept rows is demanded.
        wanted: the demands.
        least: whether a demand is a lower bound of the mean (an accuracy), not an upper one (an error).

    Example:
        >>> for stop in stops(np.array([0.1, 0.2, 0.3]), np.array([1.0, 3.0, 8.0]), np.array([2.0, 0.5]), least=False):
        ...     print(stop)
        Stop(wanted=4.0, threshold=0.3, reached=4.0, kept=1.0, rows=3)
        Stop(wanted=2.0, threshold=0.2, reached=2.0, kept=0.6666666666666666, rows=2)
    """
    order = np.argsort(doubt, kind="stable")
    ordered = doubt[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    mean = value[order].cumsum()[last] / (last + 1)
    overall = float(value.mean())
    found = [Stop(overall, float(ordered[-1]), overall, 1.0, len(doubt))]
    for demand in wanted.tolist():
        reached = np.flatnonzero(mean >= demand if least else mean <= demand)
        if len(reached):
            i = reached[-1]
            rows = int(last[i]) + 1
            found.append(Stop(demand, float(ordered[last[i]]), float(mean[i]), rows / len(doubt), rows))
    return found


def shown_rows(n_rows: int) -> NDArray[np.int64]:
    """Rows for a picture of single points: all if they are few, else a random choice that is always the same."""
    if n_rows <= _SHOWN:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, _SHOWN, replace=False))


def bins(doubt: Vector, n_bins: int = 10) -> list[NDArray[np.int64]]:
    """The rows in order of doubt, cut into bins of equally many (give or take one)."""
    order = np.argsort(doubt, kind="stable")
    return [part for part in np.array_split(order, min(n_bins, len(order))) if len(part)]


def risk_by_share(doubt: Vector, loss: Vector) -> dict[str, list[float]]:
    """The mean loss of the surest rows for a hundred shares, beside that of an order that knows the losses."""
    n_rows = len(loss)
    points = min(_CURVE_POINTS, n_rows)
    places = -(-np.arange(1, points + 1) * n_rows // points) - 1
    ours, best = risk_coverage_curve(doubt, loss), risk_coverage_curve(loss, loss)
    return {
        "share": ours.coverage[places].tolist(),
        "risk": ours.risk[places].tolist(),
        "best": best.risk[places].tolist(),
    }

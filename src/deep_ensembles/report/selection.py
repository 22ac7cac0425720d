"""Which rows to keep, to show and to gather: thresholds, samples and groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles.metrics import risk_coverage_curve
from deep_ensembles.report._facts import Rows, Vector
from deep_ensembles.report.evaluation import Stop

# Of fewer rows nothing is said about the order of errors.
ENOUGH = 20
_SHOWN = 240
_GROUPS = 10
_CURVE_POINTS = 100


def stops(doubt: Vector, value: Vector, wanted: Sequence[float], least: bool) -> list[Stop]:
    """All rows and their mean, then for each demand the most rows whose mean meets it: those of least doubt.

    Rows of equal doubt are kept or dropped together. Demands that no threshold meets are left out.

    Arguments:
        doubt: the less, the sooner a row is kept; the threshold is one that occurs.
        value: whose mean over kept rows is demanded.
        wanted: the demands.
        least: whether a demand is a lower bound of the mean (an accuracy), not an upper one (an error).

    Example:
        >>> for stop in stops(np.array([0.1, 0.2, 0.3]), np.array([1.0, 3.0, 8.0]), [2.0, 0.5], least=False):
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
    for demand in wanted:
        reached = np.flatnonzero(mean >= demand if least else mean <= demand)
        if len(reached):
            i = reached[-1]
            rows = int(last[i]) + 1
            found.append(Stop(demand, float(ordered[last[i]]), float(mean[i]), rows / len(doubt), rows))
    return found


def shown_rows(rows: Rows, names: Sequence[str]) -> dict[str, list[float]]:
    """Facts for a picture of single points: of all rows if they are few, else of a random choice that is always the same."""
    n_rows = len(rows["actual"])
    shown = np.arange(n_rows)
    if n_rows > _SHOWN:
        shown = np.sort(np.random.default_rng(0).choice(n_rows, _SHOWN, replace=False))
    return lists(row=shown, **{name: rows[name][shown] for name in names})


def by_doubt(doubt: Vector, facts: Rows, average: Callable[[Vector], Any]) -> dict[str, list[float]]:
    """Averages over groups of equally many rows (give or take one), from those of least doubt on."""
    groups = np.array_split(np.argsort(doubt, kind="stable"), min(_GROUPS, len(doubt)))
    averages = {name: [float(average(values[group])) for group in groups] for name, values in facts.items()}
    return averages | {"rows": [len(group) for group in groups]}


def histogram(shares: Vector, n_bins: int) -> dict[str, list[float]]:
    """How many of the rows fall into each of some equally wide bins between 0 and 1."""
    counts, edges = np.histogram(shares, n_bins, (0.0, 1.0))
    return lists(edge=edges, share=counts / len(shares))


def risk_by_share(doubt: Vector, loss: Vector) -> dict[str, list[float]]:
    """The mean loss of the surest rows for a hundred shares, beside that of an order that knows the losses."""
    n_rows = len(loss)
    points = min(_CURVE_POINTS, n_rows)
    places = -(-np.arange(1, points + 1) * n_rows // points) - 1
    ours, best = risk_coverage_curve(doubt, loss), risk_coverage_curve(loss, loss)
    return lists(share=ours.coverage[places], risk=ours.risk[places], best=best.risk[places])


def lists(**columns: NDArray[Any]) -> dict[str, list[Any]]:
    """Arrays as plain data."""
    return {name: values.tolist() for name, values in columns.items()}

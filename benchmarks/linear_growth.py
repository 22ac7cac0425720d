"""Time for twice the rows and for twice the members, where arithmetic rather than overhead takes the time."""

from __future__ import annotations

from functools import partial

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side
from deep_ensembles import fit_ensemble, mlp


def linear_growth() -> list[Line]:
    """From 40 members of 200 + 200 hidden units, 4000 × 50 rows, 2 epochs of batches of 100."""
    once, rows, members = side_by_side(_fit(4000, 40), _fit(8000, 40), _fit(4000, 80), repeats=5)
    return [
        Line("linear_growth_rows", rows, once, rows / once, 2.1, at_most=True),
        Line("linear_growth_members", members, once, members / once, 2.1, at_most=True),
    ]


def _fit(n_rows: int, n_members: int) -> partial:
    X, y = regression(n_rows, 50)
    return partial(fit_ensemble, partial(mlp, 50, 2, (200, 200)), X, y, n_members=n_members, max_epochs=2, random_state=0)

"""Fits by the clock: the default on all cores beside NGBoost, fast ones beside CatBoost; `python -m benchmarks.fit_times`.

The first official split of each UCI set, each method once. Takes about a quarter of an hour; needs the extra `bench`, the
data home, and a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

from benchmarks.measuring import HEADER, Line, seconds
from benchmarks.quality.goals import LARGE_ROWS, LARGE_SECONDS
from benchmarks.quality.regressors import fit_catboost, fit_ngboost
from benchmarks.quality.tables import TABLES, UCI
from deep_ensembles import DeepEnsembleRegressor
from deep_ensembles.execution import Processes

LEAST_SECONDS, LEAST_SECONDS_OF_FAST = 20.0, 2.0  # that a fit may take in any case


def _fit(X: Any, y: Any, effort: str) -> None:
    DeepEnsembleRegressor(effort=effort, random_state=0).fit(X, y)


def lines(name: str) -> list[Line]:
    """The default beside NGBoost, and `effort="fast"` beside CatBoost."""
    parts = TABLES[name].load(0)
    X, y = parts.X_train, parts.y_train
    ours = seconds(partial(_fit, X, y, "default"))
    if len(y) >= LARGE_ROWS:
        default = Line(f"{name}, default", ours, None, ours, LARGE_SECONDS, at_most=True, figure_unit="s")
    else:
        other = seconds(partial(fit_ngboost, X, y, 0))
        wanted = max(LEAST_SECONDS, 2 * other)
        default = Line(f"{name}, default", ours, other, ours, wanted, at_most=True, figure_unit="s")
    fast, other = seconds(partial(_fit, X, y, "fast")), seconds(partial(fit_catboost, X, y, 0))
    wanted = max(LEAST_SECONDS_OF_FAST, 3 * other)
    return [default, Line(f"{name}, fast", fast, other, fast, wanted, at_most=True, figure_unit="s")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=list(UCI), help=", ".join(UCI))
    list(Processes(os.cpu_count() or 1)(abs, range(8)))  # workers are warm, as of a second fit
    print(HEADER, flush=True)
    for name in parser.parse_args().sets:
        for line in lines(name):
            print(line, flush=True)


if __name__ == "__main__":
    main()

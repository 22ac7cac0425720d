"""Fits by the clock: the default on all cores beside NGBoost, fast ones beside CatBoost; `python -m benchmarks.fit_times`.

The first official split of each UCI set, each method once; kept in `records/fit_times.json` for docs/benchmarks.md. Takes a
quarter of an hour; needs the extra `bench`, the data home, and a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os

from benchmarks.measuring import HEADER, Line, seconds
from benchmarks.quality.goals import FIT_TIMES, LARGE_ROWS, fit_limits, fit_times
from benchmarks.quality.regressors import fit_catboost, fit_ngboost
from benchmarks.quality.tables import TABLES, UCI
from deep_ensembles import DeepEnsembleRegressor
from deep_ensembles._files import write_atomically
from deep_ensembles.execution import Processes


def measured(name: str) -> dict[str, float]:
    """Seconds of each method; NGBoost's are not needed where rows are many."""
    parts = TABLES[name].load(0)
    X, y = parts.X_train, parts.y_train
    methods = {
        "default": lambda: DeepEnsembleRegressor(random_state=0).fit(X, y),
        "ngboost": lambda: fit_ngboost(X, y, 0),
        "fast": lambda: DeepEnsembleRegressor(effort="fast", random_state=0).fit(X, y),
        "catboost": lambda: fit_catboost(X, y, 0),
    }
    wanted = [method for method in methods if method != "ngboost" or TABLES[name].rows < LARGE_ROWS]
    return {method: round(seconds(methods[method]), 3) for method in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=list(UCI), help=", ".join(UCI))
    list(Processes(os.cpu_count() or 1)(abs, range(8)))  # workers are warm, as of a second fit
    print(HEADER, flush=True)
    for name in parser.parse_args().sets:
        found = measured(name)
        write_atomically(FIT_TIMES, (json.dumps(fit_times() | {name: found}, indent=1) + "\n").encode())
        for ours, peer in (("default", "ngboost"), ("fast", "catboost")):
            limit = fit_limits(name, found)[ours]
            line = Line(f"{name}, {ours}", found[ours], found.get(peer), found[ours], limit, at_most=True, figure_unit="s")
            print(line, flush=True)


if __name__ == "__main__":
    main()

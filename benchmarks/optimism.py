"""How much choices flatter the scores of the rows they were made on; `python -m benchmarks.optimism`.

Networks, heads and epochs are chosen by out-of-fold predictions, and the same predictions are reported as scores. Here they
are held against fresh rows of the same law, predicted by the same members: for every fold those that hold it out. What is
left is what the choice itself flatters; the difference in the log score is about the share by which rows are less probable
than reported.
"""

import argparse
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from benchmarks.made_tables import few_rows
from deep_ensembles import Categorical, Normal
from deep_ensembles.distributions import rebuilt
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.mixture import Mixture
from deep_ensembles.recipes import Choices, Task
from deep_ensembles.scoring import log_score
from deep_ensembles.selection import fit_recipe

FRESH_ROWS = 4000


class Rows(NamedTuple):
    """Rows of a law, and the log score of the law itself, whose chance is taken out of both means."""

    X: np.ndarray
    y: np.ndarray
    best: float


def _numbers(n: int, generator: np.random.Generator, noise: Any, is_even: bool) -> Rows:
    X = generator.normal(size=(n, 5))
    mean, scale = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], 0.3 if is_even else 0.1 + 0.3 * np.abs(X[:, 0])
    residual = noise.rvs(size=n, random_state=generator)
    return Rows(X, mean + scale * residual, float(np.mean(np.log(scale) - noise.logpdf(residual))))


def _classes(n: int, generator: np.random.Generator) -> Rows:
    draw = few_rows(n, generator)
    assert draw.truth is not None
    return Rows(draw.X, draw.y, float(-np.log(draw.truth[np.arange(n), draw.y]).mean()))


LAWS: dict[str, Callable[[int, np.random.Generator], Rows]] = {
    "uneven noise": lambda n, generator: _numbers(n, generator, stats.norm(), is_even=False),
    "heavy tails": lambda n, generator: _numbers(n, generator, stats.t(3), is_even=True),
    "two classes": _classes,
}


def optimism(law: str, n: int, seed: int) -> float:
    """The mean log score of fresh rows minus that of the rows that choices were made on."""
    generator = np.random.default_rng([n, seed])
    rows, fresh = LAWS[law](n, generator), LAWS[law](FRESH_ROWS, generator)
    is_class = rows.y.dtype.kind == "i"
    task = Task(rows.X, rows.y, 2 if is_class else 0, 2 if is_class else 1, Categorical() if is_class else Normal())
    ensemble = fit_recipe(task, Choices({}), seed).ensemble
    reported = float(log_score(ensemble.out_of_fold(rows.X), torch.from_numpy(rows.y)).mean())
    return (_of_folds(ensemble, fresh) - fresh.best) - (reported - rows.best)


def _of_folds(ensemble: Ensemble, fresh: Rows) -> float:
    """The log score of fresh rows, a mean over folds and the members that hold them out."""
    assert ensemble.out_of_fold_members is not None
    folds, counts = np.unique(ensemble.out_of_fold_members, axis=1, return_counts=True)
    mixture, targets, total = ensemble.mixture(fresh.X), torch.from_numpy(fresh.y), 0.0
    for members, count in zip(torch.from_numpy(folds.T), counts, strict=True):
        parts = Mixture(rebuilt(mixture.components, itemgetter(members)), mixture.weights[members])
        total += float(count / counts.sum() * log_score(parts, targets).mean())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 250, 1000])
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("Log score of fresh rows minus that reported, mean ± standard error over draws")
    print(f"{'':14}" + "".join(f"{f'{n} rows':>20}" for n in options.rows))
    for law in LAWS:
        cells = []
        for n in options.rows:
            values = np.array([optimism(law, n, seed) for seed in range(options.draws)])
            cells.append(f"{values.mean():+.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}")
        print(f"{law:14}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()

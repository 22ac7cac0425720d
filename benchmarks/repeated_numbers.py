"""Vectors for numbers that repeat, and adversarial training on many rows; `python -m benchmarks.repeated_numbers`.

Every table is fitted by the default with and without what is looked at, and judged on a sixth of its rows. Tables are made,
or the training rows of split 0 of two UCI sets, which need the data home. Takes about a quarter of an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from unittest import mock

import numpy as np
import torch

from deep_ensembles import DeepEnsembleRegressor
from deep_ensembles.paper.datasets import load_dataset
from deep_ensembles.scoring import log_score

Table = tuple[np.ndarray, np.ndarray]


def shops(generator: np.random.Generator) -> Table:
    """600 numbers, each with an effect of its own."""
    n, numbers, place = 9000, generator.normal(50, 12, 600).round(2), generator.integers(600, size=9000)
    effects, x = generator.normal(size=600)[place], numbers[place]
    X = np.column_stack([generator.normal(size=n), x, generator.normal(size=n), generator.uniform(size=n)])
    X[:, 0] += (x - 50) / 12
    noise = 0.5 * X[:, 3] * generator.normal(size=n) + 0.5 * generator.normal(size=n)
    return X, -2 * X[:, 0] + 2 * np.sin(X[:, 2]) + effects + 0.05 * x + noise


def mixtures(generator: np.random.Generator) -> Table:
    """Four rows each of 250 mixtures of rounded parts, at different ages."""
    which = np.repeat(np.arange(250), 4)
    parts, effects = (generator.normal(size=(250, 4)) * 50 + 200).round()[which], 0.7 * generator.normal(size=250)[which]
    age = generator.choice([1.0, 3.0, 7.0, 14.0, 28.0, 56.0, 90.0], 1000)
    mean = 1.5 * np.log(age) + 0.02 * (parts[:, 0] - 200) - 0.01 * (parts[:, 1] - 200) + effects
    return np.column_stack([parts, age]), mean + 0.3 * generator.normal(size=1000)


def rounded(generator: np.random.Generator) -> Table:
    """Ages and sizes, whose effects are smooth."""
    n, age = 3000, generator.integers(18, 95, 3000)
    size, weight, other = generator.normal(170, 10, n).round(), generator.gamma(2, 20, n).round(), generator.normal(size=n)
    y = np.sin(age / 15) + 0.02 * (size - 170) + 0.01 * weight * other + 0.3 * generator.normal(size=n)
    return np.column_stack([age, size, weight, other]), y


def rough(generator: np.random.Generator) -> Table:
    """Many rows, and an effect with many bends."""
    n, law = 24_000, np.random.default_rng(5)
    X = generator.normal(size=(n, 9))
    X[:, 3] += X[:, 0]
    X[:, 4] = np.abs(X[:, 4]) * X[:, 1]
    waves = np.cos(X @ (law.normal(size=(9, 300)) * law.exponential(size=(9, 1)) * 0.9) + law.uniform(0, 7, 300))
    noise = 0.3 * np.exp(0.5 * X[:, 2]) * generator.standard_t(4, size=n)
    return X, waves @ law.normal(size=300) * (2 / 300) ** 0.5 + noise


def _uci(name: str, generator: np.random.Generator) -> Table:
    X, y = load_dataset(name).parts(0)[0]
    return X, y


TABLES: dict[str, Callable[[np.random.Generator], Table]] = {
    "shops": shops,
    "mixtures": mixtures,
    "rounded": rounded,
    "boston-housing": partial(_uci, "boston-housing"),
    "wine-quality-red": partial(_uci, "wine-quality-red"),
}
OTHERS = {
    "without vectors": mock.patch("deep_ensembles.selection.repeated_columns", return_value=()),
    "with an adversary": mock.patch("deep_ensembles.recipes.Choices.tries_adversary", return_value=True),
}


def main() -> None:
    """NLL and root mean squared error of rows that were held back, and processor seconds."""
    torch.set_num_threads(1)
    print(f"{'':18}{'':20}{'NLL':>8}{'RMSE':>8}{'seconds':>9}  networks")
    for name, make in (*TABLES.items(), ("rough", rough)):
        X, y = make(np.random.default_rng(0))
        order, n = np.random.default_rng(1).permutation(len(y)), len(y) // 6
        other = "with an adversary" if name == "rough" else "without vectors"
        for variant in ("default", other):
            model, start = DeepEnsembleRegressor(random_state=0, n_jobs=1), time.process_time()
            with OTHERS.get(variant, nullcontext()):
                model.fit(X[order[n:]], y[order[n:]])
            seconds = time.process_time() - start
            mixture, target = model.predict_distribution(X[order[:n]]), torch.from_numpy(y[order[:n]])
            nll, error = log_score(mixture, target).mean(), (mixture.mean - target).square().mean().sqrt()
            networks = ", ".join(f"{key} ({share:.0%})" for key, share in (model.chosen_["networks"] or {}).items())
            print(f"{name:18}{variant:20}{nll:8.3f}{error:8.3f}{seconds:9.1f}  {networks}", flush=True)


if __name__ == "__main__":
    main()

"""Made tables whose truth is known: every split is a new draw of rows from the same law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

LAW = 20_240  # the seed of what is the same for all splits


@dataclass(frozen=True)
class Draw:
    """Rows of a made table.

    Arguments:
        truth: the probability of each class of each row, where targets are classes.
    """

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class MadeTable:
    """A law to draw rows from.

    Arguments:
        draw: (rows, generator) → rows.
        n_train, n_test: how many rows a split has.
    """

    name: str
    draw: Callable[[int, np.random.Generator], Draw]
    n_train: int
    n_test: int
    description: str

    def split(self, number: int) -> tuple[Draw, Draw]:
        """Rows to train on and rows to test on."""
        generator = np.random.default_rng([LAW, number])
        return self.draw(self.n_train, generator), self.draw(self.n_test, generator)


def _labels(X: np.ndarray, probabilities: np.ndarray, generator: np.random.Generator) -> Draw:
    """Classes drawn with these probabilities."""
    levels = probabilities.cumsum(axis=1)
    y = (generator.random((len(X), 1)) > levels[:, :-1]).sum(axis=1)
    return Draw(X, y.astype(np.int64), probabilities)


def _binary(X: np.ndarray, log_odds: np.ndarray, generator: np.random.Generator) -> Draw:
    positive = expit(log_odds)
    return _labels(X, np.stack([1 - positive, positive], axis=1), generator)


def no_signal(n: int, generator: np.random.Generator) -> Draw:
    return _binary(generator.normal(size=(n, 10)), np.zeros(n), generator)


def rare(n: int, generator: np.random.Generator) -> Draw:
    """About 6 % positives, by a linear law and one product."""
    X = generator.normal(size=(n, 12))
    return _binary(X, -3.6 + X[:, 0] - 0.7 * X[:, 1] + 0.5 * X[:, 2] + 0.5 * X[:, 3] * X[:, 4], generator)


def _many(n_classes: int, n_features: int, reach: float) -> Callable[[int, np.random.Generator], Draw]:
    """Normal clouds, one per class."""
    centres = np.random.default_rng(LAW).normal(size=(n_classes, n_features)) * reach

    def draw(n: int, generator: np.random.Generator) -> Draw:
        X = centres[generator.integers(n_classes, size=n)] + generator.normal(size=(n, n_features))
        squares = np.square(X).sum(1)[:, None] - 2 * X @ centres.T + np.square(centres).sum(1)
        return _labels(X, softmax(-squares / 2, axis=1), generator)

    return draw


def wide(n: int, generator: np.random.Generator) -> Draw:
    """2000 columns of which 20 matter a little."""
    X = generator.normal(size=(n, 2000))
    common = generator.normal(size=(n, 1))
    X[:, :40] += common  # columns that go together, as in measured tables
    return _binary(X, 0.25 * X[:, :20].sum(1), generator)


def few_rows(n: int, generator: np.random.Generator) -> Draw:
    X = generator.normal(size=(n, 8))
    return _binary(X, 1.2 * X[:, 0] - X[:, 1] + 0.5 * X[:, 2] ** 2 - 0.5, generator)


def nonlinear(n: int, generator: np.random.Generator) -> Draw:
    X = generator.normal(size=(n, 12))
    bumps = 2 * np.sin(2 * X[:, 0]) + 1.5 * X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - np.where(X[:, 4] > 0.5, 1.5, 0) * X[:, 5]
    return _binary(X, bumps, generator)


def uneven_noise(n: int, generator: np.random.Generator) -> Draw:
    X = generator.normal(size=(n, 6))
    scale = 0.1 + 0.3 * np.abs(X[:, 0])
    return Draw(X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + scale * generator.normal(size=n))


def heavy_tails(n: int, generator: np.random.Generator) -> Draw:
    X = generator.normal(size=(n, 6))
    return Draw(X, np.abs(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * generator.standard_t(3, size=n))


def two_modes(n: int, generator: np.random.Generator) -> Draw:
    """One of two values, whose distance grows with an input."""
    X = generator.normal(size=(n, 4))
    apart = 1 + expit(X[:, 1])
    return Draw(X, X[:, 0] + apart * (generator.choice([-1.0, 1.0], size=n) + 0.1 * generator.normal(size=n)))


def few_numbers(n: int, generator: np.random.Generator) -> Draw:
    X = generator.normal(size=(n, 5))
    return Draw(X, X[:, 0] - 0.5 * X[:, 1] + 0.3 * X[:, 2] ** 2 + 0.5 * generator.normal(size=n))


MADE_CLASSES = (
    MadeTable("no-signal", no_signal, 500, 2000, "two classes, 10 columns that say nothing"),
    MadeTable("rare", rare, 2000, 5000, "6 % positives, 12 columns"),
    MadeTable("20-classes", _many(20, 16, 0.7), 2000, 3000, "20 overlapping clouds, 16 columns"),
    MadeTable("200-classes", _many(200, 20, 0.9), 4000, 3000, "200 overlapping clouds, 20 columns"),
    MadeTable("wide", wide, 80, 2000, "80 rows to train on, 2000 columns, linear"),
    MadeTable("few-rows", few_rows, 60, 2000, "60 rows to train on, 8 columns"),
    MadeTable("nonlinear", nonlinear, 20_000, 5000, "12 columns, steps, waves and products"),
)
MADE_NUMBERS = (
    MadeTable("uneven-noise", uneven_noise, 1000, 5000, "noise that grows with an input, 6 columns"),
    MadeTable("heavy-tails", heavy_tails, 1000, 5000, "noise of a Student-t with 3 degrees of freedom, 6 columns"),
    MadeTable("two-modes", two_modes, 1000, 5000, "one of two values at random, 4 columns"),
    MadeTable("few-numbers", few_numbers, 60, 5000, "60 rows to train on, 5 columns"),
)

"""What a method is: how it is fitted, what it predicts, and what it needs."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from torch.distributions import Distribution

HELD_OUT = 0.2  # of the training rows, to choose the number of trees by


@dataclass(frozen=True)
class Fitted:
    """A fitted method.

    Arguments:
        predict: inputs → a distribution per row.
        details: what was chosen while fitting, plain data.
    """

    predict: Callable[[np.ndarray], Distribution]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A way to predict.

    Arguments:
        name: on the command line and in records.
        title: on the page.
        fit: (inputs, targets, seed) → what was fitted.
        about: how it is fitted, one sentence for the page.
        package: what must be installed, if anything.
        takes: (estimator, argument) that the installed version of ours must have.
        most_rows: training rows that it can take.
        ours: whether it is ours, and therefore run on all splits however long it takes.
    """

    name: str
    title: str
    fit: Callable[[np.ndarray, np.ndarray, int], Fitted]
    about: str
    package: str | None = None
    takes: tuple[type, str] | None = None
    most_rows: int | None = None
    ours: bool = False

    def why_not(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            return f"needs {self.package}, which is not installed; run: pip install 'deep-ensembles[bench]'"
        if self.takes is not None:
            estimator, argument = self.takes
            if argument not in inspect.signature(estimator).parameters:
                return f"{estimator.__name__} does not take `{argument}` in this version"
        return None


def held_out(X: np.ndarray, y: np.ndarray, seed: int, stratify: bool = False) -> list[np.ndarray]:
    """(inputs to fit, inputs held out, targets to fit, targets held out); of every class the same share, where that goes."""
    counts = np.unique(y, return_counts=True)[1]
    fits = stratify and counts.min() > 1 and len(counts) <= HELD_OUT * len(y)
    return train_test_split(X, y, test_size=HELD_OUT, random_state=seed, stratify=y if fits else None)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What libraries print, log and warn of is dropped."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)

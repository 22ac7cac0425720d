"""Forward cuts in time: how models of earlier rows did on the rows that came next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import Ensemble, log_score
from deep_ensembles._splits import cross_validation_splits
from deep_ensembles._terminal import Listing
from deep_ensembles.recipes import Task
from deep_ensembles.report.words import CHANCE, number, percent, with_error
from deep_ensembles.tabular.data import TableData, without_copies

N_CUTS, LEAST_ROWS = 3, 200
_CLEAR = 3.0  # standard errors by which two cuts differ beyond chance; there are several pairs


@dataclass(frozen=True)
class Cut:
    """Scores of one cut.

    Arguments:
        before, after: rows trained on, and the next rows, which were judged.
        error, error_error: the mean absolute error, or the share of wrong classes, with its standard error.
        nll: the negative log-likelihood.
        coverage: the share of rows in their 90 % interval; None for classes.
    """

    before: int
    after: int
    error: float
    error_error: float
    nll: float
    coverage: float | None

    @property
    def error_text(self) -> str:
        """The error with its standard error; of classes in per cent."""
        return with_error(self.error, self.error_error, is_share=self.coverage is None)


def forward_cuts(data: TableData, inputs: NDArray[np.float32], train: Callable[[Task], Ensemble]) -> list[Cut]:
    """Train on the rows before a cut, and judge by those until the next cut."""
    task, cuts = data.task(inputs), []
    for cut in cross_validation_splits(N_CUTS, len(data), times=data.times):
        before, after = without_copies(*cut, data)
        prediction: Any = train(task.subset(before))(inputs[after])
        target, coverage = torch.from_numpy(data.y[after]), None
        if data.target.classes:
            errors = (prediction.probs.argmax(-1) != target).double()
        else:
            errors = (prediction.mean - target).abs().double()
            coverage = float(((prediction.cdf(target) - 0.5).abs() <= 0.45).double().mean())
        spread = float(errors.std()) / len(after) ** 0.5
        nll = float(log_score(prediction, target).mean())
        cuts.append(Cut(len(before), len(after), float(errors.mean()), spread, nll, coverage))
    return cuts


def cuts_listing(cuts: Sequence[Cut]) -> Listing:
    """The cuts one after another, and what they say of the future."""
    is_class = cuts[0].coverage is None
    heads = ["rows before", "next rows", "wrong" if is_class else "mean absolute error", "NLL"]
    heads += [] if is_class else ["in 90 % intervals"]
    rows = [[str(cut.before), str(cut.after), cut.error_text, number(cut.nll), percent(cut.coverage or 0.0)][: len(heads)]
            for cut in cuts]  # fmt: skip
    return Listing("Forward cuts in time", heads, rows, drift(cuts))


def drift(cuts: Sequence[Cut]) -> str:
    """Whether errors differ between cuts beyond chance, and which most, in a sentence.

    Example:
        >>> drift([Cut(100, 50, 1.0, 0.1, 1.5, 0.9), Cut(150, 50, 2.0, 0.1, 2.5, 0.6)]).partition(": ")[2].partition(". ")[0]
        'errors differ most between the cut after 100 rows (1.00 ± 0.10) and that after 150 (2.00 ± 0.10), beyond chance'
    """
    first, second = max(combinations(cuts, 2), key=_distance)
    told = f"after {first.before} rows ({first.error_text}) and that after {second.before} ({second.error_text})"
    chance = "beyond chance" if _distance((first, second)) > _CLEAR else CHANCE
    return (f"Quick models of earlier rows, judged by the next: errors differ most between the cut {told}, {chance}. "
            "That the future will be like the rows held out is an assumption.")  # fmt: skip


def _distance(pair: tuple[Cut, Cut]) -> float:
    return abs(pair[0].error - pair[1].error) / max(float(np.hypot(pair[0].error_error, pair[1].error_error)), 1e-300)

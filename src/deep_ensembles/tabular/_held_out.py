"""Rows that no network has seen: the recalibration they ask for, and batches to judge it by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import recalibration
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Conformal, Recalibration, Temperature, VarianceScaling, choose
from deep_ensembles.report import Batch, first_member
from deep_ensembles.table_files import TableError

ENOUGH = 20
_PARTS = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for rows that no network has seen.

    Arguments:
        mixture: the predictions as members make them.
        target: what happened.
        name: of the recalibration, or `auto` for the one that these rows prefer, or `none`.
        groups, times: of the rows; None where there are none.
    """

    mixture: Mixture
    target: NDArray[Any]
    name: str
    groups: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None

    def fit(self, mixture: Mixture, rows: NDArray[np.int64]) -> Recalibration | None:
        """What some of the rows ask for; never one that moves the mean where rows are the latest, as that would pass off
        what has changed for what is uncertain."""
        target = torch.from_numpy(self.target[rows])
        if self.name == "none" or (self.name == "auto" and len(rows) < ENOUGH // 2):
            return None
        if self.name != "auto":
            fitted: Recalibration = getattr(recalibration, self.name)(mixture[torch.from_numpy(rows)], target)
            return fitted
        careful = ("none", "variance_scaling") if self.times is not None and not mixture.is_discrete else None
        groups = None if self.groups is None else self.groups[rows]
        if groups is not None and len(np.unique(groups)) < 2:
            return None
        return choose(mixture[torch.from_numpy(rows)], target, careful, groups=groups)

    def fit_all(self, single: bool = False) -> Recalibration | None:
        """What all rows ask for, of the ensemble or of its first member."""
        if self.name == "auto" and len(self.target) < ENOUGH:
            return None
        return self.fit(first_member(self.mixture) if single else self.mixture, np.arange(len(self.target)))

    def parts(self) -> list[NDArray[np.int64]]:
        """Parts of the rows, each judged with what others ask for: spread out, or whole groups, or one after the other."""
        n = len(self.target)
        if n < ENOUGH:
            return [np.arange(n)]
        if self.times is not None:
            return np.array_split(np.argsort(self.times, kind="stable"), _PARTS)
        if self.groups is not None:
            kinds = np.unique(self.groups, return_inverse=True)[1]
            return [found for part in range(_PARTS) if len(found := np.flatnonzero(kinds % _PARTS == part))]
        return [np.arange(start, n, _PARTS) for start in range(_PARTS)]

    def batches(self) -> Iterator[Batch]:
        """Each part recalibrated by the others, or where rows are the latest by those before it."""
        parts, single = self.parts(), first_member(self.mixture) if self.mixture.n_members > 1 else None
        for number, part in enumerate(parts):
            others = parts[:number] if self.times is not None else [each for each in parts if each is not part]
            rows = np.concatenate(others) if others else np.empty(0, dtype=np.int64)
            own = self._put_right(self.mixture, part, rows)
            alone = None if single is None else self._put_right(single, part, rows)
            yield Batch(own, torch.from_numpy(self.target[part]), alone)

    def _put_right(self, mixture: Mixture, part: NDArray[np.int64], by: NDArray[np.int64]) -> Any:
        fitted = self.fit(mixture, by) if len(by) >= 2 else None
        own = mixture[torch.from_numpy(part)]
        return own if fitted is None else fitted(own)

    def in_words(self, fitted: Recalibration | None) -> str:
        """What a recalibration does, and why there is none."""
        if fitted is None and self.name == "auto" and len(self.target) < ENOUGH:
            return f"none; {len(self.target)} rows are too few to tell"
        if fitted is None:
            return "none, as asked" if self.name == "none" else "none, as held-out rows ask for none"
        return in_words(fitted)


def in_words(fitted: Recalibration | None) -> str:
    """What a recalibration does, for people."""
    if fitted is None:
        return "none"
    if isinstance(fitted, VarianceScaling):
        return f"variance scaling; held-out rows ask for spreads {fitted.factor:.3g} times as wide"
    if isinstance(fitted, Temperature):
        return f"temperature {fitted.temperature:.3g}; above 1 makes probabilities less sure"
    if isinstance(fitted, Conformal):
        return f"conformal; intervals hold as often as they say, by {len(fitted.scores)} held-out rows"
    return "isotonic; predicted levels are replaced by those that held-out rows showed"


def check_recalibration(name: str, classes: bool, n_rows: int) -> None:
    """Refuse one that is not for the task, or for so few rows."""
    if n_rows < 2 and name not in ("auto", "none"):
        raise TableError(
            f"{name} needs at least 2 rows held out, got {n_rows}; hold out more, or none for all to take turns"
        )
    if name in (("variance_scaling", "isotonic") if classes else ("temperature",)):
        raise TableError(f"{name} is a recalibration of {'numbers' if classes else 'classes'}; "
                         f"this is a {'classification' if classes else 'regression'}")  # fmt: skip

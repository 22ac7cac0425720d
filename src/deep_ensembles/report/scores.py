"""One number for all rows: of the ensemble, of one member alone, of a constant prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from deep_ensembles.report._facts import Rows, Sources, Vector
from deep_ensembles.report.wording import number, percent

Aim: TypeAlias = Literal["lower", "higher"] | float
Value = TypeVar("Value")


@dataclass(frozen=True)
class Score:
    """One number for all rows, of the ensemble, of one member alone and of a constant prediction.

    Arguments:
        name: what it is called.
        meaning: its definition in a line.
        better: whether lower or higher is better, or which value is aimed at.
        ensemble, single, constant: the values; None where there is none.
        gain: ensemble minus single.
        gain_error: the standard error of the gain over rows.
        lead, lead_error: the same of ensemble minus constant.
        share: whether it is a share, to be written in per cent.
    """

    name: str
    meaning: str
    better: Aim
    ensemble: float
    single: float | None = None
    constant: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    lead: float | None = None
    lead_error: float | None = None
    share: bool = False

    def text(self, value: float | None) -> str:
        """A value of this score as people read it."""
        return percent(value) if self.share and value is not None else number(value)

    @property
    def aim(self) -> str:
        """Which way the score should go, in a word."""
        return self.better if isinstance(self.better, str) else f"near {self.text(self.better)}"

    @property
    def best(self) -> float | None:
        """The best of the values; none where there is one value only, or a width, which alone says nothing."""
        values = [each for each in (self.ensemble, self.single, self.constant) if each is not None]
        if len(values) < 2 or self.name.endswith("width"):
            return None
        if isinstance(self.better, float):
            aim = self.better
            return min(values, key=lambda each: abs(each - aim))
        return min(values) if self.better == "lower" else max(values)

    @property
    def gain_text(self) -> str:
        """The gain with its error as people read it."""
        if self.gain is None:
            return "–"
        factor, unit = (100, " points") if self.share else (1, "")
        error = "" if self.gain_error is None else f" ± {number(factor * self.gain_error, 2)}"
        return f"{'+' if self.gain > 0 else ''}{number(factor * self.gain, 3)}{error}{unit}"


def over(sources: Sources, function: Callable[[Rows], Value]) -> tuple[Value, Value | None, Value | None]:
    """A number of each source; none of a source that is empty.

    Example:
        >>> over(({"a": np.ones(2)}, {}, {"a": np.zeros(2)}), lambda rows: float(rows["a"].sum()))
        (2.0, None, 0.0)
    """
    ours, single, constant = sources
    return function(ours), function(single) if single else None, function(constant) if constant else None


def mean_score(name: str, meaning: str, better: Aim, sources: Sources, key: str, share: bool = False) -> Score:
    """The mean over rows of one of their facts, with the differences that ensemble makes to member and constant.

    Example:
        >>> sources = {"loss": np.array([1.0, 2.0])}, {"loss": np.array([2.0, 5.0])}, {}
        >>> score = mean_score("Loss", "mean loss", "lower", sources, "loss")
        >>> score.ensemble, score.single, score.constant, score.gain, score.gain_error
        (1.5, 3.5, None, -2.0, 1.0)
    """
    ours, single, constant = sources
    gains = (*difference(ours[key], single.get(key)), *difference(ours[key], constant.get(key)))
    return Score(name, meaning, better, *over(sources, lambda rows: float(rows[key].mean())), *gains, share)


def difference(ours: Vector, other: Vector | None) -> tuple[float | None, float | None]:
    """The mean difference over rows and its standard error; None where there is no finite one."""
    if other is None or not np.isfinite(ours - other).all():
        return None, None
    gap = ours - other
    error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else None
    return float(gap.mean()), error

"""One number for all rows: of the ensemble, of one member alone, of a constant prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from deep_ensembles.report._facts import Vector
from deep_ensembles.report.wording import number, percent

Aim: TypeAlias = Literal["lower", "higher"] | float
Rows: TypeAlias = dict[str, Vector]
# Facts of rows under the ensemble, under one member and under a constant; empty where it was not asked.
Sources: TypeAlias = tuple[Rows, Rows, Rows]


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


def over(sources: Sources, function: Callable[[Rows], float]) -> tuple[float, float | None, float | None]:
    """A number of each source; none of a source that is empty.

    Example:
        >>> over(({"a": np.ones(2)}, {}, {"a": np.zeros(2)}), lambda rows: float(rows["a"].sum()))
        (2.0, None, 0.0)
    """
    ours, *others = sources
    single, constant = (function(each) if each else None for each in others)
    return function(ours), single, constant


def mean_score(name: str, meaning: str, better: Aim, sources: Sources, key: str, share: bool = False) -> Score:
    """The mean over rows of one of their facts, with the standard error of the difference between ensemble and member.

    Example:
        >>> sources = {"loss": np.array([1.0, 2.0])}, {"loss": np.array([2.0, 5.0])}, {}
        >>> score = mean_score("Loss", "mean loss", "lower", sources, "loss")
        >>> score.ensemble, score.single, score.constant, score.gain, score.gain_error
        (1.5, 3.5, None, -2.0, 1.0)
    """
    score = Score(name, meaning, better, *over(sources, lambda rows: float(rows[key].mean())), share=share)
    lead = with_gain(score, sources[0][key], sources[2].get(key))
    return replace(with_gain(score, sources[0][key], sources[1].get(key)), lead=lead.gain, lead_error=lead.gain_error)


def with_gain(score: Score, ours: Vector, single: Vector | None) -> Score:
    """The score with the difference of two means over rows; as it is where there is no finite one."""
    if single is None or not bool(np.isfinite(ours - single).all()):
        return score
    difference = ours - single
    error = float(difference.std(ddof=1) / math.sqrt(len(ours))) if len(ours) > 1 else None
    return replace(score, gain=float(difference.mean()), gain_error=error)

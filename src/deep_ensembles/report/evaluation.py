"""How good predictions were, as plain data: what a page shows and a program reads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from deep_ensembles._terminal import Listing
from deep_ensembles.report.scores import Score

# Columns of numbers; None where a row has none.
Curve = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Stop:
    """A demand, the threshold from which on predictions are trusted to meet it, and what that gives.

    Arguments:
        wanted: the accuracy, or the mean absolute error, that is demanded.
        threshold: the least confidence, or the greatest standard deviation, that is trusted.
        reached: the accuracy, or the mean absolute error, of the rows kept.
        kept: their share.
        rows: their number.
    """

    wanted: float
    threshold: float
    reached: float
    kept: float
    rows: int


@dataclass(frozen=True)
class Example:
    """A row worth looking at.

    Arguments:
        row: its number among all rows, from 0.
        values: what was predicted and what happened, by name.
        columns: the cells of the row, by column.
    """

    row: int
    values: Mapping[str, float | str | None]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Outside:
    """A column with values that training did not see.

    Arguments:
        column: its name.
        seen: what training saw of it, in words.
        rows: how many of the rows lie outside.
        share: their share.
        examples: some of the values outside, the farthest first.
    """

    column: str
    seen: str
    rows: int
    share: float
    examples: Sequence[str]


class Findings(NamedTuple):
    """That part of an `Evaluation` which is found out of rows, by the means of numbers or of classes."""

    scores: Sequence[Score]
    curves: Mapping[str, Curve]
    stops: Sequence[Stop]
    uncertain: Sequence[Example]
    wrong: Sequence[Example]
    verdicts: Mapping[str, str]
    summary: str


@dataclass(frozen=True)
class Evaluation:
    """How good predictions were, as plain data.

    Arguments:
        task: whether numbers or classes were predicted.
        n_rows, n_members: how many.
        coverage: the share that intervals should hold; None for classes, which have none.
        about: facts about model and data, by name.
        labels: the names of the classes; none for numbers.
        scores: the headline.
        curves: by name, columns of numbers.
        stops: what to trust for a wanted accuracy or error, from the easiest demand to the hardest.
        uncertain, wrong: rows worth looking at.
        outside: columns with values outside the training range; None where that is not known.
        verdicts: by curve, a sentence computed from its numbers.
        summary: for who reads nothing else.
    """

    task: Literal["numbers", "classes"]
    n_rows: int
    n_members: int
    coverage: float | None
    about: Mapping[str, str]
    labels: Sequence[str]
    scores: Sequence[Score]
    curves: Mapping[str, Curve]
    stops: Sequence[Stop]
    uncertain: Sequence[Example]
    wrong: Sequence[Example]
    outside: Sequence[Outside] | None
    verdicts: Mapping[str, str]
    summary: str

    def score(self, name: str) -> Score:
        """The score of that name."""
        return next(score for score in self.scores if score.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it; null where a number is infinite."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain

    def table(self) -> Listing:
        """The scores as a table."""
        head = [f"{self.n_rows} rows", f"ensemble of {self.n_members}", "one member", "constant", "better"]
        rows = [
            [score.name, *(score.text(each) for each in (score.ensemble, score.single, score.constant)), score.aim]
            for score in self.scores
        ]
        return Listing("Scores", head, rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

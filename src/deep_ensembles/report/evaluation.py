"""How good predictions were, as plain data: what a page shows and a program reads."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from deep_ensembles._files import json_ready
from deep_ensembles._terminal import Listing
from deep_ensembles.report.explain import Influences
from deep_ensembles.report.segments import Drifts, Segments
from deep_ensembles.report.words import Difference, number, percent, row_count

# Columns of numbers; None where a row has none.
Curve: TypeAlias = Mapping[str, Sequence[Any]]
Better: TypeAlias = Literal["lower", "higher", "as promised"] | float
_ROUNDING = 1e-9  # of a score, below which a difference is none
# The names of these fields in JSON, where other programs read them.
_JSON_NAMES = {"thresholds": "stops", "unseen": "outside"}


@dataclass(frozen=True)
class Score:
    """One number for all rows, of the ensemble, of one member alone and of a constant prediction.

    Arguments:
        name: what it is called.
        meaning: its definition in a line.
        better: whether lower or higher is better, or which value is aimed at; "as promised" where every prediction has
            an aim of its own.
        ensemble, single, constant: the values; None where there is none.
        gain: ensemble minus single.
        gain_error: the standard error of the gain over rows.
        lead, lead_error: the same of ensemble minus constant.
        share: whether it is a share, to be written in per cent.
    """

    name: str
    meaning: str
    better: Better
    ensemble: float
    single: float | None = None
    constant: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    lead: float | None = None
    lead_error: float | None = None
    share: bool = False

    def difference(self, of: str) -> Difference | None:
        """The gain or the lead with its error, where there is one and the score has a better side."""
        change, error = getattr(self, of), getattr(self, f"{of}_error")
        if change is None or error is None or self.better not in ("lower", "higher"):
            return None
        is_higher, other = self.better == "higher", self.single if of == "gain" else self.constant
        rounding = _ROUNDING * max(abs(self.ensemble), abs(other or 0.0))
        change, error = (0.0 if abs(value) <= rounding else value for value in (change, error))
        return Difference(self.name, -change if is_higher else change, error, self.share, is_higher)

    @property
    def values(self) -> tuple[float, float | None, float | None]:
        """Of the ensemble, of one member and of the constant."""
        return self.ensemble, self.single, self.constant

    def text(self, value: float | None) -> str:
        """A value of this score as text."""
        return percent(value) if self.share and value is not None else number(value)

    @property
    def aim(self) -> str:
        """Which way the score should go, in a word."""
        return self.better if isinstance(self.better, str) else f"near {self.text(self.better)}"

    @property
    def best(self) -> float | None:
        """The best of the values; None where there is only one, or for a width or a promise, which alone says nothing."""
        values = [value for value in self.values if value is not None]
        if len(values) < 2 or self.name.endswith("width") or self.better == "as promised":
            return None
        if isinstance(self.better, float):
            aim = self.better
            return min(values, key=lambda value: abs(value - aim))
        return min(values) if self.better == "lower" else max(values)

    @property
    def gain_text(self) -> str:
        """The gain with its error as text."""
        if self.gain is None:
            return "–"
        factor, unit = (100, " points") if self.share else (1, "")
        error = "" if self.gain_error is None else f" ± {number(factor * self.gain_error, 2)}"
        return f"{'+' if self.gain > 0 else ''}{number(factor * self.gain, 3)}{error}{unit}"


@dataclass(frozen=True)
class Threshold:
    """Which predictions to trust for a wanted accuracy or error, and what that gives.

    Arguments:
        wanted: the accuracy, or the mean absolute error, that is wanted.
        threshold: the least confidence, or the greatest uncertainty (see `Evaluation.notes`), that is trusted.
        reached, error: the accuracy, or the mean absolute error, of rows that are kept by a threshold that other rows chose,
            and its standard error.
        kept: the share of the rows kept.
        rows: their number.
    """

    wanted: float
    threshold: float
    reached: float
    error: float
    kept: float
    rows: int


@dataclass(frozen=True)
class Example:
    """A row worth a look.

    Arguments:
        row: its number: as in the file, from 1, of tables, else from 0.
        values: what was predicted and what happened, by name.
        columns: the cells of the row, by column.
    """

    row: int
    values: Mapping[str, float | str | None]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Unseen:
    """A column with values that training did not see.

    Arguments:
        column: its name.
        seen: what training saw of it, in words.
        rows: how many rows have unseen values.
        share: their share.
        examples: some of the unseen values, the farthest first.
    """

    column: str
    seen: str
    rows: int
    share: float
    examples: Sequence[str]


@dataclass(frozen=True)
class ColumnFacts:
    """What a column is taken for, and the share of rows here in which it is missing."""

    column: str
    understood: str
    missing: float


@dataclass(frozen=True)
class Evaluation:
    """How good predictions were, as plain data.

    Arguments:
        task: whether numbers, classes or times, some of them censored, were predicted.
        n_rows, n_members: how many.
        coverage: the share of rows that intervals should hold; None for classes, which have no intervals.
        about: facts about model and data, by name.
        labels: the names of the classes; empty for numbers.
        scores: one number each for all rows.
        curves: by name, columns of numbers.
        thresholds: what to trust for a wanted accuracy or error, from the easiest to the hardest; empty for censored times.
        uncertain, wrong: rows worth a look.
        unseen: columns with values that training did not see; None where that is not known.
        verdicts: by curve, a sentence computed from its numbers.
        summary: one or two sentences for a reader of nothing else.
        notes: what is special to this kind of prediction: what it `predicts`, what `uncertainty` is, the family of the
            `constant`, which of two classes is `rare`, where rows are `counted` from, and the `support` if it is positive.
        influences: which columns drive predictions; None where that was not looked at.
        segments: where errors are larger than elsewhere; None where columns are not known or rows too few.
        drifts: which columns have changed since training; None where that cannot be judged.
        target: the name of what is predicted.
        unit: of that; empty where there is none, or it is not known.
        columns: some of those that the model uses.
    """

    task: Literal["numbers", "classes", "times"]
    n_rows: int
    n_members: int
    coverage: float | None
    about: Mapping[str, str]
    labels: Sequence[str]
    scores: Sequence[Score]
    curves: Mapping[str, Curve]
    thresholds: Sequence[Threshold]
    uncertain: Sequence[Example]
    wrong: Sequence[Example]
    unseen: Sequence[Unseen] | None
    verdicts: Mapping[str, str]
    summary: str
    notes: Mapping[str, str]
    influences: Influences | None = None
    segments: Segments | None = None
    drifts: Drifts | None = None
    target: str = ""
    unit: str = ""
    columns: Sequence[ColumnFacts] = ()

    @property
    def leads(self) -> list[Difference]:
        """The differences from a constant prediction that have an error."""
        return [lead for score in self.scores if (lead := score.difference("lead")) is not None]

    def score(self, name: str) -> Score:
        """The score of that name."""
        return next(score for score in self.scores if score.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON can say it; null where a number is infinite."""
        return {_JSON_NAMES.get(name, name): json_ready(value) for name, value in asdict(self).items()}

    def listing(self) -> Listing:
        """The scores, to print."""
        head = [row_count(self.n_rows), f"ensemble of {self.n_members}", "one member", "constant", "better"]
        return Listing("Scores", head, [[score.name, *map(score.text, score.values), score.aim] for score in self.scores])

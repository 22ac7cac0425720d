"""Charts as plain data, and the charts of an evaluation; `report.svg` and `paper.figures` draw them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.words import count

# What a mark stands for; whoever draws it chooses the colour.
Role: TypeAlias = Literal["ours", "other", "third", "fourth", "truth", "data", "muted"]


class Line(NamedTuple):
    """A line through points, with markers or dashes on request."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    role: Role = "ours"
    dashed: bool = False
    markers: bool = False


class Span(NamedTuple):
    """What lies between `low` and `high` at every `x`; drawn as a `Band` or as `Ranges`."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    label: str = ""
    role: Role = "ours"


class Band(Span):
    """The area between two lines."""


class Ranges(Span):
    """A vertical bar from `low` to `high` at every `x`."""


class Points(NamedTuple):
    """Single points, with horizontal bars of half-length `x_error` if given."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    role: Role = "data"
    x_error: ArrayLike | None = None
    marker: str = "o"


class Image(NamedTuple):
    """Pixels: `[height, width]` grey or `[height, width, 3]` colours."""

    pixels: np.ndarray


class Columns(NamedTuple):
    """Histogram columns from 0 to `heights` between neighbouring `edges`, of which there is one more."""

    edges: ArrayLike
    heights: ArrayLike
    label: str = ""
    role: Role = "ours"


class Grid(NamedTuple):
    """Cells `[row, column]` between 0 (empty) and 1 (full), row 0 on top at height 0, with a text in each on request."""

    cells: np.ndarray
    texts: Sequence[Sequence[str]] | None = None


Limits: TypeAlias = tuple[float | None, float | None]
Layer: TypeAlias = Line | Band | Points | Image | Ranges | Columns | Grid


class Panel(NamedTuple):
    """One pair of axes.

    Arguments:
        layers: what is drawn, the lowest first.
        title, x_label, y_label: texts; of an evaluation's charts the page has them.
        x_limits, y_limits: what is shown; chosen to fit if None, or either end alone.
        x_ticks, y_ticks: names for the places 0, 1, … on an axis.
        square: whether it is as high as wide.
        legend: whether labels are listed inside.
        logarithmic: whether both axes are, for positive numbers of very different sizes.
    """

    layers: Sequence[Layer]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_limits: Limits | None = None
    y_limits: Limits | None = None
    x_ticks: Sequence[str] | None = None
    y_ticks: Sequence[str] | None = None
    square: bool = False
    legend: bool = True
    logarithmic: bool = False


class Row(NamedTuple):
    """Panels side by side.

    Arguments:
        panels: from left to right.
        title: above them.
        height: in inches.
        widths: of the panels, relative.
    """

    panels: Sequence[Panel]
    title: str = ""
    height: float = 4.0
    widths: Sequence[float] | None = None


class Figure(NamedTuple):
    """Rows of panels."""

    rows: Sequence[Row]
    title: str = ""
    width: float = 13.0


_SOURCES: dict[str, tuple[str, Role]]
_SOURCES = {"ensemble": ("ensemble", "ours"), "single": ("one member", "other"), "constant": ("constant", "third")}
_TEXT_CLASSES = 12
_LARGE_RATIO = 30.0  # between large and small values, from which logarithmic axes show more
_SHARES = (0, 1)
_FROM_0: Limits = (0, None)
_SQUARE: dict[str, Any] = {"x_limits": (0, 1), "y_limits": (0, 1.02)}
_THIRDS: dict[str, Role] = {"shortest": "other", "middle": "third", "longest": "ours"}

Arrays: TypeAlias = Mapping[str, np.ndarray]


def evaluation_charts(evaluation: Evaluation) -> dict[str, Panel]:
    """The charts of an evaluation by name; the page has their words, and a chart's verdict has the same name."""
    curves, charts = dict(evaluation.curves), _CHARTS[evaluation.task]
    if evaluation.n_members > 1 and "aleatoric" in curves["rows"]:
        curves["parts"] = curves["rows"]
    return {name: chart(evaluation, {key: np.array(values) for key, values in curves[name].items()})
            for name, chart in charts.items() if name in curves}  # fmt: skip


def _ideal(x: ArrayLike, y: ArrayLike, label: str = "ideal") -> Line:
    """The dashed line of what a good one would be, or of what to compare with."""
    return Line(x, y, label, "muted", dashed=True)


def _sources(curve: Arrays, x: str, markers: bool = False) -> list[Line]:
    """The ensemble's line, and those of one member and of a constant where these are known."""
    return [Line(curve[x], curve[name].astype(float), *words, markers=markers and name == "ensemble")
            for name, words in _SOURCES.items() if name in curve]  # fmt: skip


def _target_numbers(evaluation: Evaluation, curve: Arrays) -> Panel:
    middles = (curve["edge"][1:] + curve["edge"][:-1]) / 2
    columns = Columns(curve["edge"], curve["share"], "actual", "muted")
    return Panel([columns, Line(middles, curve["predicted"], "predicted")], y_limits=_FROM_0)


def _target_classes(evaluation: Evaluation, curve: Arrays) -> Panel:
    places, names = np.arange(len(curve["label"])), [evaluation.labels[label] for label in curve["label"]]
    edges, heights = (np.stack(pair, 1).ravel() for pair in ((places - 0.35, places + 0.35), (curve["actual"], 0 * places)))
    columns = Columns(edges, heights[:-1], "actual", "muted")
    return Panel([columns, Points(places, curve["predicted"], "predicted", "ours")], x_ticks=names, y_limits=_FROM_0)


def _time(evaluation: Evaluation, curve: Arrays) -> Panel:
    places, mean, error = np.arange(len(curve["mean"])), curve["mean"], 2 * curve["error"]
    usual, label = (mean.mean(), "all rows") if evaluation.labels else (0.0, "right on average")
    dashed, ranges = _ideal(places[[0, -1]], [usual, usual], label), Ranges(places, mean - error, mean + error)
    return Panel([dashed, ranges, Line(places, mean, "rows of that time", markers=True)], x_ticks=curve["time"].tolist())


def _calibration(evaluation: Evaluation, curve: Arrays) -> Panel:
    return Panel([_ideal(_SHARES, _SHARES), *_sources(curve, "level", markers=True)], x_limits=_SHARES, y_limits=_SHARES)


def _levels(evaluation: Evaluation, curve: Arrays) -> Panel:
    even = [1 / len(curve["share"])] * 2
    return Panel([Columns(curve["edge"], curve["share"], "rows"), _ideal(_SHARES, even)], x_limits=_SHARES, y_limits=_FROM_0)


def _ends(curve: Arrays, point: str) -> list[float]:
    """The least and the greatest number, of what happened and what was predicted."""
    return [float(function([curve["actual"], curve[point]])) for function in (np.min, np.max)]


def _rows(evaluation: Evaluation, curve: Arrays) -> Panel:
    point = "median" if "median" in curve else "mean"
    missed, ends = (curve["actual"] < curve["low"]) | (curve["actual"] > curve["high"]), _ends(curve, point)
    layers: list[Layer] = [_ideal(ends, ends, "actual = predicted")]
    groups: dict[Role, tuple[str, np.ndarray]] = {"ours": ("interval holds", ~missed), "other": ("does not", missed)}
    for role, (label, group) in groups.items():
        if group.any():
            actual, guess, low, high = (curve[name][group] for name in ("actual", point, "low", "high"))
            layers += [Ranges(actual, low, high, "", role), Points(actual, guess, label, role, marker=".")]
    small, large = np.quantile(curve["actual"], [0.05, 0.95])
    return Panel(layers, logarithmic="support" in evaluation.notes and ends[0] > 0 and bool(_LARGE_RATIO * small < large))


def _time_rows(evaluation: Evaluation, curve: Arrays) -> Panel:
    time, median, is_event, ends = curve["actual"], curve["median"], curve["event"] == 1, _ends(curve, "median")
    censored = Points(time[~is_event], median[~is_event], "censored: lasts longer", "other", marker="x")
    event = Points(time[is_event], median[is_event], "event", "ours", marker=".")
    layers: list[Layer] = [_ideal(ends, ends, "time = predicted"), *([] if is_event.all() else [censored]), event]
    return Panel(layers, logarithmic=0 < _LARGE_RATIO * ends[0] < ends[1])


def _errors(evaluation: Evaluation, curve: Arrays) -> Panel:
    if evaluation.labels:
        return Panel([Line(curve["entropy"], curve["wrong"], markers=True)], y_limits=_FROM_0)
    layers = [Line(curve["spread"], curve["error"], "groups of rows", markers=True)]
    if evaluation.notes["uncertainty"] != "standard deviation":
        return Panel(layers, y_limits=_FROM_0)
    limits = (0, 1.04 * (max(*curve["spread"], *curve["error"]) or 1.0))
    return Panel([_ideal(limits, limits), *layers], x_limits=limits, y_limits=limits)


def _parts(evaluation: Evaluation, curve: Arrays) -> Panel:
    """Noise and disagreement."""
    x, y = curve["aleatoric"], curve["epistemic"]
    ends, points = [0, min(x.max(), y.max())], [Points(x, y, "row", "ours", marker=".")]
    if evaluation.labels:
        good = curve["correct"] == 1
        points = [Points(x[good], y[good], "right", "ours", marker=".")]
        points.append(Points(x[~good], y[~good], "wrong", "other", marker="x"))
    return Panel([_ideal(ends, ends, "equal parts"), *points], x_limits=_FROM_0, y_limits=_FROM_0)


def _accuracies(evaluation: Evaluation, curve: Arrays, name: str, x: str) -> Panel:
    """The accuracy of one member alone, where it is known, and above it the ensemble's."""
    curves = {"single": evaluation.curves.get(f"single {name}", {}), "ensemble": evaluation.curves[name]}
    lines = [Line(known[x], np.array(known["accuracy"], float), *_SOURCES[source], markers=name == "reliability")
             for source, known in curves.items() if known]  # fmt: skip
    other = _ideal(curve[x], curve["kept"], "share kept") if "kept" in curve else _ideal(_SHARES, _SHARES)
    return Panel([other, *lines], **_SQUARE)


def _found(evaluation: Evaluation, curve: Arrays, x: str) -> Panel:
    """How much of the rarer class is found."""
    return Panel([_ideal(_SHARES, _SHARES, "chance"), Line(curve[x], curve["found"], "ensemble")], **_SQUARE)


def _precision(evaluation: Evaluation, curve: Arrays) -> Panel:
    chance = _ideal(_SHARES, [curve["precision"][-1]] * 2, "chance")
    return Panel([chance, Line(curve["recall"], curve["precision"], "ensemble")], x_limits=_SHARES, y_limits=_FROM_0)


def _matrix(evaluation: Evaluation, curve: Arrays) -> Panel:
    rows, labels = np.array(list(curve.values())), evaluation.labels
    texts = [[count(n) if n else "" for n in row] for row in rows.tolist()] if len(rows) <= _TEXT_CLASSES else None
    return Panel([Grid(rows / np.maximum(rows.sum(1, keepdims=True), 1), texts)], x_ticks=labels, y_ticks=labels)


def _survival(evaluation: Evaluation, curve: Arrays) -> Panel:
    observed = [Line(curve["time"], curve[name].astype(float), f"{name} third", role) for name, role in _THIRDS.items()]
    dashed = [Line(curve["time"], curve[f"{name} predicted"], "", role, dashed=True) for name, role in _THIRDS.items()]
    return Panel([*observed, *dashed], y_limits=(0, 1.02))


def _brier(evaluation: Evaluation, curve: Arrays) -> Panel:
    reference = _ideal(curve["time"], curve["Kaplan–Meier"], "Kaplan–Meier curve of these rows")
    return Panel([reference, *_sources(curve, "time")], y_limits=_FROM_0)


_CHARTS: dict[str, dict[str, Any]] = {
    "classes": {
        "target": _target_classes, "reliability": partial(_accuracies, name="reliability", x="confidence"),
        "roc": partial(_found, x="false"), "precision": _precision, "lift": partial(_found, x="share"),
        "accuracy": partial(_accuracies, name="accuracy", x="threshold"), "matrix": _matrix, "time": _time, "error": _errors,
        "parts": _parts,
    },
    "numbers": {"target": _target_numbers, "rows": _rows, "calibration": _calibration, "levels": _levels, "time": _time,
                "error": _errors, "parts": _parts},
    "times": {"calibration": _calibration, "survival": _survival, "brier": _brier, "rows": _time_rows, "parts": _parts},
}  # fmt: skip

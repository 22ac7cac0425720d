"""Charts as plain data, and the charts of an evaluation; `report.svg` and `paper.figures` draw them."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deep_ensembles.report.evaluation import Curve, Evaluation
from deep_ensembles.report.words import count, level

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


Layer: TypeAlias = Line | Band | Points | Image | Ranges | Columns | Grid


class Panel(NamedTuple):
    """One pair of axes.

    Arguments:
        layers: what is drawn, the lowest first.
        title, x_label, y_label: texts; the title on a page is the question that the chart answers.
        x_limits, y_limits: what is shown; chosen to fit if None.
        x_ticks, y_ticks: names for the places 0, 1, … on an axis.
        square: whether it is as high as wide.
        legend: whether labels are listed inside.
        logarithmic: whether both axes are, for positive numbers of very different sizes.
    """

    layers: Sequence[Layer]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
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
    """Rows of panels, and a description for readers who cannot see them."""

    rows: Sequence[Row]
    title: str = ""
    width: float = 13.0
    description: str = ""


_SOURCES: dict[str, tuple[str, Role]] = {
    "ensemble": ("ensemble", "ours"),
    "single": ("one member", "other"),
    "constant": ("constant", "third"),
}
_TEXT_CLASSES = 12
_LARGE_RATIO = 30.0  # between large and small values, from which logarithmic axes show more
_CHANCE = ([0, 1], [0, 1], "chance")


def evaluation_charts(evaluation: Evaluation) -> dict[str, Panel]:
    """The charts of an evaluation by name, in the order of a page; a chart's verdict has the same name."""
    found = {
        "classes": {"target": _classes, "reliability": _reliability, "roc": _roc, "precision": _precision, "lift": _lift,
                    "accuracy": _accuracy, "matrix": _matrix, "time": _time, "error": _error},
        "numbers": {"target": _target, "rows": _rows, "calibration": _calibration, "levels": _levels, "time": _time,
                    "error": _error},
        "times": {"calibration": _event_calibration, "survival": _survival, "brier": _brier, "rows": _time_rows},
    }[evaluation.task]  # fmt: skip
    panels = {name: chart(evaluation) for name, chart in found.items() if name in evaluation.curves}
    has_parts = evaluation.n_members > 1 and "aleatoric" in evaluation.curves["rows"]
    return panels | ({"parts": _parts(evaluation)} if has_parts else {})


def _ideal(x: Sequence[float], y: Sequence[float], label: str = "ideal") -> Line:
    """The dashed line of what a good one would be, or of what to compare with."""
    return Line(x, y, label, "muted", dashed=True)


def _source_lines(curve: Curve, x: str, markers: bool = False) -> list[Line]:
    """The ensemble's line, and those of one member and of a constant where these are known."""
    names = [name for name in _SOURCES if name in curve]
    return [Line(curve[x], curve[name], *_SOURCES[name], markers=markers and name == "ensemble") for name in names]


def _target(evaluation: Evaluation) -> Panel:
    curve = _arrays(evaluation.curves["target"])
    middles, top = (curve["edge"][1:] + curve["edge"][:-1]) / 2, 1.08 * (max(*curve["share"], *curve["predicted"]) or 1.0)
    columns = Columns(curve["edge"], curve["share"], "actual", "muted")
    labels = (evaluation.target or "target", "share of rows")
    return Panel([columns, Line(middles, curve["predicted"], "predicted")], "What is predicted?", *labels, None, (0, top))


def _classes(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["target"]
    places, top = np.arange(len(curve["label"])), 1.08 * max(*curve["actual"], *curve["predicted"])
    heights = np.stack([curve["actual"], 0 * places], 1).ravel()[:-1]
    columns = Columns(np.stack([places - 0.35, places + 0.35], 1).ravel(), heights, "actual", "muted")
    names, dots = (
        [evaluation.labels[label] for label in curve["label"]],
        Points(places, curve["predicted"], "predicted", "ours"),
    )
    return Panel([columns, dots], "What is predicted?", evaluation.target, "share of rows", None, (0, top), names)


def _time(evaluation: Evaluation) -> Panel:
    curve, is_class = evaluation.curves["time"], evaluation.task == "classes"
    places, mean, error = np.arange(len(curve["mean"])), np.array(curve["mean"]), 2 * np.array(curve["error"])
    overall, label = (float(mean.mean()), "all rows") if is_class else (0.0, "right on average")
    dashed, ranges = _ideal([0, len(places) - 1], [overall, overall], label), Ranges(places, mean - error, mean + error)
    title, what = "Does it get worse over time?", "share of wrong predictions" if is_class else "predicted minus actual"
    layers: list[Layer] = [dashed, ranges, Line(places, mean, "rows of that time", markers=True)]
    return Panel(layers, title, "from this time on", what, x_ticks=curve["time"])


def _calibration(evaluation: Evaluation) -> Panel:
    layers = [_ideal([0, 1], [0, 1]), *_source_lines(evaluation.curves["calibration"], "level", markers=True)]
    title, labels = "Do the intervals hold what they promise?", ("wanted share of rows inside", "observed share")
    return Panel(layers, title, *labels, (0, 1), (0, 1))


def _levels(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["levels"]
    even = 1 / len(curve["share"])
    layers: list[Layer] = [Columns(curve["edge"], curve["share"], "rows"), _ideal([0, 1], [even, even])]
    title, x_label = "Where in its distribution does the truth fall?", "predicted probability of a lower value, F(y)"
    return Panel(layers, title, x_label, "share of rows", (0, 1), (0, max(1.2 * even, 1.08 * max(curve["share"]))))


def _rows(evaluation: Evaluation) -> Panel:
    coverage, curve = level(evaluation.coverage or 0.0), _arrays(evaluation.curves["rows"])
    point = "median" if "median" in curve else "mean"
    missed = (curve["actual"] < curve["low"]) | (curve["actual"] > curve["high"])
    both = np.concatenate([curve["actual"], curve[point]])
    ends = [float(both.min()), float(both.max())]
    layers: list[Layer] = [_ideal(ends, ends, "actual = predicted")]
    groups: dict[Role, tuple[str, np.ndarray]] = {"ours": ("interval holds", ~missed), "other": ("does not", missed)}
    for role, (label, group) in groups.items():
        if group.any():
            actual, guess, low, high = (curve[name][group] for name in ("actual", point, "low", "high"))
            layers += [Ranges(actual, low, high, "", role), Points(actual, guess, label, role, marker=".")]
    small, large = np.quantile(curve["actual"], [0.05, 0.95])
    is_skewed = "positive" in evaluation.notes and bool((both > 0).all()) and bool(0 < _LARGE_RATIO * small < large)
    title, y_label = "How close are single predictions?", f"predicted, with {coverage} interval"
    return Panel(layers, title, "actual", y_label, logarithmic=is_skewed)


def _error(evaluation: Evaluation) -> Panel:
    curve, measure = evaluation.curves["error"], evaluation.notes["uncertainty"]
    if evaluation.task == "classes":
        line, top = Line(curve["entropy"], curve["wrong"], markers=True), 1.08 * (max(curve["wrong"]) or 1.0)
        title, labels = "Is it wrong where it is unsure?", ("predicted entropy, in nats", "share of wrong predictions")
        return Panel([line], title, *labels, None, (0, top))
    points = Line(curve["spread"], curve["error"], "groups of rows", markers=True)
    if measure != "standard deviation":
        title, labels = "Are errors larger where it is unsure?", (f"mean {measure}", "mean absolute error")
        return Panel([points], title, *labels, None, (0, 1.08 * (max(curve["error"]) or 1.0)))
    most = max(*curve["spread"], *curve["error"]) or 1.0
    limits, layers = (0, 1.04 * most), [_ideal([0, most], [0, most]), points]
    title, labels = "Are errors as large as predicted?", ("predicted standard deviation", "root mean squared error")
    return Panel(layers, title, *labels, limits, limits)


def _parts(evaluation: Evaluation) -> Panel:
    """Noise and disagreement."""
    curve = _arrays(evaluation.curves["rows"])
    x, y = curve["aleatoric"], curve["epistemic"]
    right, top = float(x.max()) or 1.0, float(y.max()) or 1.0
    ends = [0, min(right, top)]
    measure, points = "standard deviation", [Points(x, y, "row", "ours", marker=".")]
    if evaluation.task == "classes":
        measure, good = "entropy, in nats", curve["correct"] == 1
        points = [
            Points(x[good], y[good], "right", "ours", marker="."),
            Points(x[~good], y[~good], "wrong", "other", marker="x"),
        ]
    labels, limits = (f"aleatoric {measure}", f"epistemic {measure}"), ((0, 1.04 * right), (0, 1.04 * top))
    return Panel([_ideal(ends, ends, "equal parts"), *points], "Noise, or not knowing?", *labels, *limits)


def _reliability(evaluation: Evaluation) -> Panel:
    layers = [_ideal([0, 1], [0, 1]), *_accuracy_lines(evaluation, "reliability", "confidence", markers=True)]
    return Panel(layers, "Is it right as often as it says?", "confidence", "accuracy", (0, 1), (0, 1.02))


def _roc(evaluation: Evaluation) -> Panel:
    curve, label = evaluation.curves["roc"], evaluation.notes["rare"]
    layers = [_ideal(*_CHANCE), Line(curve["false"], curve["found"], "ensemble")]
    title, labels = f"Can it tell {label} from the others?", ("false alarms among other rows", f"share of {label} found")
    return Panel(layers, title, *labels, (0, 1), (0, 1.02))


def _precision(evaluation: Evaluation) -> Panel:
    curve, label = evaluation.curves["precision"], evaluation.notes["rare"]
    share, top = curve["precision"][-1], min(1.02, 1.08 * max(curve["precision"]))
    layers = [_ideal([0, 1], [share, share], "chance"), Line(curve["recall"], curve["precision"], "ensemble")]
    title, labels = f"How many alarms of {label} are right?", (f"share of {label} found", "share of alarms that are right")
    return Panel(layers, title, *labels, (0, 1), (0, top))


def _lift(evaluation: Evaluation) -> Panel:
    curve, label = evaluation.curves["lift"], evaluation.notes["rare"]
    layers = [_ideal(*_CHANCE), Line(curve["share"], curve["found"], "ensemble")]
    title, labels = "What do the first rows hold?", ("share of rows looked at", f"share of {label} found")
    return Panel(layers, title, *labels, (0, 1), (0, 1.02))


def _accuracy(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["accuracy"]
    kept = _ideal(curve["threshold"], curve["kept"], "share kept")
    layers = [*_accuracy_lines(evaluation, "accuracy", "threshold"), kept]
    title, x_label = "How accurate is it where it is confident?", "least confidence that is trusted"
    return Panel(layers, title, x_label, "accuracy, share of rows", (0, 1), (0, 1.02))


def _matrix(evaluation: Evaluation) -> Panel:
    rows, labels = np.array(list(evaluation.curves["matrix"].values())), evaluation.labels
    shares, texts = rows / np.maximum(rows.sum(1, keepdims=True), 1), None
    if len(rows) <= _TEXT_CLASSES:
        texts = [[count(n) if n else "" for n in row] for row in rows.tolist()]
    title, cells = "What does it confuse?", [Grid(shares, texts)]
    return Panel(cells, title, "predicted class", "actual class", x_ticks=labels, y_ticks=labels)


def _accuracy_lines(evaluation: Evaluation, name: str, x: str, markers: bool = False) -> list[Line]:
    """The accuracy of one member alone, where it is known, and above it the ensemble's."""
    curves = {"single": evaluation.curves.get(f"single {name}"), "ensemble": evaluation.curves[name]}
    known = {source: curve for source, curve in curves.items() if curve is not None}
    return [Line(curve[x], curve["accuracy"], *_SOURCES[source], markers=markers) for source, curve in known.items()]


def _event_calibration(evaluation: Evaluation) -> Panel:
    title, labels = "Do events come when they should?", ("predicted probability of the event", "observed share")
    return _calibration(evaluation)._replace(title=title, x_label=labels[0], y_label=labels[1])


def _survival(evaluation: Evaluation) -> Panel:
    curve, layers = evaluation.curves["survival"], list[Layer]()
    roles: dict[str, Role] = {"shortest": "other", "middle": "third", "longest": "ours"}
    for name, role in roles.items():
        layers.append(Line(curve["time"], curve[name], f"{name} third", role))
        layers.append(Line(curve["time"], curve[f"{name} predicted"], "", role, dashed=True))
    title = "Do groups of rows last as long as predicted?"
    return Panel(layers, title, "time", "share that lasts longer", None, (0, 1.02))


def _brier(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["brier"]
    reference = _ideal(curve["time"], curve["Kaplan–Meier"], "Kaplan–Meier curve of these rows")
    top = 1.08 * max(max(curve[name]) for name in curve if name != "time") or 1.0
    layers, title = [reference, *_source_lines(curve, "time")], "When are probabilities good?"
    return Panel(layers, title, "time", "Brier score", None, (0, top))


def _time_rows(evaluation: Evaluation) -> Panel:
    curve = _arrays(evaluation.curves["rows"])
    time, median, is_event = curve["actual"], curve["median"], curve["event"] == 1
    ends = [float(function([time, median])) for function in (np.min, np.max)]
    layers: list[Layer] = [_ideal(ends, ends, "time = predicted")]
    if not is_event.all():
        layers.append(Points(time[~is_event], median[~is_event], "censored: lasts longer", "other", marker="x"))
    layers.append(Points(time[is_event], median[is_event], "event", "ours", marker="."))
    title, labels = "How close are single predictions?", ("time of the event, or of the end of watching", "predicted median")
    return Panel(layers, title, *labels, logarithmic=0 < _LARGE_RATIO * ends[0] < ends[1])


def _arrays(curve: Any) -> dict[str, np.ndarray]:
    """A curve's columns as arrays, with NaN where there is no number."""
    return {name: np.array(values, dtype=np.float64) for name, values in curve.items()}

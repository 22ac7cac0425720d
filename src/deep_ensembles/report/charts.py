"""Charts as plain data, and the charts of an evaluation; `report.svg` and `paper.figures` draw them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deep_ensembles.report.classes import N_BINS
from deep_ensembles.report.evaluation import Evaluation
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
        reading: how to read it and what a good one looks like, for a page.
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
    reading: str = ""
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


SOURCES: dict[str, tuple[str, Role]] = {
    "ensemble": ("ensemble", "ours"),
    "single": ("one member", "other"),
    "constant": ("constant", "third"),
}
_TEXT_CLASSES = 12
_COUNT_LEVELS = " A count y stands for a level drawn between F(y − 1) and F(y), as no interval of whole numbers is exact."
# From this ratio on between large and small values logarithmic axes show more.
_LARGE_RATIO = 30.0


def evaluation_charts(evaluation: Evaluation) -> dict[str, Panel]:
    """The charts of an evaluation by name, in the order of a page; a chart's verdict has the same name."""
    charts: dict[str, Callable[[Evaluation], Panel]]
    if evaluation.task == "classes":
        charts = {"reliability": _reliability, "confidence": _confidence, "accuracy": _accuracy}
        charts |= {"matrix": _matrix} if "matrix" in evaluation.curves else {}
    else:
        charts = {"calibration": _calibration, "levels": _levels, "width": _width, "rows": _rows}
    charts |= {"error": _error, "risk": _risk}
    charts |= {"parts": parts} if evaluation.n_members > 1 and "aleatoric" in evaluation.curves["rows"] else {}
    return {name: chart(evaluation) for name, chart in charts.items()}


def ideal(x: Sequence[float], y: Sequence[float], label: str = "ideal") -> Line:
    """The dashed line of what a good one would be, or of what to compare with."""
    return Line(x, y, label, "muted", dashed=True)


def _calibration(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["calibration"]
    sources = [name for name in SOURCES if name in curve]
    lines = [Line(curve["level"], curve[name], *SOURCES[name], markers=name == "ensemble") for name in sources]
    reading = (
        "For each central interval from 5 to 95 per cent: how many rows it should hold, and how many it did. A good curve "
        "lies on the dashed line; below it intervals are too narrow, above it too wide."
    )
    reading += _COUNT_LEVELS if "interval" in evaluation.notes else ""
    title, layers = "Do the intervals hold what they promise?", [ideal([0, 1], [0, 1]), *lines]
    return Panel(layers, title, "wanted share of rows inside", "observed share", (0, 1), (0, 1), reading=reading)


def _levels(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["levels"]
    even = 1 / len(curve["share"])
    top = max(1.2 * even, 1.08 * max(curve["share"]))
    layers: list[Layer] = [Columns(curve["edge"], curve["share"], "rows"), ideal([0, 1], [even, even])]
    reading = (
        "Each row's target as a level of its own predicted distribution (the PIT). A good histogram is flat; a hill means "
        "predictions are too wide, a valley too narrow, a slope that they lean to one side."
    )
    reading += _COUNT_LEVELS if "interval" in evaluation.notes else ""
    title, x_label = "Where in its distribution does the truth fall?", "predicted probability of a lower value, F(y)"
    return Panel(layers, title, x_label, "share of rows", (0, 1), (0, top), reading=reading)


def _width(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["width"]
    sources = [name for name in SOURCES if f"{name} width" in curve]
    lines = [Line(curve[f"{name} width"], curve[f"{name} coverage"], *SOURCES[name], markers=True) for name in sources]
    reading = (
        f"Intervals at {', '.join(map(level, curve['level']))}: how wide they are on average, and how many rows they hold. "
        "The better model reaches the same share with narrower intervals: its curve lies further up and to the left."
    )
    reading += f" {evaluation.notes['interval']}" if "interval" in evaluation.notes else ""
    title, labels = "What does coverage cost in width?", ("mean width of the interval", "observed share inside")
    return Panel(lines, title, *labels, None, (0, 1.02), reading=reading)


def _rows(evaluation: Evaluation) -> Panel:
    coverage, curve = level(evaluation.coverage or 0.0), arrays(evaluation.curves["rows"])
    point = "median" if "median" in curve else "mean"
    missed = (curve["actual"] < curve["low"]) | (curve["actual"] > curve["high"])
    both = np.concatenate([curve["actual"], curve[point]])
    ends = [float(both.min()), float(both.max())]
    layers: list[Layer] = [ideal(ends, ends, "actual = predicted")]
    groups: dict[Role, tuple[str, np.ndarray]] = {"ours": ("interval holds", ~missed), "other": ("does not", missed)}
    for role, (label, group) in groups.items():
        if group.any():
            actual, guess, low, high = (curve[name][group] for name in ("actual", point, "low", "high"))
            layers += [Ranges(actual, low, high, "", role), Points(actual, guess, label, role, marker=".")]
    which = shown_rows(evaluation)
    reading = (
        f"{which}: dots are predicted {point}s, bars the {coverage} intervals. Good dots lie along the dashed line, and "
        "nearly all bars cross it."
    )
    is_skewed = "positive" in evaluation.notes and bool((both > 0).all()) and _ratio(curve["actual"]) > _LARGE_RATIO
    reading += " Both axes are logarithmic." if is_skewed else ""
    title, y_label = "How close are single predictions?", f"predicted, with {coverage} interval"
    return Panel(layers, title, "actual", y_label, reading=reading, logarithmic=is_skewed)


def shown_rows(evaluation: Evaluation) -> str:
    """Which rows a chart of single ones shows."""
    n_shown, n_rows = len(evaluation.curves["rows"]["row"]), evaluation.n_rows
    return f"{n_shown} rows drawn at random from {count(n_rows)}" if n_shown < n_rows else "All rows"


def _ratio(values: np.ndarray) -> float:
    """Between what is large and what is small among values."""
    small, large = np.quantile(values, [0.05, 0.95])
    return float(large / small) if small > 0 else 0.0


def _error(evaluation: Evaluation) -> Panel:
    curve, measure = evaluation.curves["error"], evaluation.notes["uncertainty"]
    groups = f"Rows in {len(curve['rows'])} equally large groups, from the surest to the least sure"
    if evaluation.task == "classes":
        line, top = Line(curve["entropy"], curve["wrong"], markers=True), 1.08 * (max(curve["wrong"]) or 1.0)
        reading = f"{groups}. A good curve starts near zero and rises steadily."
        title, labels = "Is it wrong where it is unsure?", ("predicted entropy, in nats", "share of wrong predictions")
        return Panel([line], title, *labels, None, (0, top), reading=reading)
    points = Line(curve["spread"], curve["error"], "groups of rows", markers=True)
    if measure != "standard deviation":
        reading = (
            f"{groups}: how wide their intervals are on average, and how large their errors. Good points rise steadily."
        )
        title, labels = "Are errors larger where it is unsure?", (f"mean {measure}", "mean absolute error")
        return Panel([points], title, *labels, None, (0, 1.08 * (max(curve["error"]) or 1.0)), reading=reading)
    most = max(*curve["spread"], *curve["error"]) or 1.0
    layers = [ideal([0, most], [0, most]), points]
    limits = (0, 1.04 * most)
    reading = (
        f"{groups}: what error was predicted, and what happened. Good points rise along the dashed line; above it the model "
        "is too sure of itself."
    )
    title, labels = "Are errors as large as predicted?", ("predicted standard deviation", "root mean squared error")
    return Panel(layers, title, *labels, limits, limits, reading=reading)


def _risk(evaluation: Evaluation) -> Panel:
    loss = "share of wrong predictions" if evaluation.task == "classes" else "mean absolute error"
    curve = evaluation.curves["risk"]
    overall, top = curve["risk"][-1], max(curve["risk"]) or 1.0
    layers = [
        ideal([0, 1], [overall, overall], "no order"),
        Line(curve["share"], curve["best"], "perfect order", "third"),
        Line(curve["share"], curve["risk"], "ensemble's order"),
    ]
    reading = (
        f"The {loss} of the rows used. A good curve stays low for long, near the perfect order (the one that knows the "
        "errors), and rises only at the end."
    )
    title, x_label = "What if only the surest predictions are used?", "share of rows used, the surest first"
    return Panel(layers, title, x_label, loss, (0, 1), (0, 1.08 * top), reading=reading)


def parts(evaluation: Evaluation) -> Panel:
    """The chart of noise and disagreement."""
    curve = arrays(evaluation.curves["rows"])
    x, y = curve["aleatoric"], curve["epistemic"]
    right, top = float(x.max()) or 1.0, float(y.max()) or 1.0
    ends = [0, min(right, top)]
    if evaluation.task == "classes":
        measure, good = "entropy, in nats", curve["correct"] == 1
        points = [Points(x[good], y[good], "right", "ours", marker=".")]
        points += [Points(x[~good], y[~good], "wrong", "other", marker="x")]
    else:
        measure, points = "standard deviation", [Points(x, y, "row", "ours", marker=".")]
    layers: list[Layer] = [ideal(ends, ends, "equal parts"), *points]
    reading = (
        "To the right: what members agree is noise (aleatoric), which more data will not remove. Upwards: what they "
        "disagree about (epistemic), which more data like these rows would. Rows high up are unlike the training data."
    )
    labels, limits = (f"aleatoric {measure}", f"epistemic {measure}"), ((0, 1.04 * right), (0, 1.04 * top))
    return Panel(layers, "Noise, or not knowing?", *labels, *limits, reading=reading)


def _reliability(evaluation: Evaluation) -> Panel:
    layers = [ideal([0, 1], [0, 1]), *_accuracy_lines(evaluation, "reliability", "confidence", markers=True)]
    reading = (
        f"Rows in {N_BINS} equally wide bins of confidence, the probability of the predicted class. Good points lie on the "
        "dashed line; below it the model is overconfident. Bins of few rows scatter."
    )
    return Panel(layers, "Is it right as often as it says?", "confidence", "accuracy", (0, 1), (0, 1.02), reading=reading)


def _confidence(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["confidence"]
    layers, top = [Columns(curve["edge"], curve["share"])], 1.08 * max(curve["share"])
    reading = (
        "How many rows fall into each bin of confidence. Columns to the right are good if the reliability diagram says that "
        "they are deserved."
    )
    return Panel(layers, "How confident is it?", "confidence", "share of rows", (0, 1), (0, top), reading=reading)


def _accuracy(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["accuracy"]
    kept = ideal(curve["threshold"], curve["kept"], "share kept")
    layers = [*_accuracy_lines(evaluation, "accuracy", "threshold"), kept]
    reading = (
        "Accuracy of the rows whose confidence is at least the threshold, and how many those are (dashed). A good curve "
        "rises steadily to 100 per cent while many rows are still kept."
    )
    title, x_label = "How accurate is it where it is confident?", "least confidence that is trusted"
    return Panel(layers, title, x_label, "accuracy, share of rows", (0, 1), (0, 1.02), reading=reading)


def _matrix(evaluation: Evaluation) -> Panel:
    rows, labels = np.array(list(evaluation.curves["matrix"].values())), evaluation.labels
    shares = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    texts, note = None, f"{len(rows)} classes in the order of the table below"
    if len(rows) <= _TEXT_CLASSES:
        texts = [[count(n) if n else "" for n in row] for row in rows.tolist()]
        note = "the number of rows is written in each cell"
    reading = (
        "Each line is a true class, the first on top; a cell is the darker the larger the share of that class that was "
        f"predicted so ({note}). Good is a dark diagonal and nothing else."
    )
    title, cells = "What does it confuse?", [Grid(shares, texts)]
    return Panel(cells, title, "predicted class", "actual class", x_ticks=labels, y_ticks=labels, reading=reading)


def _accuracy_lines(evaluation: Evaluation, name: str, x: str, markers: bool = False) -> list[Line]:
    """The accuracy of one member alone, where it is known, and above it the ensemble's."""
    curves = {"single": evaluation.curves.get(f"single {name}"), "ensemble": evaluation.curves[name]}
    known = {source: curve for source, curve in curves.items() if curve is not None}
    return [Line(curve[x], curve["accuracy"], *SOURCES[source], markers=markers) for source, curve in known.items()]


def arrays(curve: Any) -> dict[str, np.ndarray]:
    """A curve's columns as arrays, with NaN where there is no number."""
    return {name: np.array(values, dtype=np.float64) for name, values in curve.items()}

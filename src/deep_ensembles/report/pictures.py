"""An evaluation as pictures, each with a sentence on how to read it and one on what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deep_ensembles.report.charts import Columns, Grid, Layer, Line, Panel, Points, Ranges, Role
from deep_ensembles.report.classes import N_BINS
from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.wording import count, level

_NAMES: tuple[tuple[str, str, Role], ...] = (
    ("ensemble", "ensemble", "ours"),
    ("single", "one member", "other"),
    ("constant", "constant", "third"),
)
_TEXT_CLASSES = 12


@dataclass(frozen=True)
class Picture:
    """A panel with its words.

    Arguments:
        title: the question it answers.
        panel: what is drawn.
        reading: how to read it and what a good one looks like.
        key: a short name, unique on a page.
        verdict: what the numbers say; empty where nothing can be said.
    """

    title: str
    panel: Panel
    reading: str
    key: str = ""
    verdict: str = ""


def pictures(evaluation: Evaluation) -> list[Picture]:
    """The pictures of an evaluation, in the order of a page."""
    drawn = {key: draw for key, draw in _DRAWN[evaluation.task].items() if key != "matrix" or key in evaluation.curves}
    if evaluation.n_members > 1:
        drawn["parts"] = _parts
    verdicts = evaluation.verdicts
    return [replace(draw(evaluation), key=key, verdict=verdicts.get(key, "")) for key, draw in drawn.items()]


def _ideal(x: Sequence[float], y: Sequence[float], label: str = "ideal") -> Line:
    return Line(x, y, label, "muted", dashed=True)


def _calibration(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["calibration"]
    own = [(key, label, role) for key, label, role in _NAMES if key in curve]
    lines = [Line(curve["level"], curve[key], label, role, markers=key == "ensemble") for key, label, role in own]
    return Picture(
        "Do the intervals hold what they promise?",
        Panel([_ideal([0, 1], [0, 1]), *lines], "", "wanted share of rows inside", "observed share", (0, 1), (0, 1)),
        "For each central interval from 5 to 95 per cent: how many rows it should hold, and how many it did. A good curve "
        "lies on the dashed line; below it intervals are too narrow, above it too wide.",
    )


def _levels(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["levels"]
    even = 1 / len(curve["share"])
    top = max(1.2 * even, 1.08 * max(curve["share"]))
    layers: list[Layer] = [Columns(curve["edge"], curve["share"], "rows"), _ideal([0, 1], [even, even])]
    return Picture(
        "Where in its distribution does the truth fall?",
        Panel(layers, "", "predicted probability of a lower value, F(y)", "share of rows", (0, 1), (0, top)),
        "Each row's target as a level of its own predicted distribution (the PIT). A good histogram is flat; a hill means "
        "predictions are too wide, a valley too narrow, a slope that they lean to one side.",
    )


def _width(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["width"]
    own = [(key, label, role) for key, label, role in _NAMES if f"{key} width" in curve]
    lines = [Line(curve[f"{key} width"], curve[f"{key} coverage"], label, role, markers=True) for key, label, role in own]
    return Picture(
        "What does coverage cost in width?",
        Panel(lines, "", "mean width of the interval", "observed share inside", None, (0, 1.02)),
        f"Intervals at {', '.join(map(level, curve['level']))}: how wide they are on average, and how many rows they hold. "
        "The better model reaches the same share with narrower intervals: its curve lies further up and to the left.",
    )


def _rows(evaluation: Evaluation) -> Picture:
    asked, curve = level(evaluation.coverage or 0.0), _arrays(evaluation.curves["rows"])
    outside = (curve["actual"] < curve["low"]) | (curve["actual"] > curve["high"])
    both = np.concatenate([curve["actual"], curve["mean"]])
    ends = [float(both.min()), float(both.max())]
    layers: list[Layer] = [_ideal(ends, ends, "actual = predicted")]
    groups: tuple[tuple[Any, str, Role], ...] = ((~outside, "interval holds", "ours"), (outside, "does not", "other"))
    for chosen, label, role in groups:
        if chosen.any():
            actual, mean, low, high = (curve[name][chosen] for name in ("actual", "mean", "low", "high"))
            layers += [Ranges(actual, low, high, "", role), Points(actual, mean, label, role, marker=".")]
    drawn = len(outside)
    which = "All rows" if drawn == evaluation.n_rows else f"{drawn} rows drawn at random from {count(evaluation.n_rows)}"
    return Picture(
        "How close are single predictions?",
        Panel(layers, "", "actual", f"predicted, with {asked} interval"),
        f"{which}: dots are predicted means, bars the {asked} intervals. Good dots lie along the "
        "dashed line, and nearly all bars cross it.",
    )


def _number_error(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["error"]
    most = max(*curve["spread"], *curve["error"]) or 1.0
    layers = [_ideal([0, most], [0, most]), Line(curve["spread"], curve["error"], "groups of rows", markers=True)]
    limits = (0, 1.04 * most)
    return Picture(
        "Are errors as large as predicted?",
        Panel(layers, "", "predicted standard deviation", "root mean squared error", limits, limits),
        f"Rows in {len(curve['rows'])} equally large groups, from the surest to the least sure: what error was predicted, "
        "and what happened. Good points rise along the dashed line; above it the model is too sure of itself.",
    )


def _class_error(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["error"]
    line = Line(curve["entropy"], curve["wrong"], "groups of rows", markers=True)
    top = 1.08 * (max(curve["wrong"]) or 1.0)
    return Picture(
        "Is it wrong where it is unsure?",
        Panel([line], "", "predicted entropy, in nats", "share of wrong predictions", None, (0, top), legend=False),
        f"Rows in {len(curve['rows'])} equally large groups, from the surest to the least sure. A good curve starts near "
        "zero and rises steadily.",
    )


def _risk(evaluation: Evaluation) -> Picture:
    loss = "share of wrong predictions" if evaluation.task == "classes" else "mean absolute error"
    curve = evaluation.curves["risk"]
    overall, top = curve["risk"][-1], max(curve["risk"]) or 1.0
    layers = [
        _ideal([0, 1], [overall, overall], "no order"),
        Line(curve["share"], curve["best"], "perfect order", "third"),
        Line(curve["share"], curve["risk"], "ensemble's order"),
    ]
    return Picture(
        "What if only the surest predictions are used?",
        Panel(layers, "", "share of rows used, the surest first", loss, (0, 1), (0, 1.08 * top)),
        f"The {loss} of the rows used. A good curve stays low for long, near the perfect order (the one that knows the "
        "errors), and rises only at the end.",
    )


def _parts(evaluation: Evaluation) -> Picture:
    curve = _arrays(evaluation.curves["rows"])
    x, y = curve["aleatoric"], curve["epistemic"]
    right, top = (float(each.max()) or 1.0 for each in (x, y))
    ends = [0, min(right, top)]
    if evaluation.task == "classes":
        what, good = "entropy, in nats", curve["correct"] == 1
        points = [Points(x[good], y[good], "right", "ours", marker=".")]
        points += [Points(x[~good], y[~good], "wrong", "other", marker="x")]
    else:
        what, points = "standard deviation", [Points(x, y, "row", "ours", marker=".")]
    layers: list[Layer] = [_ideal(ends, ends, "equal parts"), *points]
    return Picture(
        "Noise, or not knowing?",
        Panel(layers, "", f"aleatoric {what}", f"epistemic {what}", (0, 1.04 * right), (0, 1.04 * top)),
        "To the right: what members agree is noise (aleatoric), which more data will not remove. Upwards: what they "
        "disagree about (epistemic), which more data like these rows would. Rows high up are unlike the training data.",
    )


def _reliability(evaluation: Evaluation) -> Picture:
    lines = _of_both(evaluation, "reliability", "confidence", markers=True)
    return Picture(
        "Is it right as often as it says?",
        Panel([_ideal([0, 1], [0, 1]), *lines], "", "confidence", "accuracy", (0, 1), (0, 1.02)),
        f"Rows in {N_BINS} equally wide bins of confidence, the probability of the predicted class. Good points lie on the "
        "dashed line; below it the model is overconfident. Bins of few rows scatter.",
    )


def _confidence(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["confidence"]
    top = 1.08 * max(curve["share"])
    return Picture(
        "How confident is it?",
        Panel([Columns(curve["edge"], curve["share"])], "", "confidence", "share of rows", (0, 1), (0, top)),
        "How many rows fall into each bin of confidence. Columns to the right are good if the reliability diagram says that "
        "they are deserved.",
    )


def _accuracy(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["accuracy"]
    lines = [*_of_both(evaluation, "accuracy", "threshold"), _ideal(curve["threshold"], curve["kept"], "share kept")]
    return Picture(
        "How accurate is it where it is confident?",
        Panel(lines, "", "least confidence that is trusted", "accuracy, share of rows", (0, 1), (0, 1.02)),
        "Accuracy of the rows whose confidence is at least the threshold, and how many those are (dashed). A good curve "
        "rises steadily to 100 per cent while many rows are still kept.",
    )


def _matrix(evaluation: Evaluation) -> Picture:
    rows, labels = np.array(list(evaluation.curves["matrix"].values())), evaluation.labels
    shares = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    texts, few = None, f"{len(rows)} classes in the order of the table below"
    if len(rows) <= _TEXT_CLASSES:
        texts = [[count(each) if each else "" for each in row] for row in rows.tolist()]
        few = "the number of rows is written in each cell"
    return Picture(
        "What does it confuse?",
        Panel([Grid(shares, texts)], "", "predicted class", "actual class", x_ticks=labels, y_ticks=labels),
        "Each line is a true class, the first on top; a cell is the darker the larger the share of that class that was "
        f"predicted so ({few}). Good is a dark diagonal and nothing else.",
    )


def _of_both(evaluation: Evaluation, name: str, x: str, markers: bool = False) -> list[Line]:
    """The accuracy of one member alone, where it is known, and above it the ensemble's."""
    both: tuple[tuple[str, str, Role], ...] = ((f"single {name}", "one member", "other"), (name, "ensemble", "ours"))
    own = [(evaluation.curves[key], label, role) for key, label, role in both if key in evaluation.curves]
    return [Line(curve[x], curve["accuracy"], label, role, markers=markers) for curve, label, role in own]


def _arrays(curve: Any) -> dict[str, np.ndarray]:
    return {name: np.array(values, dtype=np.float64) for name, values in curve.items()}


_DRAWN: dict[str, dict[str, Callable[[Evaluation], Picture]]] = {
    "classes": {
        "reliability": _reliability,
        "confidence": _confidence,
        "accuracy": _accuracy,
        "matrix": _matrix,
        "error": _class_error,
        "risk": _risk,
    },
    "numbers": {
        "calibration": _calibration,
        "levels": _levels,
        "width": _width,
        "rows": _rows,
        "error": _number_error,
        "risk": _risk,
    },
}

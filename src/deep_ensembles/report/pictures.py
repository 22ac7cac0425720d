"""An evaluation as pictures, each with a sentence on how to read it and one on what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep_ensembles.panels import Columns, Grid, Layer, Line, Panel, Points, Ranges, Role
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
        key: a short name, unique on a page.
        title: the question it answers.
        panel: what is drawn.
        reading: how to read it and what a good one looks like.
        verdict: what the numbers say; empty where nothing can be said.
    """

    key: str
    title: str
    panel: Panel
    reading: str
    verdict: str = ""


def pictures(evaluation: Evaluation) -> list[Picture]:
    """The pictures of an evaluation, in the order of a page."""
    if evaluation.task == "classes":
        found = [_reliability(evaluation), _confidence(evaluation), _accuracy(evaluation)]
        found += [_matrix(evaluation)] if "matrix" in evaluation.curves else []
        found += [_class_error(evaluation), _risk(evaluation, "share of wrong predictions")]
    else:
        found = [_calibration(evaluation), _levels(evaluation), _width(evaluation), _rows(evaluation)]
        found += [_number_error(evaluation), _risk(evaluation, "mean absolute error")]
    return found + ([_parts(evaluation)] if evaluation.n_members > 1 else [])


def _diagonal(low: float, high: float, label: str = "ideal") -> Line:
    return Line([low, high], [low, high], label, "muted", dashed=True)


def _calibration(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["calibration"]
    lines: list[Layer] = [_diagonal(0, 1)]
    lines += [
        Line(curve["level"], curve[key], label, role, markers=key == "ensemble")
        for key, label, role in _NAMES
        if key in curve
    ]
    return Picture(
        "calibration",
        "Do the intervals hold what they promise?",
        Panel(lines, "", "wanted share of rows inside", "observed share", (0, 1), (0, 1)),
        "For each central interval from 5 to 95 per cent: how many rows it should hold, and how many it did. A good curve "
        "lies on the dashed line; below it intervals are too narrow, above it too wide.",
        evaluation.verdicts["calibration"],
    )


def _levels(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["levels"]
    even = 1 / len(curve["share"])
    top = max(1.2 * even, 1.08 * max(curve["share"]))
    layers: list[Layer] = [
        Columns(curve["edge"], curve["share"], "rows"),
        Line([0, 1], [even, even], "ideal", "muted", dashed=True),
    ]
    return Picture(
        "levels",
        "Where in its distribution does the truth fall?",
        Panel(layers, "", "predicted probability of a lower value, F(y)", "share of rows", (0, 1), (0, top)),
        "Each row's target as a level of its own predicted distribution (the PIT). A good histogram is flat; a hill means "
        "predictions are too wide, a valley too narrow, a slope that they lean to one side.",
        evaluation.verdicts["levels"],
    )


def _width(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["width"]
    lines: list[Layer] = [
        Line(curve[f"{key} width"], curve[f"{key} coverage"], label, role, markers=True)
        for key, label, role in _NAMES
        if f"{key} width" in curve
    ]
    shown = ", ".join(level(each) for each in curve["level"])
    return Picture(
        "width",
        "What does coverage cost in width?",
        Panel(lines, "", "mean width of the interval", "observed share inside", None, (0, 1.02)),
        f"Intervals at {shown}: how wide they are on average, and how many rows they hold. The better model reaches the "
        "same share with narrower intervals: its curve lies further up and to the left.",
        evaluation.verdicts.get("width", ""),
    )


def _rows(evaluation: Evaluation) -> Picture:
    asked = level(evaluation.coverage or 0.0)
    curve = {name: np.array(values, dtype=np.float64) for name, values in evaluation.curves["rows"].items()}
    outside = (curve["actual"] < curve["low"]) | (curve["actual"] > curve["high"])
    everything = np.concatenate([curve["actual"], curve["mean"]])
    low, high = float(everything.min()), float(everything.max())
    layers: list[Layer] = [_diagonal(low, high, "actual = predicted")]
    for inside, label, role in ((~outside, "interval holds", "ours"), (outside, "does not", "other")):
        own = {name: values[inside] for name, values in curve.items()}
        if inside.any():
            layers.append(Ranges(own["actual"], own["low"], own["high"], "", role))  # type: ignore[arg-type]
            layers.append(Points(own["actual"], own["mean"], label, role, marker="."))  # type: ignore[arg-type]
    drawn = len(outside)
    which = "All rows" if drawn == evaluation.n_rows else f"{drawn} rows drawn at random from {count(evaluation.n_rows)}"
    return Picture(
        "rows",
        "How close are single predictions?",
        Panel(layers, "", "actual", f"predicted, with {asked} interval"),
        f"{which}: dots are predicted means, bars the {asked} intervals. Good dots lie along the "
        "dashed line, and nearly all bars cross it.",
        evaluation.verdicts["rows"],
    )


def _number_error(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["error"]
    most = max(*curve["spread"], *curve["error"]) or 1.0
    layers: list[Layer] = [_diagonal(0, most), Line(curve["spread"], curve["error"], "groups of rows", markers=True)]
    return Picture(
        "error",
        "Are errors as large as predicted?",
        Panel(layers, "", "predicted standard deviation", "root mean squared error", (0, 1.04 * most), (0, 1.04 * most)),
        f"Rows in {len(curve['rows'])} equally large groups, from the surest to the least sure: what error was predicted, "
        "and what happened. Good points rise along the dashed line; above it the model is too sure of itself.",
        evaluation.verdicts.get("error", ""),
    )


def _class_error(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["error"]
    layers: list[Layer] = [Line(curve["entropy"], curve["wrong"], "groups of rows", markers=True)]
    top = 1.08 * (max(curve["wrong"]) or 1.0)
    return Picture(
        "error",
        "Is it wrong where it is unsure?",
        Panel(layers, "", "predicted entropy, in nats", "share of wrong predictions", None, (0, top), legend=False),
        f"Rows in {len(curve['rows'])} equally large groups, from the surest to the least sure. A good curve starts near "
        "zero and rises steadily.",
        evaluation.verdicts.get("error", ""),
    )


def _risk(evaluation: Evaluation, loss: str) -> Picture:
    curve = evaluation.curves["risk"]
    overall = curve["risk"][-1]
    layers: list[Layer] = [
        Line([0, 1], [overall, overall], "no order", "muted", dashed=True),
        Line(curve["share"], curve["best"], "perfect order", "third"),
        Line(curve["share"], curve["risk"], "ensemble's order"),
    ]
    top = max(curve["risk"]) or 1.0
    return Picture(
        "risk",
        "What if only the surest predictions are used?",
        Panel(layers, "", "share of rows used, the surest first", loss, (0, 1), (0, 1.08 * top)),
        f"The {loss} of the rows used. A good curve stays low for long, near the perfect order (the one that knows the "
        "errors), and rises only at the end.",
        evaluation.verdicts["risk"],
    )


def _parts(evaluation: Evaluation) -> Picture:
    curve = {name: np.array(values, dtype=np.float64) for name, values in evaluation.curves["rows"].items()}
    right, top = (float(curve[name].max()) or 1.0 for name in ("aleatoric", "epistemic"))
    layers: list[Layer] = [_diagonal(0, min(right, top), "equal parts")]
    if evaluation.task == "classes":
        what = "entropy, in nats"
        for value, label, role in ((1, "right", "ours"), (0, "wrong", "other")):
            own, marker = curve["correct"] == value, "." if value else "x"
            layers.append(Points(curve["aleatoric"][own], curve["epistemic"][own], label, role, marker=marker))  # type: ignore[arg-type]
    else:
        what = "standard deviation"
        layers.append(Points(curve["aleatoric"], curve["epistemic"], "row", "ours", marker="."))
    return Picture(
        "parts",
        "Noise, or not knowing?",
        Panel(layers, "", f"aleatoric {what}", f"epistemic {what}", (0, 1.04 * right), (0, 1.04 * top)),
        "To the right: what members agree is noise (aleatoric), which more data will not remove. Upwards: what they "
        "disagree about (epistemic), which more data like these rows would. Rows high up are unlike the training data.",
        evaluation.verdicts["parts"],
    )


def _reliability(evaluation: Evaluation) -> Picture:
    lines: list[Layer] = [_diagonal(0, 1)]
    for name, label, role in (("single reliability", "one member", "other"), ("reliability", "ensemble", "ours")):
        if name in evaluation.curves:
            curve = evaluation.curves[name]
            lines.append(Line(curve["confidence"], curve["accuracy"], label, role, markers=True))  # type: ignore[arg-type]
    return Picture(
        "reliability",
        "Is it right as often as it says?",
        Panel(lines, "", "confidence", "accuracy", (0, 1), (0, 1.02)),
        f"Rows in {N_BINS} equally wide bins of confidence, the probability of the predicted class. Good points lie on the "
        "dashed line; below it the model is overconfident. Bins of few rows scatter.",
        evaluation.verdicts["reliability"],
    )


def _confidence(evaluation: Evaluation) -> Picture:
    curve = evaluation.curves["confidence"]
    top = 1.08 * max(curve["share"])
    return Picture(
        "confidence",
        "How confident is it?",
        Panel([Columns(curve["edge"], curve["share"])], "", "confidence", "share of rows", (0, 1), (0, top)),
        "How many rows fall into each bin of confidence. Columns to the right are good if the reliability diagram says that "
        "they are deserved.",
        evaluation.verdicts["confidence"],
    )


def _accuracy(evaluation: Evaluation) -> Picture:
    lines: list[Layer] = []
    for name, label, role in (("single accuracy", "one member", "other"), ("accuracy", "ensemble", "ours")):
        if name in evaluation.curves:
            curve = evaluation.curves[name]
            reached = [np.nan if each is None else each for each in curve["accuracy"]]
            lines.append(Line(curve["threshold"], reached, label, role))  # type: ignore[arg-type]
    kept = evaluation.curves["accuracy"]
    lines.append(Line(kept["threshold"], kept["kept"], "share kept", "muted", dashed=True))
    return Picture(
        "accuracy",
        "How accurate is it where it is confident?",
        Panel(lines, "", "least confidence that is trusted", "accuracy, share of rows", (0, 1), (0, 1.02)),
        "Accuracy of the rows whose confidence is at least the threshold, and how many those are (dashed). A good curve "
        "rises steadily to 100 per cent while many rows are still kept.",
        evaluation.verdicts.get("accuracy", ""),
    )


def _matrix(evaluation: Evaluation) -> Picture:
    rows = np.array(list(evaluation.curves["matrix"].values()), dtype=np.float64)
    totals = rows.sum(1, keepdims=True)
    shares = np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)
    texts: Sequence[Sequence[str]] | None = None
    if len(rows) <= _TEXT_CLASSES:
        texts = [[count(int(each)) if each else "" for each in row] for row in rows]
    few = "the number of rows is written in each cell" if texts else f"{len(rows)} classes in the order of the table below"
    return Picture(
        "matrix",
        "What does it confuse?",
        Panel(
            [Grid(shares, texts)],
            "",
            "predicted class",
            "actual class",
            x_ticks=evaluation.labels,
            y_ticks=evaluation.labels,
        ),
        "Each line is a true class, the first on top; a cell is the darker the larger the share of that class that was "
        f"predicted so ({few}). Good is a dark diagonal and nothing else.",
        evaluation.verdicts.get("matrix", ""),
    )

"""An evaluation as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from deep_ensembles.panels import Layer, Line, Panel, Points
from deep_ensembles.report.classes import MATRIX_CLASSES
from deep_ensembles.report.evaluation import Evaluation, Example, Outside, Stop
from deep_ensembles.report.svg import draw
from deep_ensembles.report.wording import bound, count, level, number, percent
from deep_ensembles.tables import Table

_STOPS_SHOWN = 8
_CELLS_SHOWN = 16
_CLASSES_SHOWN = 30
# The slider starts where about this share of rows is kept.
_START = 0.8


def trust(evaluation: Evaluation) -> dict[str, Any]:
    """What the part of the page about thresholds shows."""
    classes = evaluation.task == "classes"
    said = [_said(evaluation, stop) for stop in evaluation.stops]
    start = next((i for i, stop in enumerate(evaluation.stops) if stop.kept <= _START), len(said) - 1)
    label = "Wanted accuracy" if classes else "Wanted mean absolute error"
    if classes:
        reading = "Choose the accuracy that you need: predictions of at least this confidence, on rows like these, have it."
        heads = ["Wanted accuracy", "Least confidence", "Accuracy reached", "Share kept", "Rows kept"]
    else:
        reading = (
            "Choose the error that you can live with: predictions of at most this standard deviation, on rows like these, "
            "have it on average."
        )
        heads = ["Wanted error", "Greatest standard deviation", "Error reached", "Share kept", "Rows kept"]
    # Of demands that keep the same rows the strictest says most.
    rows = [stop.rows for stop in evaluation.stops]
    telling = [i for i in range(len(rows)) if i in (0, len(rows) - 1) or rows[i] != rows[i + 1]]
    some = sorted({telling[round(i * (len(telling) - 1) / (_STOPS_SHOWN - 1))] for i in range(_STOPS_SHOWN)})
    keys = ("wanted", "threshold", "reached", "kept", "rows")
    return {
        "label": label,
        "reading": reading,
        "stops": said,
        "start": start,
        "default": said[start],
        "table": Table("", heads, [[said[i][key] for key in keys] for i in some]),
        "picture": Markup(_kept(evaluation.stops, start, label)),
        "caption": "The share of rows kept for each demand. A good curve falls late: strict demands still keep many rows.",
    }


def _said(evaluation: Evaluation, stop: Stop) -> dict[str, str]:
    classes = evaluation.task == "classes"
    shown = {
        "wanted": percent(stop.wanted) if classes else number(stop.wanted),
        "threshold": bound(stop.threshold, lower=classes),
        "reached": percent(stop.reached, 2) if classes else number(stop.reached),
        "kept": percent(stop.kept),
        "rows": count(stop.rows),
    }
    kept = f"That keeps {shown['kept']} of the rows ({shown['rows']} of {count(evaluation.n_rows)})"
    if classes:
        rule = f"Trust predictions whose confidence is at least {shown['threshold']}."
        answer = f"{rule} {kept}, of which {shown['reached']} are right."
    else:
        rule = f"Trust predictions whose standard deviation is at most {shown['threshold']}."
        answer = f"{rule} {kept}, which are off by {shown['reached']} on average."
    return shown | {"answer": answer}


def _kept(found: Sequence[Stop], start: int, label: str) -> str:
    wanted, kept = [stop.wanted for stop in found], [stop.kept for stop in found]
    layers: list[Layer] = [Line(wanted, kept), Points([wanted[start]], [kept[start]], "", "other")]
    panel = Panel(layers, "", label.lower(), "share of rows kept", None, (0, 1.02), legend=False)
    return draw(panel, "Share of rows kept for each demand", "The share of rows kept falls as the demand becomes stricter.")


def example_listings(evaluation: Evaluation) -> tuple[list[Table], str]:
    """The rows worth a look, and how to read them."""
    classes = evaluation.task == "classes"
    reading = "Rows are counted from 0. "
    reading += (
        "Entropy is the whole uncertainty in nats; disagreement is the sum of the members' divergences from their average."
        if classes
        else "The standard deviation (std) is noise that members agree on and their disagreement; the squares add up."
    )
    worst = "The wrong predictions that gave the true class least" if classes else "The largest errors"
    pairs = (("The most uncertain rows", evaluation.uncertain), (worst, evaluation.wrong))
    line = _class_line if classes else _number_line
    return [_examples(title, rows, line(evaluation)) for title, rows in pairs if rows], reading


def _number_line(evaluation: Evaluation) -> dict[str, Any]:
    def interval(values: Any) -> str:
        return f"{number(values['low'])} to {number(values['high'])}"

    return {
        "Actual": lambda values: number(values["actual"]),
        "Predicted": lambda values: number(values["predicted"]),
        "Error": lambda values: number(values["error"]),
        "Std": lambda values: number(values["std"]),
        "Noise": lambda values: number(values["aleatoric"]),
        "Disagreement": lambda values: number(values["epistemic"]),
        f"{level(evaluation.coverage or 0.0)} interval": interval,
    }


def _class_line(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "Actual": lambda values: values["actual"],
        "Predicted": lambda values: values["predicted"],
        "Confidence": lambda values: percent(values["confidence"]),
        "Given to the truth": lambda values: percent(values["truth"], 2),
        "Entropy": lambda values: number(values["entropy"]),
        "Disagreement": lambda values: number(values["disagreement"]),
    }


def _examples(title: str, rows: Sequence[Example], line: dict[str, Any]) -> Table:
    has_cells = any(row.columns for row in rows)
    heads = ["Row", *line, *(["Its values"] if has_cells else [])]
    texts = [
        [count(row.row), *(tell(row.values) for tell in line.values()), *([_cells(row)] if has_cells else [])]
        for row in rows
    ]
    return Table(title, heads, texts)


def _cells(row: Example) -> str:
    pairs = [f"{name} = {value}" for name, value in row.columns.items()]
    more = len(pairs) - _CELLS_SHOWN
    return ", ".join(pairs[:_CELLS_SHOWN]) + (f" and {count(more)} more" if more > 0 else "")


def class_listing(evaluation: Evaluation) -> tuple[Table, str]:
    """Each class with its rows, recall and precision; of very many the worst found."""
    curve = evaluation.curves["classes"]
    lines = list(zip(evaluation.labels, curve["rows"], curve["recall"], curve["precision"], strict=True))
    caption = (
        "Each class: its rows, the share of them found (recall), the share of its predictions that are right (precision)"
    )
    if len(lines) > MATRIX_CLASSES:
        lines = sorted((line for line in lines if line[2] is not None), key=lambda line: line[2])[:_CLASSES_SHOWN]
        caption = f"The {len(lines)} of {len(evaluation.labels)} classes that are found least: recall and precision"
    rows = [[label, count(n), *(_share(each) for each in shares)] for label, n, *shares in lines]
    return Table("", ["Class", "Rows", "Recall", "Precision"], rows), caption


def confusion_listing(evaluation: Evaluation) -> Table:
    """The pairs of classes that are confused most."""
    curve, labels = evaluation.curves["confusions"], evaluation.labels
    rows = [
        [labels[true], labels[guess], count(n)]
        for true, guess, n in zip(curve["actual"], curve["predicted"], curve["rows"], strict=True)
    ]
    return Table("", ["Actual", "Taken for", "Rows"], rows)


def outside_listing(found: Sequence[Outside]) -> Table:
    """Columns that left the range of training."""
    rows = [[each.column, each.seen, count(each.rows), percent(each.share), ", ".join(each.examples)] for each in found]
    return Table("", ["Column", "Seen in training", "Rows outside", "Share", "Examples"], rows)


def terms(evaluation: Evaluation) -> dict[str, str]:
    """What the words of the page mean."""
    whole = f"The mixture of all {evaluation.n_members} members' predictions, recalibrated if the model is."
    gain = (
        "The difference of the two scores. ± is the standard deviation of the rows' differences divided by the root of "
        "their number; a smaller difference than two of these may be chance."
    )
    if evaluation.task == "classes":
        constant = "The same probabilities for every row: the share of each class in training."
        parts = "The members' average entropy; and the entropy of their average minus that (mutual information), in nats."
    else:
        constant = "The same normal distribution for every row: mean and standard deviation of the training targets."
        parts = (
            "The members' average variance, and the variance of their means; they add up. Standard deviations are the roots."
        )
    single = "The first member alone: what a single network would have given; recalibrated too, in reports on tables."
    words = {"Ensemble": whole}
    if any(score.single is not None for score in evaluation.scores):
        words |= {"One member": single, "Ensemble − member": gain}
    if any(score.constant is not None for score in evaluation.scores):
        words["Constant"] = constant
    return words | {"Aleatoric, epistemic": parts}


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)

"""An evaluation as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from deep_ensembles._terminal import Listing
from deep_ensembles.report.charts import Layer, Line, Panel, Points
from deep_ensembles.report.classes import MATRIX_CLASSES
from deep_ensembles.report.evaluation import Evaluation, Example, Outside, Stop
from deep_ensembles.report.svg import draw
from deep_ensembles.report.wording import bound, count, level, number, percent

_STOPS_SHOWN = 8
_CELLS_SHOWN = 16
_CLASSES_SHOWN = 30
# The slider starts where about this share of rows is kept.
_START = 0.8


def trust(evaluation: Evaluation) -> dict[str, Any]:
    """What the part of the page about thresholds shows."""
    label, heads = "Wanted mean absolute error", ["Wanted error", "Greatest standard deviation", "Error reached"]
    if evaluation.task == "classes":
        label, heads = "Wanted accuracy", ["Wanted accuracy", "Least confidence", "Accuracy reached"]
    said = [_said(evaluation, stop) for stop in evaluation.stops]
    start = next((i for i, stop in enumerate(evaluation.stops) if stop.kept <= _START), len(said) - 1)
    # Of demands that keep the same rows the strictest says most.
    rows = [stop.rows for stop in evaluation.stops]
    telling = [i for i in range(len(rows)) if i in (0, len(rows) - 1) or rows[i] != rows[i + 1]]
    some = sorted({telling[round(i * (len(telling) - 1) / (_STOPS_SHOWN - 1))] for i in range(_STOPS_SHOWN)})
    keys = ("wanted", "threshold", "reached", "kept", "rows")
    return {
        "label": label,
        "stops": said,
        "start": start,
        "default": said[start],
        "table": Listing("", [*heads, "Share kept", "Rows kept"], [[said[i][key] for key in keys] for i in some]),
        "picture": Markup(_kept(evaluation.stops, start, label)),
    }


def _said(evaluation: Evaluation, stop: Stop) -> dict[str, str]:
    if classes := evaluation.task == "classes":
        wanted, reached = percent(stop.wanted), percent(stop.reached, 2)
        rule, result = "confidence is at least", f"of which {reached} are right"
    else:
        wanted, reached = number(stop.wanted), number(stop.reached)
        rule, result = "standard deviation is at most", f"which are off by {reached} on average"
    threshold, kept, rows = bound(stop.threshold, lower=classes), percent(stop.kept), count(stop.rows)
    share = f"That keeps {kept} of the rows ({rows} of {count(evaluation.n_rows)})"
    answer = f"Trust predictions whose {rule} {threshold}. {share}, {result}."
    return {"wanted": wanted, "threshold": threshold, "reached": reached, "kept": kept, "rows": rows, "answer": answer}


def _kept(found: Sequence[Stop], start: int, label: str) -> str:
    wanted, kept = [stop.wanted for stop in found], [stop.kept for stop in found]
    layers: list[Layer] = [Line(wanted, kept), Points([wanted[start]], [kept[start]], "", "other")]
    panel = Panel(layers, "", label.lower(), "share of rows kept", None, (0, 1.02), legend=False)
    return draw(panel, "Share of rows kept for each demand", "The share of rows kept falls as the demand becomes stricter.")


def example_listings(evaluation: Evaluation) -> list[Listing]:
    """The rows worth a look."""
    classes = evaluation.task == "classes"
    worst = "The wrong predictions that gave the true class least" if classes else "The largest errors"
    found = []
    for title, rows in (("The most uncertain rows", evaluation.uncertain), (worst, evaluation.wrong)):
        lines = [_class_line(row.values) if classes else _number_line(row.values, evaluation.coverage) for row in rows]
        lines = [{"Row": count(row.row), **line, **_cells(row)} for row, line in zip(rows, lines, strict=True)]
        found += [Listing(title, list(lines[0]), [list(line.values()) for line in lines])] if lines else []
    return found


def _number_line(values: Mapping[str, Any], coverage: float | None) -> dict[str, str]:
    names = {"Actual": "actual", "Predicted": "predicted", "Error": "error", "Std": "std", "Noise": "aleatoric",
             "Disagreement": "epistemic"}  # fmt: skip
    interval = f"{number(values['low'])} to {number(values['high'])}"
    return {head: number(values[name]) for head, name in names.items()} | {f"{level(coverage or 0.0)} interval": interval}


def _class_line(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Actual": values["actual"],
        "Predicted": values["predicted"],
        "Confidence": percent(values["confidence"]),
        "Given to the truth": percent(values["truth"], 2),
        "Entropy": number(values["entropy"]),
        "Disagreement": number(values["disagreement"]),
    }


def _cells(row: Example) -> dict[str, str]:
    if not row.columns:
        return {}
    pairs = [f"{name} = {value}" for name, value in row.columns.items()]
    more = len(pairs) - _CELLS_SHOWN
    return {"Its values": ", ".join(pairs[:_CELLS_SHOWN]) + (f" and {count(more)} more" if more > 0 else "")}


def class_listing(evaluation: Evaluation) -> Listing:
    """Each class with its rows, recall and precision; of very many the worst found."""
    curve = evaluation.curves["classes"]
    lines = list(zip(evaluation.labels, curve["rows"], curve["recall"], curve["precision"], strict=True))
    title = "Each class: its rows, the share of them found (recall), the share of its predictions that are right (precision)"
    if len(lines) > MATRIX_CLASSES:
        lines = sorted((line for line in lines if line[2] is not None), key=lambda line: line[2])[:_CLASSES_SHOWN]
        title = f"The {len(lines)} of {len(evaluation.labels)} classes that are found least: recall and precision"
    rows = [[label, count(n), *("–" if each is None else percent(each) for each in shares)] for label, n, *shares in lines]
    return Listing(title, ["Class", "Rows", "Recall", "Precision"], rows)


def confusion_listing(evaluation: Evaluation) -> Listing:
    """The pairs of classes that are confused most."""
    curve, labels = evaluation.curves["confusions"], evaluation.labels
    lines = zip(curve["actual"], curve["predicted"], curve["rows"], strict=True)
    rows = [[labels[true], labels[guess], count(n)] for true, guess, n in lines]
    return Listing("The most frequent confusions", ["Actual", "Taken for", "Rows"], rows)


def outside_listing(found: Sequence[Outside]) -> Listing:
    """Columns that left the range of training."""
    rows = [[each.column, each.seen, count(each.rows), percent(each.share), ", ".join(each.examples)] for each in found]
    heads = ["Column", "Seen in training", "Rows outside", "Share", "Examples"]
    return Listing("Values outside the range of training", heads, rows)

"""The charts of an evaluation of censored times."""

import numpy as np

from deep_ensembles.report.charts import SOURCES, Layer, Line, Panel, Points, Role, arrays, ideal, parts, shown_rows
from deep_ensembles.report.evaluation import Curve, Evaluation

# From this ratio on between the largest and the smallest time logarithmic axes show more.
_LARGE_RATIO = 30.0


def time_charts(evaluation: Evaluation) -> dict[str, Panel]:
    """The charts by name, in the order of a page; a chart's verdict has the same name."""
    charts = {"calibration": _calibration, "survival": _survival, "brier": _brier, "rows": _rows}
    panels = {name: chart(evaluation) for name, chart in charts.items() if name in evaluation.curves}
    has_parts = evaluation.n_members > 1 and "aleatoric" in evaluation.curves["rows"]
    return panels | ({"parts": parts(evaluation)} if has_parts else {})


def _source_lines(curve: Curve, x: str, markers: bool = False) -> list[Line]:
    """The ensemble's line, and those of one member and of a constant where these are known."""
    names = [name for name in SOURCES if name in curve]
    return [Line(curve[x], curve[name], *SOURCES[name], markers=markers and name == "ensemble") for name in names]


def _calibration(evaluation: Evaluation) -> Panel:
    layers = [ideal([0, 1], [0, 1]), *_source_lines(evaluation.curves["calibration"], "level", markers=True)]
    reading = (
        "For each predicted probability of an event: the share of rows whose event has come by then, by Kaplan–Meier's "
        "estimate, which allows for censoring. Good is the dashed line; above it events come sooner than predicted, below "
        "later; too sure of itself is above on the left and below on the right. Levels that too few rows reach are left out."
    )
    title, labels = "Do events come when they should?", ("predicted probability of the event", "observed share")
    return Panel(layers, title, *labels, (0, 1), (0, 1), reading=reading)


def _survival(evaluation: Evaluation) -> Panel:
    curve, layers = evaluation.curves["survival"], list[Layer]()
    roles: dict[str, Role] = {"shortest": "other", "middle": "third", "longest": "ours"}
    for name, role in roles.items():
        layers.append(Line(curve["time"], curve[name], f"{name} third", role))
        layers.append(Line(curve["time"], curve[f"{name} predicted"], "", role, dashed=True))
    reading = (
        "Rows in three groups by their predicted median: the share that lasts longer, by Kaplan–Meier's estimate, and "
        "dashed the mean of what was predicted. Good lines are close to their dashed ones, and the groups far apart."
    )
    title = "Do groups of rows last as long as predicted?"
    return Panel(layers, title, "time", "share that lasts longer", None, (0, 1.02), reading=reading)


def _brier(evaluation: Evaluation) -> Panel:
    curve = evaluation.curves["brier"]
    reference = ideal(curve["time"], curve["Kaplan–Meier"], "Kaplan–Meier curve of these rows")
    top = 1.08 * max(max(curve[name]) for name in curve if name != "time") or 1.0
    reading = (
        "At each time: the mean squared error of the predicted probability to last longer, with weights that make up for "
        "censoring. Lower is better; the dashed line knows when events came, but no inputs."
    )
    layers, title = [reference, *_source_lines(curve, "time")], "When are probabilities good?"
    return Panel(layers, title, "time", "Brier score", None, (0, top), reading=reading)


def _rows(evaluation: Evaluation) -> Panel:
    curve = arrays(evaluation.curves["rows"])
    time, median, is_event = curve["actual"], curve["median"], curve["event"] == 1
    ends = [float(function([time, median])) for function in (np.min, np.max)]
    layers: list[Layer] = [ideal(ends, ends, "time = predicted")]
    reading = f"{shown_rows(evaluation)}: predicted medians."
    if not is_event.all():
        layers.append(Points(time[~is_event], median[~is_event], "censored: lasts longer", "other", marker="x"))
        reading += (
            " True times of censored rows lie further to the right. Events that were seen are those that came early: even "
            "where predictions are right, more of them lie above the dashed line than below."
        )
    layers.append(Points(time[is_event], median[is_event], "event", "ours", marker="."))
    is_skewed = 0 < _LARGE_RATIO * ends[0] < ends[1]
    reading += " Both axes are logarithmic." if is_skewed else ""
    title, labels = "How close are single predictions?", ("time of the event, or of the end of watching", "predicted median")
    return Panel(layers, title, *labels, reading=reading, logarithmic=is_skewed)

"""An evaluation as one HTML page that needs nothing else: its words, listings and charts in `page.html`."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from deep_ensembles import __version__
from deep_ensembles._files import write_atomically
from deep_ensembles._terminal import Listing
from deep_ensembles.report.charts import Layer, Line, Panel, Points, evaluation_charts
from deep_ensembles.report.classes import MATRIX_CLASSES
from deep_ensembles.report.evaluation import Evaluation, Example, Threshold, Unseen
from deep_ensembles.report.svg import draw
from deep_ensembles.report.time_charts import time_charts
from deep_ensembles.report.words import count, gain_verdict, level, number, percent, threshold_text

_NOTEBOOK_HEIGHT = 900
_THRESHOLDS_SHOWN = 8
_CELLS_SHOWN = 16
_CLASSES_SHOWN = 30
# Heads of columns that are not named like the values in them, and digits of those that are shares.
_HEADS = {"aleatoric": "Noise", "epistemic": "Disagreement", "truth": "Given to the truth"}
_SHARE_DIGITS = {"confidence": 1, "truth": 2}
_WORST = {
    "classes": "The wrong predictions that gave the true class least",
    "numbers": "The largest errors",
    "times": "The rows that surprise most: events in the outer ends of their predictions, and rows that outlast theirs",
}
# The slider starts where about this share of rows is kept.
_START_SHARE = 0.8


@dataclass(frozen=True)
class Report:
    """An evaluation to look at: in a notebook, as a file, or as a listing of scores.

    Arguments:
        evaluation: what it shows.
        title: the headline of the page.

    Example:
        >>> import torch
        >>> from deep_ensembles.mixture import Mixture
        >>> from deep_ensembles.report.evaluate import evaluate
        >>> one = Mixture(torch.distributions.Normal(torch.zeros(1, 3), torch.ones(1, 3)))
        >>> Report(evaluate((one, [0.0, 1.0, -1.0])), "Three rows").html[:15]
        '<!DOCTYPE html>'
    """

    evaluation: Evaluation
    title: str = "How good are the predictions?"

    @cached_property
    def html(self) -> str:
        """The page: one file, which opens from disk and loads nothing."""
        return render(self.evaluation, self.title)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, whole or not at all."""
        target = Path(path)
        write_atomically(target, self.html.encode())
        return target

    def text(self) -> Listing:
        """The scores, for a terminal."""
        return self.evaluation.listing()

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the notebook's style and ours do not mix."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" title="{escape(self.title)}" sandbox="allow-scripts" '
            f'width="100%" height="{_NOTEBOOK_HEIGHT}" style="border: 0"></iframe>'
        )


def render(evaluation: Evaluation, title: str) -> str:
    """The page as text; everything that came from users is escaped."""
    from jinja2 import Environment, StrictUndefined  # when it is needed: scores alone should start fast

    folder = resources.files("deep_ensembles.report")
    template, css, script = (folder.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    # The page may use only its own style and script, and load nothing.
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        policy=policy,
        css=css,
        script=script,
        title=title,
        version=__version__,
        evaluation=evaluation,
        count=count,
        headline=_headline(evaluation),
        trust=_trust(evaluation) if evaluation.thresholds else None,
        charts=(time_charts if evaluation.task == "times" else evaluation_charts)(evaluation),
        draw=draw,
        classes=_class_listings(evaluation) if evaluation.task == "classes" else [],
        examples=_example_listings(evaluation),
        unseen=_unseen_listing(evaluation.unseen or ()),
        drivers=None if evaluation.influences is None else evaluation.influences.listing(),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _headline(evaluation: Evaluation) -> list[str]:
    names = ["constant", "calibration", "brier", "reliability", "accuracy", "error"]
    names += ["parts"] if evaluation.n_members > 1 else []
    verdicts = [evaluation.verdicts[name] for name in names if name in evaluation.verdicts]
    for score in evaluation.scores:
        if score.name in ("NLL", "CRPS") and (gain := score.difference("gain")) is not None:
            return [*verdicts, gain_verdict(gain, evaluation.n_rows)]
    return verdicts


def _trust(evaluation: Evaluation) -> dict[str, Any]:
    """What the section about thresholds shows."""
    greatest = f"Greatest {evaluation.notes['uncertainty']}"
    label, heads = "Wanted mean absolute error", ["Wanted error", greatest, "Error reached"]
    if evaluation.task == "classes":
        label, heads = "Wanted accuracy", ["Wanted accuracy", "Least confidence", "Accuracy reached"]
    lines = evaluation.thresholds
    texts = [_threshold_texts(evaluation, line) for line in lines]
    start = next((i for i, line in enumerate(lines) if line.kept <= _START_SHARE), len(lines) - 1)
    # Of lines that keep the same rows the strictest says most.
    last = len(lines) - 1
    distinct = [i for i in range(len(lines)) if i in (0, last) or lines[i].rows != lines[i + 1].rows]
    shown = sorted({distinct[round(i * (len(distinct) - 1) / (_THRESHOLDS_SHOWN - 1))] for i in range(_THRESHOLDS_SHOWN)})
    keys = ("wanted", "threshold", "reached", "kept", "rows")
    return {
        "label": label,
        "stops": texts,
        "start": start,
        "listing": Listing("", [*heads, "Share kept", "Rows kept"], [[texts[i][key] for key in keys] for i in shown]),
        "svg": _kept_chart(lines, start, label),
    }


def _threshold_texts(evaluation: Evaluation, line: Threshold) -> dict[str, str]:
    if is_classes := evaluation.task == "classes":
        wanted, reached = percent(line.wanted), percent(line.reached, 2)
        rule, result = "confidence is at least", f"of which {reached} are right"
    else:
        wanted, reached = number(line.wanted), number(line.reached)
        rule, result = f"{evaluation.notes['uncertainty']} is at most", f"which are off by {reached} on average"
    threshold, kept, rows = threshold_text(line.threshold, at_least=is_classes), percent(line.kept), count(line.rows)
    share = f"That keeps {kept} of the rows ({rows} of {count(evaluation.n_rows)})"
    answer = f"Trust predictions whose {rule} {threshold}. {share}, {result}."
    return {"wanted": wanted, "threshold": threshold, "reached": reached, "kept": kept, "rows": rows, "answer": answer}


def _kept_chart(lines: Sequence[Threshold], start: int, label: str) -> str:
    wanted, kept = [line.wanted for line in lines], [line.kept for line in lines]
    layers: list[Layer] = [Line(wanted, kept), Points([wanted[start]], [kept[start]], "", "other")]
    panel = Panel(layers, "", label.lower(), "share of rows kept", None, (0, 1.02), legend=False)
    return draw(panel, "Share of rows kept for each demand", "The share of rows kept falls as the demand becomes stricter.")


def _example_listings(evaluation: Evaluation) -> list[Listing]:
    """The rows worth a look."""
    listings = []
    for title, examples in (("The most uncertain rows", evaluation.uncertain), (_WORST[evaluation.task], evaluation.wrong)):
        lines = [_example_texts(example, evaluation.coverage) for example in examples]
        if lines:
            listings.append(Listing(title, list(lines[0]), [list(line.values()) for line in lines]))
    return listings


def _example_texts(example: Example, coverage: float | None) -> dict[str, str]:
    """What is shown of a row, by the head of its column."""
    values: dict[str, Any] = dict(example.values)
    low, high = values.pop("low", None), values.pop("high", None)
    texts = {"Row": count(example.row)}
    texts |= {_HEADS.get(name, name.capitalize()): _value_text(name, value) for name, value in values.items()}
    if coverage is not None:
        texts[f"{level(coverage)} interval"] = f"{number(low)} to {number(high)}"
    if example.columns:
        pairs = [f"{name} = {value}" for name, value in example.columns.items()]
        more = len(pairs) - _CELLS_SHOWN
        texts["Its values"] = ", ".join(pairs[:_CELLS_SHOWN]) + (f" and {count(more)} more" if more > 0 else "")
    return texts


def _value_text(name: str, value: Any) -> str:
    if name in _SHARE_DIGITS:
        return percent(value, _SHARE_DIGITS[name])
    return value if isinstance(value, str) else number(value)


def _class_listings(evaluation: Evaluation) -> list[Listing]:
    """What is confused most, and of every class, and label where there are several, what is found of it."""
    listings = [_confusion_listing(evaluation), _found_listing("class", "classes", evaluation.labels, evaluation)]
    if "labels" in evaluation.curves:
        names = [str(number) for number in range(len(evaluation.curves["labels"]["rows"]))]
        listings.append(_found_listing("label", "labels", names, evaluation))
    return listings


def _found_listing(one: str, several: str, names: Sequence[str], evaluation: Evaluation) -> Listing:
    """Classes or labels with their rows, recall and precision; of very many those of least recall."""
    curve = evaluation.curves[several]
    lines = list(zip(names, curve["rows"], curve["recall"], curve["precision"], strict=True))
    title = (
        f"Each {one}: its rows, the share of them found (recall), the share of its predictions that are right (precision)"
    )
    if len(lines) > MATRIX_CLASSES:
        lines = sorted((line for line in lines if line[2] is not None), key=lambda line: line[2])[:_CLASSES_SHOWN]
        title = f"The {len(lines)} of {len(names)} {several} that are found least: recall and precision"
    shown = [[name, count(n), *("–" if share is None else percent(share) for share in shares)] for name, n, *shares in lines]
    return Listing(title, [one.capitalize(), "Rows", "Recall", "Precision"], shown)


def _confusion_listing(evaluation: Evaluation) -> Listing:
    """The pairs of classes that are confused most."""
    curve, labels = evaluation.curves["confusions"], evaluation.labels
    lines = zip(curve["actual"], curve["predicted"], curve["rows"], strict=True)
    rows = [[labels[true], labels[guess], count(n)] for true, guess, n in lines]
    return Listing("The most frequent confusions", ["Actual", "Taken for", "Rows"], rows)


def _unseen_listing(columns: Sequence[Unseen]) -> Listing:
    rows = [[column.column, column.seen, count(column.rows), percent(column.share), ", ".join(column.examples)]
            for column in columns]  # fmt: skip
    heads = ["Column", "Seen in training", "Rows outside", "Share", "Examples"]
    return Listing("Values outside the range of training", heads, rows)

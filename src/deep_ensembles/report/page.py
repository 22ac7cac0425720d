"""An evaluation as one HTML page that needs nothing else: its words, listings and charts in `page.html`."""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from html import escape
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import Any

from deep_ensembles import __version__
from deep_ensembles._files import write_atomically
from deep_ensembles._terminal import Listing
from deep_ensembles.report.charts import Layer, Line, Panel, Points, evaluation_charts
from deep_ensembles.report.classes import N_BINS
from deep_ensembles.report.evaluation import Evaluation, Example, Threshold
from deep_ensembles.report.summary import findings, starting_threshold, threshold_rule
from deep_ensembles.report.svg import draw
from deep_ensembles.report.words import count, gain_verdict, level, number, percent, short, threshold_text

_NOTEBOOK_HEIGHT = 900
_NAME = re.compile("`([^`]*)`")
_THRESHOLDS_SHOWN = 8
_MOST_CELLS = 240  # characters of a row's cells
_COLUMNS_SHOWN = 10
# Heads of columns that are not named like the values in them, and digits of those that are shares.
_HEADS = {"aleatoric": "Noise", "epistemic": "Disagreement", "truth": "Given to the truth"}
_SHARE_DIGITS = {"confidence": 1, "truth": 2}
_WORST = {
    "classes": "The wrong predictions that gave the true class least",
    "numbers": "The largest errors",
    "times": "The rows that surprise most: events in the outer ends of their predictions, and rows that outlast theirs",
}


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
    template, css, script = _template()
    # The page may use only its own style and script, and load nothing.
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    page: str = template.render(
        policy=policy,
        css=css,
        script=script,
        title=title,
        version=__version__,
        evaluation=evaluation,
        count=count,
        findings=findings(evaluation),
        comparisons=_comparisons(evaluation),
        today=date.today().isoformat(),
        short=short,
        percent=percent,
        number=number,
        level=level,
        n_bins=N_BINS,
        trust=_trust(evaluation) if len(evaluation.thresholds) > 1 else None,
        charts=evaluation_charts(evaluation),
        draw=draw,
        classes=evaluation.task == "classes",
        zip=zip,
        examples=_example_listings(evaluation),
        drivers=_driver_listing(evaluation),
    )
    return page


@cache
def _template() -> tuple[Any, str, str]:
    """The page to fill in, its style and its script."""
    from jinja2 import Environment, StrictUndefined  # when it is needed: scores alone should start fast
    from markupsafe import Markup, escape

    folder = resources.files("deep_ensembles.report")
    text, css, script = (folder.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["marked"] = lambda text: Markup(_NAME.sub(r"<code>\1</code>", str(escape(text))))
    return environment.from_string(text), css, script


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _comparisons(evaluation: Evaluation) -> list[str]:
    """What scores say beside a constant and beside one member."""
    gains = [gain for score in evaluation.scores if score.name in ("NLL", "CRPS") and (gain := score.difference("gain"))]
    constant = [evaluation.verdicts["constant"]] if "constant" in evaluation.verdicts else []
    return constant + [gain_verdict(gain, evaluation.n_rows) for gain in gains[:1]]


def _trust(evaluation: Evaluation) -> dict[str, Any]:
    """What the section about thresholds shows."""
    greatest = f"Greatest {evaluation.notes['uncertainty']}"
    label, heads = "Wanted mean absolute error", ["Wanted error", greatest, "Error reached"]
    if evaluation.task == "classes":
        label, heads = "Wanted accuracy", ["Wanted accuracy", "Least confidence", "Accuracy reached"]
    lines = evaluation.thresholds
    texts = [_threshold_texts(evaluation, line) for line in lines]
    start = starting_threshold(evaluation)
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
        wanted, reached = percent(line.wanted), f"{percent(line.reached)} ± {percent(line.error)}"
        result = f"{reached} of such predictions are right"
    else:
        wanted, reached = number(line.wanted), f"{number(line.reached, 3)} ± {number(line.error, 2)}"
        result = f"such predictions are off by {reached} on average"
    threshold, kept, rows = threshold_text(line.threshold, at_least=is_classes), percent(line.kept), count(line.rows)
    share = f"That keeps {kept} of the rows ({rows} of {count(evaluation.n_rows)})"
    answer = (
        f"Trust predictions whose {threshold_rule(evaluation, line)}. {share}; by rows that did not choose it, {result}."
    )
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
        pairs = [f"{short(name)} = {value}" for name, value in example.columns.items()]
        shown = [pair for pair, length in zip(pairs, accumulate(map(len, pairs)), strict=True) if length <= _MOST_CELLS]
        more = len(pairs) - len(shown)
        texts["Its values"] = ", ".join(shown) + (f" and {count(more)} more" if more > 0 else "")
    return texts


def _value_text(name: str, value: Any) -> str:
    if name in _SHARE_DIGITS:
        return percent(value, _SHARE_DIGITS[name])
    return short(value) if isinstance(value, str) else number(value)


def _driver_listing(evaluation: Evaluation) -> Listing | None:
    """The columns that matter most, or the first, with what they are taken for."""
    found = evaluation.influences
    listing = Listing("", ["column"]) if found is None else found.listing(_COLUMNS_SHOWN)
    worth = {row[0]: list(row[1:]) for row in listing.rows}
    known = {facts.column: [short(facts.understood, 80), percent(facts.missing)] for facts in evaluation.columns}
    if not (worth or known):
        return None
    heads = [
        "Column",
        *(["Understood as", "Missing here"] if known else []),
        *(head.capitalize() for head in listing.columns[1:]),
    ]
    names = list(worth or known)
    lines = [[short(name), *known.get(name, ["–", "–"] if known else []), *worth.get(name, [])] for name in names]
    return Listing("", heads, lines, listing.note)

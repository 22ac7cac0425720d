"""An evaluation as one HTML page that needs nothing else: its words, listings and charts in `page.html`."""

import base64
import hashlib
import os
import re
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
from deep_ensembles.report.charts import Line, Panel, Points, evaluation_charts
from deep_ensembles.report.classes import N_BINS
from deep_ensembles.report.evaluation import Evaluation, Example, Threshold
from deep_ensembles.report.summary import findings, starting_threshold
from deep_ensembles.report.svg import draw
from deep_ensembles.report.words import count, gain_verdict, level, number, percent, short, threshold_text, with_error

_NOTEBOOK_HEIGHT = 900
_NAME = re.compile("`([^`]*)`")
_THRESHOLDS_SHOWN = 8
_MOST_CELLS = 240  # characters of a row's cells
# Heads of columns that are not named like the values in them, and digits of those that are shares.
_HEADS = {"aleatoric": "Noise", "epistemic": "Disagreement", "truth": "Given to the truth"}
_SHARE_DIGITS = {"confidence": 1, "truth": 2}


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
        """The page: one file, which opens from disk and loads nothing; everything that came from users is escaped."""
        evaluation, (template, css, script) = self.evaluation, _template()
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, script)]
        # The page may use only its own style and script, and load nothing.
        sources = "style-src 'sha256-{}'; script-src 'sha256-{}'".format(*hashes)
        policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
        shown: dict[str, Any] = {"css": css, "script": script, "policy": policy, "title": self.title}
        shown |= {"evaluation": evaluation, "findings": findings(evaluation), "charts": evaluation_charts(evaluation)}
        shown |= {"comparisons": _comparisons(evaluation), "trust": _trust(evaluation), "today": date.today().isoformat()}
        for kind in ("uncertain", "wrong"):
            shown[kind] = [_example_texts(example, evaluation.coverage) for example in getattr(evaluation, kind)]
        return template.render(**shown, classes=evaluation.task == "classes")

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
        frame = f'sandbox="allow-scripts" width="100%" height="{_NOTEBOOK_HEIGHT}" style="border: 0"'
        return f'<iframe srcdoc="{escape(self.html)}" title="{escape(self.title)}" {frame}></iframe>'


@cache
def _template() -> tuple[Any, str, str]:
    """The page to fill in, its style and its script."""
    from jinja2 import Environment, StrictUndefined  # when it is needed: scores alone should start fast
    from markupsafe import Markup, escape

    folder = resources.files("deep_ensembles.report")
    text, css, script = (folder.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["marked"] = lambda text: Markup(_NAME.sub(r"<code>\1</code>", str(escape(text))))
    functions = (count, draw, level, number, percent, short, with_error, zip)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"n_bins": N_BINS, "version": __version__}
    return environment.from_string(text), css, script


def _comparisons(evaluation: Evaluation) -> list[str]:
    """What scores say beside a constant and beside one member."""
    gains = [gain for score in evaluation.scores if score.name in ("NLL", "CRPS") and (gain := score.difference("gain"))]
    constant = [evaluation.verdicts["constant"]] if "constant" in evaluation.verdicts else []
    return constant + [gain_verdict(gain, evaluation.n_rows) for gain in gains[:1]]


def _trust(evaluation: Evaluation) -> dict[str, Any] | None:
    """What the section about thresholds shows; None where none is recommended."""
    lines, last = evaluation.thresholds, len(evaluation.thresholds) - 1
    if last < 1:
        return None
    texts, start = [_threshold_texts(evaluation, line) for line in lines], starting_threshold(evaluation)
    # Of lines that keep the same rows the strictest says most.
    distinct = [i for i in range(len(lines)) if i in (0, last) or lines[i].rows != lines[i + 1].rows]
    shown = sorted({distinct[round(i * (len(distinct) - 1) / (_THRESHOLDS_SHOWN - 1))] for i in range(_THRESHOLDS_SHOWN)})
    wanted, kept = [line.wanted for line in lines], [line.kept for line in lines]
    mark = Points([wanted[start]], [kept[start]], "", "other")
    chart = Panel([Line(wanted, kept), mark], y_limits=(0, 1.02), legend=False)
    return {"stops": texts, "start": start, "shown": [texts[i] for i in shown], "kept": chart}


def _threshold_texts(evaluation: Evaluation, line: Threshold) -> dict[str, str]:
    is_class, kept = evaluation.task == "classes", percent(line.kept)
    wanted = percent(line.wanted) if is_class else number(line.wanted)
    reached = with_error(line.reached, line.error, is_class)
    result = f"{reached} of such predictions are right" if is_class else f"such predictions are off by {reached} on average"
    threshold, rows = threshold_text(line.threshold, at_least=is_class), count(line.rows)
    rule = "confidence is at least" if is_class else f"{evaluation.notes['uncertainty']} is at most"
    share = f"That keeps {kept} of the rows ({rows} of {count(evaluation.n_rows)})"
    answer = f"Trust predictions whose {rule} {threshold}. {share}; by rows that did not choose it, {result}."
    return {"wanted": wanted, "threshold": threshold, "reached": reached, "kept": kept, "rows": rows, "answer": answer}


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

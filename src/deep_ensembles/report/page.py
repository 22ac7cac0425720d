"""An evaluation as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import deep_ensembles
from deep_ensembles._files import write_atomically
from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.listings import (
    class_listing,
    confusion_listing,
    example_listings,
    outside_listing,
    terms,
    trust,
)
from deep_ensembles.report.pictures import pictures
from deep_ensembles.report.scores import Score
from deep_ensembles.report.svg import draw
from deep_ensembles.report.wording import count, number
from deep_ensembles.tables import Table

_NOTEBOOK_HEIGHT = 900


@dataclass(frozen=True)
class Report:
    """An evaluation to look at: in a notebook, as a file, or as a table of text.

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

    def text(self) -> Table:
        """The scores as a table, for a terminal."""
        return self.evaluation.table()

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the notebook's style and ours do not mix."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" title="{escape(self.title)}" sandbox="allow-scripts" '
            f'width="100%" height="{_NOTEBOOK_HEIGHT}" style="border: 0"></iframe>'
        )


def render(evaluation: Evaluation, title: str) -> str:
    """The page as text; everything that came from users is escaped."""
    folder = resources.files("deep_ensembles.report")
    template, css, script = (folder.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    # Each part of the page has access only to itself: nothing is loaded, and only this script runs.
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        policy=policy,
        css=Markup(css),
        script=Markup(script),
        title=title,
        version=deep_ensembles.__version__,
        evaluation=evaluation,
        **_content(evaluation),
    )


def _content(evaluation: Evaluation) -> dict[str, Any]:
    classes = None
    if evaluation.task == "classes":
        each, caption = class_listing(evaluation)
        classes = {"each": each, "caption": caption, "confusions": confusion_listing(evaluation)}
    listings, reading = example_listings(evaluation)
    return {
        "rows": count(evaluation.n_rows),
        "about": _about(evaluation),
        "headline": _headline(evaluation),
        "has_single": any(score.single is not None for score in evaluation.scores),
        "has_constant": any(score.constant is not None for score in evaluation.scores),
        "scores": [_line(evaluation, score) for score in evaluation.scores],
        "trust": trust(evaluation),
        "figures": [
            {
                "key": each.key,
                "title": each.title,
                "svg": Markup(draw(each.panel, each.title, f"{each.reading} {each.verdict}".strip())),
                "reading": each.reading,
                "verdict": each.verdict,
            }
            for each in pictures(evaluation)
        ],
        "classes": classes,
        "listings": listings,
        "rows_reading": reading,
        "outside": outside_listing(evaluation.outside or ()),
        "terms": terms(evaluation),
    }


def _about(evaluation: Evaluation) -> list[tuple[str, str]]:
    kind = f"{len(evaluation.labels)} classes" if evaluation.task == "classes" else "a number"
    own = [("Rows", count(evaluation.n_rows)), ("Members", count(evaluation.n_members)), ("Predicts", kind)]
    return [*evaluation.about.items(), *own]


def _headline(evaluation: Evaluation) -> list[str]:
    keys = ["constant", "reliability", "accuracy", "error"]
    if evaluation.task == "numbers":
        keys = ["constant", "calibration", "error"]
    keys += ["parts"] if evaluation.n_members > 1 else []
    found = [evaluation.verdicts[key] for key in keys if key in evaluation.verdicts]
    for name in ("NLL", "CRPS"):
        score = next((each for each in evaluation.scores if each.name == name), None)
        if score is not None and score.gain is not None and score.gain_error is not None:
            return [*found, _gain(score)]
    return found


def _gain(score: Score) -> str:
    assert score.gain is not None
    assert score.gain_error is not None
    way = "lower" if score.gain < 0 else "higher"
    judged = "no difference beyond chance"
    if abs(score.gain) > 2 * score.gain_error:
        judged = "the ensemble is better" if score.gain < 0 else "the ensemble is worse"
    return (
        f"The ensemble's {score.name} is {number(abs(score.gain), 3)} {way} than that of one member "
        f"(± {number(score.gain_error, 2)}): {judged}."
    )


def _line(evaluation: Evaluation, score: Score) -> dict[str, Any]:
    """A line of the table of scores."""
    heads = {"Ensemble": score.ensemble, "One member": score.single, "Constant": score.constant}
    present = {"One member": any(each.single is not None for each in evaluation.scores)}
    present["Constant"] = any(each.constant is not None for each in evaluation.scores)
    best = _best(score)
    cells = [
        {"head": head, "value": value, "text": score.text(value), "best": value is not None and value == best}
        for head, value in heads.items()
        if present.get(head, True)
    ]
    if present["One member"]:
        cells.append({"head": "Ensemble − member", "value": score.gain, "text": _difference(score), "best": False})
    cells.append({"head": "Better", "value": None, "text": score.aim, "best": False})
    return {"name": score.name, "meaning": score.meaning, "cells": cells}


def _best(score: Score) -> float | None:
    values = [each for each in (score.ensemble, score.single, score.constant) if each is not None]
    if len(values) < 2 or score.name.endswith("width"):
        return None
    if isinstance(score.better, float):
        aim = score.better
        return min(values, key=lambda each: abs(each - aim))
    return min(values) if score.better == "lower" else max(values)


def _difference(score: Score) -> str:
    if score.gain is None:
        return "–"
    factor, unit = (100, " points") if score.share else (1, "")
    sign = "+" if score.gain > 0 else ""
    error = "" if score.gain_error is None else f" ± {number(factor * score.gain_error, 2)}"
    return f"{sign}{number(factor * score.gain, 3)}{error}{unit}"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

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

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import deep_ensembles
from deep_ensembles._files import write_atomically
from deep_ensembles._terminal import Listing
from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.listings import class_listing, confusion_listing, example_listings, outside_listing, trust
from deep_ensembles.report.pictures import Picture, pictures
from deep_ensembles.report.svg import draw
from deep_ensembles.report.wording import count, gain_verdict

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

    def text(self) -> Listing:
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
        count=count,
        headline=_headline(evaluation),
        trust=trust(evaluation),
        figures=[(each, _drawn(each)) for each in pictures(evaluation)],
        classes=[confusion_listing(evaluation), class_listing(evaluation)] if evaluation.task == "classes" else [],
        examples=example_listings(evaluation),
        outside=outside_listing(evaluation.outside or ()),
    )


def _drawn(picture: Picture) -> Markup:
    return Markup(draw(picture.panel, picture.title, f"{picture.reading} {picture.verdict}".strip()))


def _headline(evaluation: Evaluation) -> list[str]:
    keys = ["constant", "calibration", "reliability", "accuracy", "error"]
    keys += ["parts"] if evaluation.n_members > 1 else []
    found = [evaluation.verdicts[key] for key in keys if key in evaluation.verdicts]
    for score in evaluation.scores:
        if score.name in ("NLL", "CRPS") and score.gain is not None and score.gain_error is not None:
            return [*found, gain_verdict(score.name, score.gain, score.gain_error)]
    return found


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""What a model folder holds, said without data and without loading its networks."""

import os
import re
import shlex
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deep_ensembles._files import json_ready, model_file_errors, read_config
from deep_ensembles._terminal import Listing
from deep_ensembles.columns import Schema, Target

_MOST_CLASSES = 10
# What settings are called where people read them.
_WORDS = {
    "n_members": "networks", "hidden_sizes": "hidden layers", "head": "head", "networks": "kinds of networks",
    "perturbation": "adversary", "max_epochs": "epochs at most", "patience": "patience", "batch_size": "batch size",
    "learning_rate": "learning rate", "drop_last": "leaves out incomplete batches", "schedule": "learning rate over time",
    "averaging": "weights are averaged over epochs", "clip_norm": "longest gradient", "early_stopping": "stops early",
    "standardize_inputs": "inputs are scaled by", "standardize_targets": "target is scaled",
}  # fmt: skip
_OBJECT = re.compile(r"([A-Z]\w*)\((.*)\)")
_MOST_SETTINGS = 100  # characters of an object's settings; more are no use to a reader


@dataclass(frozen=True)
class ModelSummary:
    """What a model folder says of itself.

    Arguments:
        path: the folder.
        about: plain data: the kind of model, networks, size and version; of a table also target, task, classes and rows.
        schema: the columns of a table; None for models of arrays.
        scores: of rows that were held out in training, by name.
        chosen: settings, as the recipe chose them or was told.
        beside: models of other targets of the same table.
    """

    path: str
    about: Mapping[str, Any]
    schema: Schema | None
    scores: Mapping[str, float | None]
    chosen: Mapping[str, Any]
    beside: Sequence["ModelSummary"] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        content = {**self.about, "held_out_scores": self.scores, "chosen": self.chosen}
        if self.schema is not None:
            content["columns"] = [{"name": column.name, "kind": type(column).__name__.lower(), "summary": column.summary()}
                                  for column in self.schema.columns]  # fmt: skip
            content["left_out"] = dict(self.schema.dropped)
        content |= {"beside": [other.as_dict() for other in self.beside]} if self.beside else {}
        return dict(json_ready(content))

    def listings(self) -> list[Listing | str]:
        """What it is, its columns, its scores, what was chosen, and how to use it, in lines to be copied."""
        listings: list[Listing | str] = [Listing("", ["model", self.path], self._facts(), words=[self.path])]
        listings += [] if self.schema is None else [self.schema.listing()]
        listings += [f"noted in training rows: {note}" for note in self.about.get("notes", ())]
        known = {name: value for name, value in self.scores.items() if value is not None}
        shares = self.about.get("shares", ())
        scores = [[name, f"{100 * value:.1f} %" if name in shares else _text(value)] for name, value in known.items()]
        listings += [Listing("Held-out scores", ["score", "value"], scores)] if scores else []
        listings += [chosen_listing(self.chosen)] if self.chosen else []
        return [*listings, *(listing for other in self.beside for listing in other.listings()[:-3]), *self._uses()]

    def _facts(self) -> list[list[str]]:
        about, rows = self.about, self.about.get("rows")
        lines = {"kind": about["kind"], "predicts": None, "classes": None, "trained on": None}
        if "target" in about:
            lines["predicts"] = f"{about['target']}{' in ' * bool(about['unit'])}{about['unit']} ({about['task']})"
            classes = list(map(str, about["classes"]))
            between = "; " if any("," in name for name in classes) else ", "
            shown = between.join([*classes[:_MOST_CLASSES], *["…"] * (len(classes) > _MOST_CLASSES)])
            lines["classes"] = shown and f"{len(about['classes'])}: {shown}"
        if rows:
            lines["trained on"] = f"{rows['trained']} rows" + f"; {rows['held_out']} more held out" * bool(rows["held_out"])
            lines["training"] = about.get("training")
        lines |= {"networks": str(about["networks"]), "size on disk": _size(about["bytes"])}
        lines["written by"] = about["version"] and f"deep-ensembles {about['version']}"
        return [[name, value] for name, value in lines.items() if value]

    def _uses(self) -> list[str]:
        path, loaded = shlex.quote(self.path), f"from deep_ensembles import load; model = load({self.path!r})"
        if "target" not in self.about:
            return [f"python    {loaded}"]
        return [
            f"predict   deep-ensembles predict {path} new.csv --out predictions.csv",
            f"evaluate  deep-ensembles evaluate {path} known.csv --report report.html",
            f"python    {loaded}; model(frame)",
        ]


def chosen_listing(chosen: Mapping[str, Any], asked: Container[str] = ()) -> Listing:
    """The settings of a training in plain words, and which of them were asked for."""
    rows = [[_WORDS.get(name, name.replace("_", " ")), _text(value), "as asked" * (name in asked)]
            for name, value in chosen.items() if value is not None]  # fmt: skip
    return Listing("What was chosen", ["setting", "value", ""], rows, words=["value", ""])


def _text(value: Any) -> str:
    """A number, a list, a mapping or an object's name and settings as people read it.

    Example:
        >>> _text("VarianceScaling(factor=3.512345678)"), _text(True), _text([64, 64])
        ('variance scaling (factor 3.512)', 'yes', '64, 64')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and (found := _OBJECT.fullmatch(value)):
        name, given = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", found[1]).lower(), re.sub(r"\w+=None(, |$)", "", found[2])
        short = re.sub(r"\d+\.\d{4,}", lambda digits: f"{float(digits[0]):.4g}", given)
        settings = short.replace("=", " ").replace("_", " ")
        return f"{name} ({settings})" if 0 < len(settings) <= _MOST_SETTINGS else name
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def _size(n_bytes: int) -> str:
    """
    Example:
        >>> _size(1_500_000), _size(700)
        ('1.5 MB', '1 kB')
    """
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{max(1, round(n_bytes / 1e3))} kB"


def show_model(path: str | os.PathLike[str]) -> ModelSummary:
    """What a model folder holds: the target, the columns, held-out scores, what was chosen, its size and version.

    Arguments:
        path: a folder that `deep-ensembles fit` or `save` wrote.
    """
    with model_file_errors(path):
        config, n_bytes = read_config(path)
        others = [_summary(path, {**config, **part}, n_bytes) for part in config.get("beside", [])]
        summary = replace(_summary(path, config, n_bytes), beside=others)
        summary.listings()  # what does not fit together is no model
        return summary


def _summary(path: str | os.PathLike[str], config: Mapping[str, Any], n_bytes: int) -> ModelSummary:
    about = {"kind": str(config["kind"]), "networks": int(config["ensemble"]["n_members"]), "bytes": n_bytes}
    about["version"] = str(config.get("versions", {}).get("deep-ensembles", ""))
    if "table" not in config:
        return ModelSummary(str(path), about, None, {}, {})
    table = config["table"]
    schema, target, facts = Schema.from_data(table["schema"]), Target.from_data(table["target"]), table["facts"]
    about |= {name: getattr(target, name) for name in ("unit", "task", "classes")}
    about |= {"target": target.name, "rows": facts["rows"], "training": facts.get("training")}
    about |= {name: [str(item) for item in facts.get(name, ())] for name in ("notes", "shares")}
    return ModelSummary(str(path), about, schema, facts.get("held_out_scores", {}), facts.get("chosen", {}))

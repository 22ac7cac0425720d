"""Settings as plain data: the package's own objects by name, with their arguments; no name in a file is ever imported."""

import dataclasses
import functools
from typing import Any

import numpy as np
import torch

from deep_ensembles import heads, networks, perturbations, recalibration, scoring
from deep_ensembles._checks import require
from deep_ensembles._splits import Bootstrap, ComplementaryFolds, Subsample
from deep_ensembles.training import Adam, AdamW, Constant, Cosine, RobustScaling

_DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
_FOLDERS = (heads, scoring, perturbations, networks, recalibration)
# Nothing that writes or reads a file: whoever loads a model must not act on a path that someone else wrote into it.
_OTHERS = (Adam, AdamW, Bootstrap, ComplementaryFolds, Constant, Cosine, RobustScaling, Subsample, recalibration.choose)
# Objects that may stand within others.
_NESTED = ("heads.NegativeBinomial", "heads.Poisson", "scoring.log_score")


@dataclasses.dataclass(frozen=True)
class NotSaved:
    """Stands for an object that a model file could not hold: a user's own function or class."""

    description: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.description} was not saved with the model; set it anew before you fit again")


@functools.cache
def known_objects() -> dict[str, Any]:
    """Everything that can be named in a file: what open folders offer from their own files, and a few more."""
    known = {}
    for folder in _FOLDERS:
        for name in folder.__all__:
            room, _, file = getattr(getattr(folder, name), "__module__", "").rpartition(".")
            if room == folder.__name__ and not file.startswith("_"):
                known[f"{room.rpartition('.')[2]}.{name}"] = getattr(folder, name)
    return known | {other.__name__: other for other in _OTHERS}


def describe(value: Any) -> Any:
    """Plain data (for JSON) that `restore` turns back into an equal value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return describe(value.item())
    if isinstance(value, list):
        return [describe(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[describe(key), describe(item)] for key, item in value.items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, NotSaved):
        return {"not saved": value.description}
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    names = {id(known): name for name, known in known_objects().items()}
    known, parts = value, {}
    if isinstance(value, functools.partial):
        keywords = {name: describe(argument) for name, argument in value.keywords.items()}
        known, parts = value.func, {"partial": describe(list(value.args)), "keywords": keywords}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        known, parts = type(value), {"arguments": fields}
    if id(known) in names and _is_plain(list(parts.values())):
        return {"name": names[id(known)], **parts}
    return {"not saved": getattr(value, "__qualname__", None) or repr(value)}


def _is_plain(data: Any) -> bool:
    """Whether what was described holds numbers, text, a head in a head or a rule in a rule, but no other objects."""
    if isinstance(data, dict):
        nested = data.get("name") in _NESTED and set(data) <= {"name", "arguments"}
        return (nested or not {"name", "not saved"} & set(data)) and _is_plain(list(data.values()))
    return not isinstance(data, list) or all(map(_is_plain, data))


def restore(data: Any) -> Any:
    """The value that `describe` described; unknown names are an error. Nothing but dataclasses of the package is called."""
    if isinstance(data, list):
        return [restore(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "tuple" in data:
        return tuple(restore(item) for item in data["tuple"])
    if "dict" in data:
        return {restore(key): restore(item) for key, item in data["dict"]}
    if "not saved" in data:
        return NotSaved(str(data["not saved"]))
    known, name = (_DTYPES, data["dtype"]) if "dtype" in data else (known_objects(), data.get("name"))
    if name not in known:
        raise ValueError(f"the model file names {name!r}, which this version does not know")
    return known[name] if known is _DTYPES else _restore_object(known[name], data)


def _restore_object(known: Any, data: dict[str, Any]) -> Any:
    arguments, keywords = data.get("partial", []), data.get("keywords", data.get("arguments", {}))
    require(_is_plain([arguments, *keywords.values()]), data["name"], "described by plain values", data)
    values = {name: restore(value) for name, value in keywords.items()}
    if "partial" in data:
        return functools.partial(known, *restore(arguments), **values)
    if "arguments" in data:
        require(dataclasses.is_dataclass(known), data["name"], "a dataclass to have arguments", data)
        return known(**values)
    return known

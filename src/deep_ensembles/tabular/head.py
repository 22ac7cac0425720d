"""The head of a table's model: read from its name, checked against the target, suggested by what the target looks like."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles.columns import TableError, skewness
from deep_ensembles.heads import Point, StudentT
from deep_ensembles.settings import known_objects
from deep_ensembles.training.prepare import support_in_words

_FORM = "a name with arguments as in logit_normal:low=0,high=100"
_BOUNDS = ((1.0, 0.5), (100.0, 80.0))  # of shares and percentages, and what some value must exceed
_FEW_LEVELS, _FEW_ROWS, _LARGEST_COUNT, _LARGEST_MEAN = 3, 20, 10_000, 50.0


@cache
def heads() -> Mapping[str, Any]:
    """The heads that one column can have, by their names in small letters."""
    known = {name.removeprefix("heads."): head for name, head in known_objects().items() if name.startswith("heads.")}
    return {
        re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower(): head
        for name, head in known.items()
        if head.kind in ("numbers", "counts", "classes") and head is not Point  # which has no spread to learn
    }


def head_named(text: str) -> Any:
    """The head that a text names, with its arguments; the items of a list have commas between them too.

    Example:
        >>> head_named("gaussian_mixture:k=5").k, head_named("quantiles:levels=0.1,0.5,0.9").levels
        (5, (0.1, 0.5, 0.9))
    """
    if not isinstance(text, str):
        raise TableError(f"`head` must be {_FORM}, got {text!r}")
    name, _, rest = (part.strip() for part in text.partition(":"))
    if name not in heads():
        near = get_close_matches(name.lower().replace("-", "_"), heads(), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise TableError(f"`head` must be one of {', '.join(heads())}, got {name!r}{meant}")
    known = {field.name: field.default for field in fields(heads()[name])}
    values = {}
    for argument, parts in _arguments(rest).items():
        if argument not in known:
            raise TableError(f"the head {name} has no argument {argument!r}; it has {', '.join(known) or 'none'}")
        values[argument] = _value(argument, parts, known[argument])
    try:
        head = heads()[name](**values)
    except ValueError as error:
        raise TableError(f"the head {name}: {error}") from error
    if isinstance(head, StudentT) and head.point == "median":
        raise TableError("a table of predictions has means, which a Student-t has above 1 degree of freedom; "
                         "give more, as in student_t:min_degrees_of_freedom=2.1")  # fmt: skip
    return head


def name_of(head: Any) -> str:
    """The name of a head that `head_named` knows, without its arguments."""
    return next(name for name, kind in heads().items() if kind is type(head))


def _arguments(text: str) -> dict[str, list[str]]:
    """Arguments and their values, of which a list has several."""
    values: dict[str, list[str]] = {}
    for item in filter(None, re.split(r",(?=[^,=]*=)", text.strip(", "))):
        argument, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise TableError(f"`head` must be {_FORM}, got {item!r}")
        if argument in values:
            raise TableError(f"`head` names the argument {argument!r} twice")
        values[argument] = [part.strip() for part in value.split(",")]
    return values


def _value(argument: str, parts: list[str], default: Any) -> Any:
    if is_dataclass(default):  # a head within a head, by its name alone
        return head_named(parts[0])
    if isinstance(default, tuple):
        return tuple(_number(argument, part) for part in parts)
    if len(parts) > 1:
        raise TableError(f"`{argument}` must be one value, got {', '.join(parts)}")
    return None if parts[0].lower() == "none" else _number(argument, parts[0])


def _number(argument: str, text: str) -> int | float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError as error:
        raise TableError(f"`{argument}` must be a number, got {text!r}") from error


def check_targets(head: Any, name: str, y: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Refuse a target outside what the head can predict, naming its row (numbers from 0) and value."""
    if head.kind == "classes" or head.support.check(values := torch.from_numpy(y)).all():
        return
    place = int((~head.support.check(values)).nonzero()[0])
    bounded = getattr(head, "high", None) is not None
    cure = "give wider bounds, as in logit_normal:low=-1,high=101" if bounded else "leave such rows out"
    needed = f"{support_in_words(head.support)} for the head {name_of(head)}"
    raise TableError(f"`{name}` must be {needed}, but is {y[place]:g} in row {rows[place] + 1}; {cure}, "
                     "or take another head: `normal` takes any number")  # fmt: skip


def suggested_head(y: NDArray[Any], levels: NDArray[Any] | None = None) -> tuple[str, str] | None:
    """The head that a target looks made for, and why; None where the default is apt or little is known.

    Arguments:
        y: values of the target.
        levels: what whole numbers mean that are taken for classes.
    """
    values = np.asarray(y, dtype=np.float64) if levels is None else np.asarray(levels, dtype=np.float64)[y]
    if len(values) < _FEW_ROWS:
        return None
    counts = _suggested_for_counts(values) if values.min() >= 0 and (values == np.floor(values)).all() else None
    if levels is not None:
        return _suggested_for_levels(values, counts)
    return counts or _suggested_for_numbers(values)


def suggested_bounds(y: NDArray[Any]) -> tuple[str, str] | None:
    """The bounds that numbers look made for, some of which lie on one, so that heads with bounds refuse them; and why.

    Example:
        >>> suggested_bounds(np.append(np.linspace(0.1, 0.9, 30), 1.0))
        ('0,1', 'all values are from 0 to 1, some of them on a bound')
    """
    low, high = float(y.min()), float(y.max())
    if len(y) < _FEW_ROWS or low < 0 or len(np.unique(y)) < _FEW_ROWS:
        return None
    end = 100 if high == 100 else 1
    if low < high / 2 and (high == end or (low == 0 and 0.5 < high < 1)):
        return f"0,{end}", f"all values are from 0 to {end}, some of them on a bound"
    if low == 0 and skewness(y) > 1:
        return "0,", f"all values are 0 or more and skewed to the right, {(y == 0).mean():.0%} of them 0"
    return None


def _suggested_for_levels(values: NDArray[np.float64], counts: tuple[str, str] | None) -> tuple[str, str] | None:
    """Of few whole numbers: counts if they start at 0 and thin out, else classes whose order may matter."""
    shown, shares = np.unique(values, return_counts=True)
    if len(shown) < _FEW_LEVELS:
        return None
    if counts is not None and shown[0] == 0 and len(shown) > _FEW_LEVELS and shares[-1] * 4 < shares.max():
        return counts[0], f"{counts[1]}, if they are counts and no names of classes"
    return "ordinal", f"it has {len(shown)} different whole numbers, if these have an order as grades do"


def _suggested_for_counts(values: NDArray[np.float64]) -> tuple[str, str] | None:
    # Large whole numbers (prices, years) are hardly counts, and large counts are as good as numbers.
    if not 0 < values.max() < _LARGEST_COUNT or values.mean() > _LARGEST_MEAN:
        return None
    mean, variance, zeros = values.mean(), values.var(), (values == 0).mean()
    if variance < 1.5 * mean:
        return "poisson", "it has whole numbers ≥ 0 whose variance is about their mean"
    size = mean**2 / (variance - mean)
    if zeros > (size / (size + mean)) ** size + 0.05:
        return "zero_inflated", f"it has whole numbers ≥ 0, {zeros:.0%} of them 0"
    return "negative_binomial", "it has whole numbers ≥ 0 that vary more than a Poisson's"


def _suggested_for_numbers(values: NDArray[np.float64]) -> tuple[str, str] | None:
    for high, reached in _BOUNDS:
        if values.min() > 0 and reached < values.max() < high:
            return f"logit_normal:low=0,high={high:g}", f"all values are between 0 and {high:g}"
    scaled = values / (np.abs(values).max() or 1.0)
    if scaled.min() > 0 and skewness(scaled) > 1:
        log_normal = skewness(np.log(scaled)) > -0.5
        return "log_normal" if log_normal else "gamma", "all values are above 0 and skewed to the right"
    low, middle, high = np.quantile(scaled, [0.25, 0.5, 0.75])
    far = np.abs(scaled - middle) > 5 * (high - low) / 1.349
    if 0.002 <= far.mean() <= 0.1:
        return "student_t", f"{far.mean():.1%} of the values are outliers, more than 5 robust deviations from the median"
    return None

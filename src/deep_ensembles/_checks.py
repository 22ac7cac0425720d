"""Checks of values that users pass, all with one style of message: the name, what it must be, what came."""

import math
from numbers import Integral, Real
from typing import Any


def require(condition: bool, name: str, must: str, got: Any, cure: str = "") -> None:
    """Raise `ValueError` with the house message unless `condition` holds."""
    if not condition:
        raise ValueError(f"`{name}` must be {must}, got {got!r}" + (f"; {cure}" if cure else ""))


def check_number(
    name: str, value: Any, *, low: float = -math.inf, high: float = math.inf, above: bool = False, below: bool = False,
    optional: bool = False,
) -> None:  # fmt: skip
    """`value` must be a finite real number with low ≤ value ≤ high (low < value where `above`, value < high `below`); it may
    be None where it is `optional`.
    """
    bounds = [f"{'>' if above else '≥'} {low:g}"] if low > -math.inf else []
    bounds += [f"{'<' if below else '≤'} {high:g}"] if high < math.inf else []
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    inside = is_number and (value > low if above else value >= low) and (value < high if below else value <= high)
    require(inside or (optional and value is None), name, f"a number {' and '.join(bounds)}".strip(), value)


def check_integer(name: str, value: Any, *, low: int, optional: bool = False) -> None:
    """`value` must be a whole number ≥ low, or None where it is `optional`."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    require(value >= low if is_integer else optional and value is None, name, f"an integer ≥ {low}", value)


def check_flag(name: str, value: Any) -> None:
    """`value` must be True or False."""
    require(type(value).__name__ in ("bool", "bool_"), name, "True or False", value)

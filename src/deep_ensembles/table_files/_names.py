"""Column names: all there, all different."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from deep_ensembles.table_files._head import TableError

_NUMBER = re.compile(r"^\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*$")


def unique_names(names: Sequence[str | None]) -> tuple[tuple[str, ...], list[str]]:
    """Names for columns, and what was changed to make them whole and different.

    Example:
        >>> unique_names(["x", " x", ""])
        (('x', 'x_2', 'column_3'), ['a second column `x` is called `x_2`', 'column 3 has no name and is called `column_3`'])
    """
    given = [" ".join((name or "").split()) for name in names]
    taken, changed = set(given), []
    unique: list[str] = []
    seen: set[str] = set()
    for place, name in enumerate(given, start=1):
        new = name
        if not name:
            new = _free(f"column_{place}", taken)
            changed.append(f"column {place} has no name and is called `{new}`")
        elif name in seen:
            new = _free(name, taken, 2)
            changed.append(f"a second column `{name}` is called `{new}`")
        taken.add(new)
        seen.add(new)
        unique.append(new)
    return tuple(unique), changed


def _free(name: str, taken: set[str], number: int = 1) -> str:
    while (new := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return new


def check_header(path: Path, header: Sequence[str]) -> list[str]:
    """Refuse a first line of numbers, which is no header unless it counts columns; doubt one that is mostly numbers."""
    cells = [cell.strip() for cell in header if cell.strip()]
    numbers = [cell for cell in cells if _NUMBER.match(cell)]
    if not numbers or _counts(numbers):
        return []
    shown = ", ".join(cells[:4]) + (", …" if len(cells) > 4 else "")
    if len(numbers) == len(cells):
        raise TableError(f"{path}: the first line ({shown}) holds values, not column names; add a line of names above it")
    if len(numbers) * 2 >= len(cells) and any(not cell.isdigit() for cell in numbers):
        return [f"{path.name}: the first line ({shown}) is taken for column names, but looks like values"]
    return []


def _counts(numbers: Sequence[str]) -> bool:
    """Whether these are whole numbers that go up by one, as programs name columns."""
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
        return numbers in (["0"], ["1"])
    return all(int(after) - int(before) == 1 for before, after in pairwise(numbers))

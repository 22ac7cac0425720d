"""Here, one piece after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InProcess:
    """Works in this process.

    Example:
        >>> list(InProcess()(print, ["a", "b"]))
        a
        b
        ['a', 'b']
    """

    def __call__(self, work: Callable[[Any], None], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            work(item)
            yield item

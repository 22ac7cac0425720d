"""Taking times side by side, and the line that tells of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

HEADER = f"{'name':<28}{'ours':>11}{'other':>11}{'ratio':>11}{'wanted':>11}  reached"


@dataclass(frozen=True)
class Line:
    """One figure.

    Arguments:
        name: what was measured.
        ours, other: what the figure is made of, in `unit`; no `other` where there is nothing beside.
        figure, wanted: in `figure_unit`; "×" for a ratio.
        at_most: whether `wanted` is a ceiling rather than a floor.
        failure: why there is no figure.
    """

    name: str
    ours: float = float("nan")
    other: float | None = None
    figure: float = float("nan")
    wanted: float = float("nan")
    at_most: bool = False
    unit: str = "s"
    figure_unit: str = "×"
    failure: str | None = None

    @property
    def reached(self) -> bool:
        return self.figure <= self.wanted if self.at_most else self.figure >= self.wanted

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.name:<28}{'failed':>11}  {self.failure}"
        other = "–" if self.other is None else _cell(self.other, self.unit)
        wanted = f"{'≤' if self.at_most else '≥'} {_cell(self.wanted, self.figure_unit)}"
        cells = (_cell(self.ours, self.unit), other, _cell(self.figure, self.figure_unit), wanted)
        return f"{self.name:<28}" + "".join(f"{cell:>11}" for cell in cells) + f"  {'yes' if self.reached else 'no'}"


def _cell(value: float, unit: str) -> str:
    if unit == "×":
        return f"{value:.2f}×"
    return f"{value:.3f} {unit}" if unit == "s" else f"{value:.0f} {unit}"


def speedup(name: str, seconds: tuple[float, float], wanted: float) -> Line:
    """How many times faster we are, from our and the other's seconds."""
    ours, other = seconds
    return Line(name, ours, other, other / ours, wanted)


def seconds(call: Callable[[], object]) -> float:
    """The seconds that one call takes."""
    gc.collect()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def side_by_side(*calls: Callable[[], object], repeats: int = 5) -> tuple[float, ...]:
    """The median seconds of each call: each once to warm up, then all in turn, `repeats` times."""
    for call in calls:
        call()
    rounds = [[seconds(call) for call in calls] for _ in range(repeats)]
    return tuple(median(times) for times in zip(*rounds, strict=True))

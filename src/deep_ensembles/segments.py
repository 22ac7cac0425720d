"""How an epoch of runs with different numbers of rows is cut into steps that stacks can take together."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Segment:
    """Consecutive runs that take the same steps: from row `column` and step `step` of their epoch, in `sizes`."""

    start: int
    stop: int
    column: int
    step: int
    sizes: list[int]

    @property
    def columns(self) -> slice:
        """The rows of the epoch that the segment covers."""
        return slice(self.column, self.column + sum(self.sizes))


def cut(n: int, size: int) -> list[int]:
    """Batch sizes for n rows; a last batch of a single row joins the one before it (batch norm needs two).

    Example:
        >>> cut(250, 100), cut(201, 100), cut(1, 100)
        ([100, 100, 50], [100, 101], [1])
    """
    sizes = [size] * (n // size) + ([n % size] if n % size else [])
    if size > 1 and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def segments(counts: Sequence[int], batch_size: int) -> list[Segment]:
    """Steps that all runs take together first, then what is left, range by range of runs that are alike.

    No batch is ever padded: batch norm in one run must not see rows that another run needed.

    Example:
        >>> [(s.start, s.stop, s.sizes) for s in segments([250, 250, 230], 100)]
        [(0, 3, [100, 100]), (0, 2, [50]), (2, 3, [30])]
    """
    sizes = [cut(n, batch_size) for n in counts]
    shared = len(sizes[0])
    while any(own[:shared] != sizes[0][:shared] for own in sizes):
        shared -= 1
    found = [Segment(0, len(counts), 0, 0, sizes[0][:shared])] if shared else []
    for start, stop in alike(counts):
        if rest := sizes[start][shared:]:
            found.append(Segment(start, stop, sum(sizes[start][:shared]), shared, rest))
    return found


def narrowed(wide: Sequence[Segment], runs: int) -> list[Segment]:
    """The same steps with at most so many runs at a time.

    Example:
        >>> [(s.start, s.stop) for s in narrowed(segments([10] * 5, 10), 2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    return [
        replace(segment, start=start, stop=min(start + runs, segment.stop))
        for segment in wide
        for start in range(segment.start, segment.stop, runs)
    ]


def alike(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Ranges of consecutive equal keys.

    Example:
        >>> alike("aabccc")
        [(0, 2), (2, 3), (3, 6)]
    """
    ends = [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]
    return list(itertools.pairwise([0, *ends, len(keys)]))

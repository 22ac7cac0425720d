"""In this process, one item after another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

Work = Callable[..., Any]  # of an item, and of what it reports to if that is wanted
Report = Callable[[Any, int, str], None]  # an item, how much of it is done, and a note
Results = Iterator[tuple[Any, Any]]  # items and what became of them, as they are finished


@dataclass(frozen=True)
class InProcess:
    """Works in this process.

    Example:
        >>> list(InProcess()(abs, [-1, 2]))
        [(-1, 1), (2, 2)]
    """

    workers = 1  # items that are worked on at once

    def __call__(self, work: Work, items: Sequence[Any], report: Report | None = None) -> Results:
        for item in items:
            yield item, work(item) if report is None else work(item, partial(report, item))


class Execution(Protocol):
    """Does `work(item)` for every item and yields (item, result) as they are finished; an error of the work is raised here.

    `work`, which may hold much data, items and results may be sent to another process or machine by cloudpickle. An item
    whose worker is lost is done again: work that takes long goes on from a file.

    Arguments:
        report: called here with (item, done, note) whenever work does, which is then called as `work(item, report)` and
            says `report(done, note)`.
    """

    @property
    def workers(self) -> int: ...

    def __call__(self, work: Work, items: Sequence[Any], report: Report | None = None, /) -> Results: ...

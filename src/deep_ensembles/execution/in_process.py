"""In this process, one item after another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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


class Execution(Protocol):
    """Does `work(item)` for every item and yields items as they are finished; an error of the work is raised here.

    `work` and items may be sent to another process or machine: both must be picklable, and results must be written to files.
    """

    def __call__(self, work: Callable[[Any], None], items: Sequence[Any], /) -> Iterator[Any]: ...

"""What every execution is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol


class Execution(Protocol):
    """Does `work(item)` for every item and yields items as they are finished; an error of the work is raised here.

    `work` and items travel to where they are done: they must be picklable, and whatever the work leaves it leaves in files.
    """

    def __call__(self, work: Callable[[Any], None], items: Sequence[Any], /) -> Iterator[Any]: ...

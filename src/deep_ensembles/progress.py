"""A progress bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Report(Protocol):
    """Called after each epoch."""

    def __call__(self, epoch: int, members: int, score: float) -> None: ...


@contextmanager
def training_progress(total: int, verbose: int, start: int, members: int) -> Iterator[Report | None]:
    """A bar with epoch, members still training, score and time left; nothing if `verbose` is 0 or stderr is piped."""
    if verbose <= 0 or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("epoch"),
        MofNCompleteColumn(),
        TextColumn("members {task.fields[members]}  score {task.fields[score]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=verbose < 2) as bar:
        task = bar.add_task("training", total=total, completed=start, members=members, score="–")

        def report(epoch: int, members: int, score: float) -> None:
            bar.update(task, completed=epoch, members=members, score=f"{score:.4f}")

        yield report


@contextmanager
def row_progress(total: int | None, verbose: int) -> Iterator[Callable[[int], None]]:
    """A bar of rows done, told how many more are; nothing if `verbose` is 0 or stderr is piped."""
    if verbose <= 0 or not sys.stderr.isatty():
        yield lambda rows: None
        return
    columns = (
        TextColumn("rows"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda rows: bar.advance(task, rows)

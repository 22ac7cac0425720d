"""Tables of text."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True)
class Listing:
    """Rows of text under a title.

    Arguments:
        title: what it shows.
        columns: the heads.
        rows: one text per column.
        note: a line below.
        words: heads of columns of words, which stand to the left as the first does.

    Example:
        >>> print(Listing("Pets", ["kind", "number"], [["cat", "2"]]).text().strip())
        Pets
         kind   number
        ───────────────
         cat         2
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    note: str = ""
    words: Sequence[str] = ()

    def rich(self) -> RichTable:
        """As rich shows it; numbers stand to the right, and brackets are no markup."""
        title, note = Text(self.title, "bold"), Text(self.note, "dim") if self.note else None
        table = RichTable(title=title, caption=note, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
        for place, column in enumerate(self.columns):
            table.add_column(
                Text(column), justify="left" if place == 0 or column in self.words else "right", overflow="fold"
            )
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def text(self, width: int = 120) -> str:
        """As plain text."""
        buffer = io.StringIO()
        Console(file=buffer, width=width, color_system=None).print(self.rich())
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


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

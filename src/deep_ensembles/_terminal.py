"""What is shown on a terminal: listings and progress bars."""

import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_FIRST_LINE, _NEXT_LINE = 10.0, 30.0  # seconds between lines in a pipe
# Codes that move the cursor, change colours or turn the direction of writing; newlines and tabs are harmless.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text from files that may be shown: what a terminal would obey is written out, as TOML and JSON do.

    Example:
        >>> print(printable("price\x1b[31m"))
        price\\u001b[31m
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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

    def rich(self) -> Any:
        """A table of rich, which is imported only when something is shown; brackets are no markup."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        title, note = Text(printable(self.title), "bold"), Text(printable(self.note), "dim") if self.note else None
        table = Table(title=title, caption=note, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
        for place, column in enumerate(self.columns):
            is_text = place == 0 or column in self.words
            table.add_column(Text(printable(column)), justify="left" if is_text else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return table

    def text(self, width: int = 120) -> str:
        """As plain text."""
        from rich.console import Console

        buffer = io.StringIO()
        Console(file=buffer, width=width, color_system=None).print(self.rich())
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


@contextmanager
def progress(label: str, total: int | None, unit: str, *, verbose: int = 1, start: int = 0) -> Iterator[Callable[..., None]]:
    """A bar on a terminal; where stderr is piped a line now and then; nothing if `verbose` is 0.

    Yields a function that moves the bar: `update(advance=1)` or `update(completed=7)`, with `note="…"` to show beside it
    and `total=9` once that is known.

    Arguments:
        label: what is going on.
        total: how much there is to do; None if that is not known.
        unit: what is counted, `epoch` or `rows`; `bytes` are shown as megabytes and the like.
        verbose: 2 to leave the bar on the terminal in the end.
        start: how much was done before.
    """
    if verbose <= 0 or not sys.stderr.isatty():
        yield _lines(label, total, unit, start) if verbose > 0 else lambda **changes: None
        return
    from rich import progress as bars
    from rich.console import Console

    text, times = bars.TextColumn, (bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn())
    amount = (bars.DownloadColumn(), text("")) if unit == "bytes" else (bars.MofNCompleteColumn(), text(unit))
    columns = (text("{task.description}"), bars.BarColumn(), *amount, text("{task.fields[note]}"), *times)
    with bars.Progress(*columns, console=Console(file=sys.stderr), transient=verbose < 2) as bar:
        task = bar.add_task(label, total=total, completed=start, note="")
        yield lambda **changes: bar.update(task, **changes)


def _lines(label: str, total: int | None, unit: str, done: int) -> Callable[..., None]:
    """Lines on stderr, for a pipe: none in the first ten seconds, then one in thirty at most."""
    started, due = time.monotonic(), time.monotonic() + _FIRST_LINE

    def update(advance: int = 0, completed: int | None = None, total: int | None = total, **_: Any) -> None:
        nonlocal done, due
        done, now = done + advance if completed is None else completed, time.monotonic()
        if now >= due:
            due = now + _NEXT_LINE
            amount = f"{done} of {total}" if total is not None else str(done)
            print(f"{printable(label)}: {amount} {unit}, {now - started:.0f} s", file=sys.stderr, flush=True)

    return update

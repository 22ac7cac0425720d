"""Tables of text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True)
class Table:
    """Rows of text under a title.

    Arguments:
        title: what it shows.
        columns: the heads.
        rows: one text per column.
        note: a line below.
        words: heads of columns of words, which stand to the left as the first does.

    Example:
        >>> print(Table("Pets", ["kind", "number"], [["cat", "2"]]).text().strip())
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

"""Tables of text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table as RichTable


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
        """As rich shows it; numbers stand to the right."""
        styles = {"title_justify": "left", "title_style": "bold", "caption_justify": "left", "caption_style": "dim"}
        table = RichTable(title=self.title, caption=self.note or None, box=box.SIMPLE_HEAD, **styles)  # type: ignore[arg-type]
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="left" if place == 0 or column in self.words else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def text(self, width: int = 120) -> str:
        """As plain text."""
        buffer = io.StringIO()
        Console(file=buffer, width=width, color_system=None).print(self.rich())
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"

"""What commands share: printing of lines and listings, errors as one sentence with an exit code, lists in options."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from deep_ensembles._terminal import Listing


def comma_list(text: str | None) -> list[str] | None:
    """The items of an option with commas between them; an item that has a comma is in double quotes."""
    if text is None:
        return None
    return [item.strip() for row in csv.reader([text], skipinitialspace=True) for item in row if item.strip()]


def show(content: str | Listing) -> None:
    """Print a line or a listing at once; when the reader of a pipe has gone, the work goes on in silence."""
    try:
        if isinstance(content, str):
            from deep_ensembles._terminal import printable

            print(printable(content), flush=True)
        else:
            _print_listing(content)
    except BrokenPipeError:
        # What is buffered must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print what is worth knowing beside the result."""
    from deep_ensembles._terminal import printable

    print(f"note: {printable(text)}", file=sys.stderr)


def _print_listing(listing: Listing) -> None:
    """As wide as the terminal or 120 characters; plain where NO_COLOR is set."""
    from rich.console import Console

    class RaisingConsole(Console):
        def on_broken_pipe(self) -> None:
            """Rich would end the program."""
            raise BrokenPipeError

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    width = None if sys.stdout.isatty() else 120
    RaisingConsole(file=sys.stdout, width=width, color_system=colours).print(listing.rich())
    sys.stdout.flush()


@contextmanager
def user_errors(stopped: str = "stopped; nothing was written") -> Iterator[None]:
    """Print what a user can mend as one sentence and exit with code 1; Ctrl-C as another, with code 130."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        from deep_ensembles._terminal import printable

        print(f"error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        print(stopped, file=sys.stderr)
        raise typer.Exit(130) from error

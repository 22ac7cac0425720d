"""How commands speak: tables and lines on standard output, errors in one sentence with an exit code."""

from __future__ import annotations

import csv
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import typer
from rich.console import Console


def module(name: str) -> Any:
    """A part of the package, loaded now; torch alone takes longer than `--help` may."""
    return importlib.import_module(f"deep_ensembles.{name}")


def listed(text: str | None) -> list[str] | None:
    """What a user wrote with commas between, in double quotes where there is a comma within."""
    if text is None:
        return None
    return [each.strip() for row in csv.reader([text], skipinitialspace=True) for each in row if each.strip()]


class _Console(Console):
    """As wide as the terminal or 120 characters; plain where NO_COLOR is set."""

    def __init__(self) -> None:
        colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        super().__init__(file=sys.stdout, width=None if sys.stdout.isatty() else 120, color_system=colours)

    def on_broken_pipe(self) -> None:
        """Rich would end the program."""
        raise BrokenPipeError


def say(what: Any) -> None:
    """A line, or a table, at once; when nobody reads any more, the work goes on in silence."""
    try:
        if isinstance(what, str):
            print(what, flush=True)
        else:
            _Console().print(what.rich())
            sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def one_sentence(stopped: str = "stopped; nothing was written") -> Iterator[None]:
    """What the user can mend is said in one sentence, with exit code 1; Ctrl-C in another, with 130."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        print(stopped, file=sys.stderr)
        raise typer.Exit(130) from error

"""How commands speak: tables and lines on standard output, errors in one sentence with an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console


def module(name: str) -> Any:
    """A part of the package, loaded now; torch alone takes longer than `--help` may."""
    return importlib.import_module(f"deep_ensembles.{name}")


def listed(text: str | None) -> list[str] | None:
    """What a user wrote with commas between."""
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


def print_tables(tables: Iterable[Any]) -> None:
    """Tables, as wide as the terminal or 120 characters."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    for table in tables:
        console.print(table.rich())


def say(what: Any) -> None:
    """A line, or a table, at once; when nobody reads any more, the work goes on in silence."""
    try:
        if isinstance(what, str):
            print(what, flush=True)
        else:
            print_tables([what])
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

"""What commands share: printing of lines and listings, errors as one sentence with an exit code, where work is done."""

import atexit
import csv
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

import deep_ensembles
from deep_ensembles._terminal import Listing, printable

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
Processes = Annotated[int | None, typer.Option(min=1, help="Work in so many processes here.")]
Ray = Annotated[str | None, typer.Option(help="Work on a Ray cluster: its address, or auto.")]


def chosen_execution(processes: int | None, ray: str | None) -> "deep_ensembles.Processes | deep_ensembles.Ray | None":
    """Where the user wants work to be done; None for what is usual."""
    if processes is not None and ray is not None:
        raise typer.BadParameter("--processes and --ray are two places to work; leave one of them out")
    if ray is not None:
        return deep_ensembles.Ray(ray)
    return None if processes is None else deep_ensembles.Processes(processes)


def comma_list(text: str | None) -> list[str] | None:
    """The items of an option with commas between them; an item that has a comma is in double quotes."""
    if text is None:
        return None
    return [item.strip() for row in csv.reader([text], skipinitialspace=True) for item in row if item.strip()]


def show(content: str | Listing) -> None:
    """Print a line or a listing at once; when the reader of a pipe has gone, the work goes on in silence."""
    try:
        print(printable(content) if isinstance(content, str) else _rendered(content), flush=True)
    except BrokenPipeError:
        # What is buffered must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print what is worth knowing beside the result."""
    print(f"note: {printable(text)}", file=sys.stderr)


def _rendered(listing: Listing) -> str:
    """As wide as the terminal or 120 characters; plain where NO_COLOR is set."""
    from rich.console import Console

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120, color_system=colours)
    with console.capture() as captured:  # rich itself would end the program where the reader of a pipe has gone
        console.print(listing.rich())
    return captured.get().removesuffix("\n")


@contextmanager
def user_errors(stopped: Callable[[], str] = lambda: "stopped; nothing was written") -> Iterator[None]:
    """Print what a user can mend as one sentence and exit with code 1, be it an error, Ctrl-C or another's wish to end.

    Signals that end a program stop it as Ctrl-C does, so that it can tidy up and say what is left.

    Arguments:
        stopped: finds out what to say when it is stopped.
    """
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    with _handled(taken, _interrupt):
        try:
            yield
        except (ImportError, MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
            short = _shortage(error)
            text = " ".join(str(error).split()) if short is None else f"{short}; {stopped().removeprefix('stopped; ')}"
            print(f"error: {printable(text)}", file=sys.stderr)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            _say_stopped(stopped)
            raise typer.Exit(1) from error


def _say_stopped(left: Callable[[], str]) -> None:
    """Say what is left; whoever asks again to end is not heard meanwhile, nor while Python itself ends."""
    try:
        ending = [signal.SIGINT, *_ENDING]
        for number in ending:
            atexit.register(signal.signal, number, signal.SIG_IGN)
        with _handled(ending, signal.SIG_IGN):
            print(left(), file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # asked again just before
        _say_stopped(left)


def _shortage(error: BaseException) -> str | None:
    """What to say where memory or a disk is too small, which is said in many ways, and by some not at all."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "there is not enough memory; close other programs, or take fewer rows or columns"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full, or a file may not be so large ({error.strerror})"
    return None


def _interrupt(number: int, frame: Any) -> None:
    """Do what Ctrl-C does."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(number, frame)


@contextmanager
def _handled(numbers: Sequence[int], handler: Any) -> Iterator[None]:
    """Signals handled in another way for a while; only the main thread may."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual or signal.SIG_DFL)

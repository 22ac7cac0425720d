"""Processes that do not outlive the test that starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

not_on_windows = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no terminals, signals and links as other systems have them"
)


@contextmanager
def started(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone afterwards, however the test ends: one left behind fails whichever test it is collected in."""
    process = subprocess.Popen(command, **settings)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def printed(code: str, *arguments: object, **environment: str) -> str:
    """What a Python program that must succeed prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown_by(command: Sequence[str], terminal: bool, stream: str = "stderr", **environment: str) -> str:
    """What a process that must succeed writes to standard error (or output), be it a terminal or a pipe."""
    reader, writer = os.openpty() if terminal else os.pipe()
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    shown, surroundings = b"", {**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment}
    with started(command, env=surroundings, **streams) as process:
        os.close(writer)
        try:
            while chunk := os.read(reader, 65536):
                shown += chunk
        except OSError:  # a closed terminal
            pass
        os.close(reader)
        assert process.wait() == 0
    return shown.decode()

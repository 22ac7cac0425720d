"""Processes that do not outlive the test that starts them."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone afterwards, however the test ends: one left behind fails whichever test it is collected in."""
    process = subprocess.Popen(command, **settings)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def shown_by(command: Sequence[str], terminal: bool) -> str:
    """What a process that must succeed writes to standard error, be it a terminal or a pipe."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    shown = b""
    with started(command, stderr=writer, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(writer)
        try:
            while chunk := os.read(reader, 65536):
                shown += chunk
        except OSError:  # a closed terminal
            pass
        os.close(reader)
        assert process.wait() == 0
    return shown.decode()

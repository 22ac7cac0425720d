"""Processes that do not outlive the test that starts them."""

from __future__ import annotations

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

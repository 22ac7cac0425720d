"""Checkpoints: the state of a training in one safetensors file, to go on from after a crash."""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles._files import file_system, location, write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often the state of a training is written, and whether an existing one is taken up.

    Arguments:
        path: the file, or its URL, as in `s3://bucket/state`.
        every_epochs: write after so many epochs.
        every_seconds: write when so many seconds have passed, within an epoch too.
        resume: go on from the file if it exists, with the result that an undisturbed training has, bit for bit.
    """

    path: str | os.PathLike[str]
    every_epochs: int | None = None
    every_seconds: float | None = 60.0
    resume: bool = True

    def __post_init__(self) -> None:
        require(isinstance(self.path, (str, os.PathLike)), "path", "a file name", self.path)
        object.__setattr__(self, "path", location(self.path))
        check_integer("every_epochs", self.every_epochs, low=1, optional=True)
        check_number("every_seconds", self.every_seconds, low=0, optional=True)

    def numbered(self, number: int | str) -> "Checkpoint":
        """The same for one of several trainings, in a file beside."""
        return replace(self, path=f"{os.fspath(self.path)}-{number}")


@contextmanager
def postponed_interrupts(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait, if that is wanted, until the state is whole and written; a second one is obeyed at once.

    Yields a function that returns whether there was one. Only where Python's own handler is in place, which is what raises
    `KeyboardInterrupt`.
    """
    pressed = False

    def note(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            signal.default_int_handler(number, frame)
        pressed = True

    is_main = threading.current_thread() is threading.main_thread()
    with ExitStack() as afterwards:
        if wanted and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            afterwards.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, note))
        yield lambda: pressed
    if pressed:
        raise KeyboardInterrupt


@dataclass
class CheckpointWriter:
    """Writes when it is time to."""

    settings: Checkpoint
    fingerprint: str
    _last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.path = path = location(self.settings.path)
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(f"the checkpoint {path} cannot be written: its folder is read-only; take another")

    def due(self, epoch: int | None) -> bool:
        """Whether to write now; `epoch` is the number of epochs done, or None within an epoch."""
        every, seconds = self.settings.every_epochs, self.settings.every_seconds
        is_late = seconds is not None and time.monotonic() - self._last >= seconds
        return is_late or (epoch is not None and every is not None and epoch % every == 0)

    def write(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the file by this state, at once or not at all."""
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        metadata = {"fingerprint": self.fingerprint, "facts": json.dumps(facts)}
        metadata["checksum"] = _checksum(stored, metadata["facts"])
        try:
            write_atomically(self.path, safetensors.torch.save(stored, metadata))
        except OSError as error:
            system, inside = file_system(self.path)
            left = "; the one before is intact" * system.exists(inside)
            reason = f"the checkpoint {self.path} cannot be written: {error.strerror or error}{left}"
            raise OSError(error.errno, reason) from error
        self._last = time.monotonic()

    def read(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The state to go on from, or None if there is none."""
        path, (system, inside) = self.path, file_system(self.path)
        if not self.settings.resume or not system.exists(inside):
            return None
        try:
            content = system.cat_file(inside)
            tensors = safetensors.torch.load(content)
            header = content[8 : 8 + int.from_bytes(content[:8], "little")]
            metadata = json.loads(header).get("__metadata__", {})
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(f"the checkpoint {path} cannot be read ({error}); delete it to start anew") from error
        if metadata.get("checksum") != _checksum(tensors, metadata.get("facts", "")):
            raise ValueError(f"the checkpoint {path} is damaged (its checksum does not fit); delete it to start anew")
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError(f"the checkpoint {path} belongs to another training (other data, seed or settings); "
                             "delete it to start anew, or use another file")  # fmt: skip
        return {name: tensor.to(device) for name, tensor in tensors.items()}, json.loads(metadata["facts"])


def _checksum(tensors: Mapping[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()

"""Python objects as bytes and arrays, so that what is large is copied once or only looked at."""

import io
import pickle
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

_REPORT_SECONDS = 0.2


class _Pickler(cloudpickle.Pickler):
    """Writes tensors as arrays, which pickle can leave where they are."""

    def reducer_override(self, content: Any) -> Any:
        if type(content) is Tensor and content.device.type == "cpu" and not content.requires_grad:
            with suppress(RuntimeError, TypeError):  # a tensor of a kind that arrays do not have
                return _tensor, (content.contiguous().numpy(),)
        return super().reducer_override(content)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def packed(content: Any, apart: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Bytes that `unpacked` makes the same content of, in whichever process.

    What the main script or a notebook defines travels with its code.

    Arguments:
        apart: called with the memory of each array, which is then not among the bytes.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5, buffer_callback=apart).dump(content)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
        raise TypeError(f"what is trained must be sent to another process, which it cannot be ({reason}); let the factory "
                        "make it, or pass `execution=InProcess()`") from error  # fmt: skip
    return file.getvalue()


def packed_apart(content: Any) -> tuple[bytes, list[np.ndarray]]:
    """The same with the memory of arrays apart, for `unpacked` to share."""
    arrays: list[np.ndarray] = []
    return packed(content, lambda memory: arrays.append(np.frombuffer(memory.raw(), np.uint8))), arrays


def unpacked(content: bytes, buffers: Sequence[Any] = ()) -> Any:
    """What `packed` was given. Arrays that were apart share the memory of the buffers."""
    return pickle.loads(content, buffers=buffers)


def outcome(work: Any, item: bytes, report: Any) -> tuple[str, Any]:
    """What became of an item in a worker, ready to be sent: "result" or "error", and its content for `result_of`."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = work(unpacked(item)) if report is None else work(unpacked(item), report)
        return "result", packed((result, [(str(warning.message), warning.category) for warning in caught]))
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return "error", (error, traceback.format_exc())


def result_of(kind: str, content: Any) -> Any:
    """The result of an outcome; errors and warnings of the worker are those of here."""
    if kind == "error":
        error, text = content
        raise error from RuntimeError(f"in a worker process:\n{text}")
    result, warned = unpacked(content)
    for message, category in warned:
        warnings.warn(message, category, stacklevel=4)
    return result


def seldom(send: Callable[[int, str], None]) -> Callable[[int, str], None]:
    """Sends how far work is, not too often."""
    last = 0.0

    def report(done: int, note: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _REPORT_SECONDS:
            last = time.monotonic()
            send(done, note)

    return report

"""Files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from deep_ensembles import __version__


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place when all is written and on disk; if anything fails, nothing has changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file at once."""
    with replacing(path) as file:
        file.write(content)


def file_sum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


FORMAT = "deep-ensembles"
FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
_BLANK = "0" * 64


class ModelFileError(ValueError):
    """A model folder is missing, damaged, of a newer format, or does not fit the network."""


def write_model(path: str | os.PathLike[str], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model folder; an existing model stands until the new one is complete, anything else is left alone."""
    target = Path(path).resolve()
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    beside.mkdir()
    try:
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        content = save_tensors(stored)
        write_atomically(beside / TENSORS, content)
        write_atomically(beside / CONFIG, _sealed({**_header(content, stored), **config}).encode())
        _swap(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_replaceable(target: Path) -> None:
    """Raise if a model cannot be written there."""
    if target.exists() and not _replaceable(target):
        raise ModelFileError(f"{target} exists and is not a model folder; choose another path")


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and tensors of a model folder, after every check."""
    folder = Path(path)
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise ModelFileError(f"{folder} is not a complete model folder: {name} is missing")
    try:
        written, content = (folder / CONFIG).read_bytes(), (folder / TENSORS).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be read ({error})") from error
    config = _opened(written, folder / CONFIG)
    if hashlib.sha256(content).hexdigest() != config["tensors"]["sha256"]:
        raise ModelFileError(f"{folder / TENSORS} is damaged or was changed: its checksum is not the one in {CONFIG}")
    tensors = load_tensors(content)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if shapes != config["tensors"]["shapes"]:
        raise ModelFileError(f"{folder / TENSORS} holds tensors of other names or shapes than {CONFIG} says")
    return config, tensors


def _header(content: bytes, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "checksum": _BLANK,
        "versions": {"deep-ensembles": __version__, "torch": str(torch.__version__)},
        "tensors": {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "shapes": shapes},
    }


def _sealed(config: Mapping[str, Any]) -> str:
    """JSON text whose `checksum` is that of the text itself with zeros in the checksum's place."""
    text = json.dumps(config, indent=2, allow_nan=False) + "\n"
    return text.replace(_BLANK, hashlib.sha256(text.encode()).hexdigest(), 1)


def _opened(content: bytes, path: Path) -> dict[str, Any]:
    damaged = ModelFileError(f"{path} is damaged or was changed: its checksum does not fit")
    try:
        config = json.loads(content.decode())
    except ValueError as error:
        raise damaged from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} does not describe a {FORMAT} model")
    version, checksum = config.get("format_version"), config.get("checksum")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ModelFileError(f"{path} has format version {version}, this library reads up to {FORMAT_VERSION}; update it")
    if not isinstance(checksum, str) or len(checksum) != len(_BLANK):
        raise damaged
    blanked = content.replace(checksum.encode(), _BLANK.encode(), 1)
    if hashlib.sha256(blanked).hexdigest() != checksum:
        raise damaged
    return config


def _replaceable(target: Path) -> bool:
    if not target.is_dir():
        return False
    names = {entry.name for entry in target.iterdir()}
    return not names or (CONFIG in names and names <= {CONFIG, TENSORS})


def _swap(beside: Path, target: Path) -> None:
    """Put the new folder in place; the old one stands aside until then, and comes back if that fails."""
    if not target.exists():
        os.replace(beside, target)
        return
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    os.replace(target, aside)
    try:
        os.replace(beside, target)
    except OSError:
        os.replace(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def json_ready(content: Any) -> Any:
    """Content as JSON can say it: arrays and tuples as lists, numbers that are not finite as null.

    Example:
        >>> json_ready({"scores": torch.tensor([1.0, torch.nan]), 2: (0, float("inf"))})
        {'scores': [1.0, None], '2': [0, None]}
    """
    if hasattr(content, "tolist"):
        content = content.tolist()
    if isinstance(content, Mapping):
        return {str(name): json_ready(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [json_ready(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

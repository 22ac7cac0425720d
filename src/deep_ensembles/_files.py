"""Files that are there whole or not at all; model folders, sealed by checksums; content for JSON.

torch is imported where tensors are, so that what a folder says of itself can be read at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import safetensors

from deep_ensembles import __version__
from deep_ensembles._checks import require

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "deep-ensembles"
FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
_BLANK = "0" * 64
_TENSOR_FILE = re.compile(r"model(-[0-9a-f]{32})?\.safetensors")
_UNFINISHED = re.compile(r"\.config\.json\.[0-9a-f]{32}\.tmp")  # there from the start of a save to its end
_MODEL_FILE = re.compile(r"(config\.json|model(-[0-9a-f]{32})?\.safetensors)|\.(config|model)[-.0-9a-z]*\.tmp")
_MOST_CONFIG_BYTES = 2**28


def location(path: str | os.PathLike[str]) -> Path | str:
    """A path; or, as text, the URL of a file elsewhere, as in `s3://bucket/file`, which fsspec opens.

    Example:
        >>> location("file:///tmp/state").name, location("s3://bucket/state")
        ('state', 's3://bucket/state')
    """
    text = os.fspath(path)
    if "://" not in text:
        return Path(text)
    return Path(file_system(text)[1]) if text.startswith(("file:", "local:")) else text


def file_system(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it."""
    import fsspec

    return fsspec.url_to_fs(os.fspath(path))


@contextmanager
def replacing(path: Path | str) -> Iterator[BinaryIO]:
    """A file to write that takes its place when all is written and on disk; if anything fails, nothing has changed."""
    if isinstance(path, str):
        system, place = file_system(path)
        with system.transaction, system.open(place, "wb") as file:
            yield file
        return
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


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write a whole file at once."""
    with replacing(path) as file:
        file.write(content)


class ModelFileError(ValueError):
    """A model folder is missing, damaged, of a newer format, or does not fit the network."""


@contextmanager
def model_file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong while a model is made from a folder is a `ModelFileError`."""
    try:
        yield
    except (ModelFileError, ImportError):
        raise
    except Exception as error:  # Python, torch and NumPy raise many kinds for data that they do not expect
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{path} holds no model that this version can load: {reason:.300}") from error


def write_model(path: str | os.PathLike[str], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model folder; an existing model stands until the new one is complete, anything else is left alone.

    A new folder appears whole, under its name. In an existing one the tensors come first, in a file of another name than the
    old model's. Then the configuration, which names that file, takes its place: at every instant there is one whole model.
    """
    target = Path(path).resolve()
    folder = target if target.exists() else target.with_name(f".{target.name}.tmp")
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with suppress(FileExistsError):  # also where another saver renames it at that moment
        folder.mkdir(parents=True)
    try:
        with _locked(folder) as is_locked:
            is_late = folder != target and target.exists()
            if not is_late:
                check_replaceable(folder)
                _write_files(folder, config, stored, is_locked)
                folder.rename(target)  # which it may be already
    finally:
        with suppress(OSError):  # it was renamed, or holds a model
            folder.rmdir()
    if is_late:  # another saver was faster; its folder may be the one whose lock we had
        write_model(target, config, tensors)


def _write_files(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor], is_locked: bool) -> None:
    import safetensors.torch

    old, content = _names(folder), safetensors.torch.save(tensors)
    file = f"model-{uuid.uuid4().hex}.safetensors" if old else TENSORS
    try:
        with replacing(folder / CONFIG) as description:
            description.write(_sealed({**_header(file, content, tensors), **config}))
            write_atomically(folder / file, content)
    except BaseException:
        (folder / file).unlink(missing_ok=True)
        raise
    another_saves = not is_locked and any(map(_UNFINISHED.fullmatch, old))
    for name in old:
        if _MODEL_FILE.fullmatch(name) and name != CONFIG and not another_saves:
            with suppress(OSError):  # Windows keeps a file that is being read; the next saver tries again
                (folder / name).unlink()


def check_replaceable(target: Path) -> None:
    """Raise if a model cannot be written there."""
    names = _names(target)
    others = [name for name in names if not _MODEL_FILE.fullmatch(name)]
    by_us = holds_model(target) or any(map(_UNFINISHED.fullmatch, names)) or not {CONFIG, TENSORS} & {*names}
    if others and holds_model(target):
        raise ModelFileError(f"{target} holds a model and {others[0]}, which is no part of it; choose another path")
    if target.is_file() or others or not by_us:
        raise ModelFileError(f"{target} exists and is not a model folder; choose another path")


def holds_model(folder: Path) -> bool:
    """Whether a model was written to a folder."""
    try:
        with open(folder / CONFIG, "rb") as file:
            return f'"format": "{FORMAT}"'.encode() in file.read(100)
    except OSError:
        return False


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and tensors of a model folder, if they are what `write_model` wrote."""
    folder = Path(path)
    while True:
        written = _content(_file(folder, CONFIG), _MOST_CONFIG_BYTES)
        try:
            config = _opened(written, folder / CONFIG)
            return config, _tensors(folder, config["tensors"])
        except (ModelFileError, OSError, safetensors.SafetensorError):
            if _content(_file(folder, CONFIG), _MOST_CONFIG_BYTES) == written:
                raise
            # Another model was saved there meanwhile.


def read_config(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """The configuration of a model folder and the size of its files in bytes; tensors are not looked into."""
    folder = Path(path)
    file = _file(folder, CONFIG)
    config = _opened(_content(file, _MOST_CONFIG_BYTES), file)
    return config, file.stat().st_size + _tensor_file(folder, config["tensors"]).stat().st_size


def _file(folder: Path, name: str) -> Path:
    """A file of a model folder, which must be there."""
    if not (folder / name).is_file():
        raise ModelFileError(f"{folder} is not a complete model folder: {name} is missing")
    return folder / name


def _tensor_file(folder: Path, expected: Mapping[str, Any]) -> Path:
    name = expected.get("file", TENSORS)
    require(isinstance(name, str) and bool(_TENSOR_FILE.fullmatch(name)), "file", f"a name like {TENSORS}", name)
    return _file(folder, name)


def _content(file: Path, most_bytes: int) -> bytes:
    if file.stat().st_size > most_bytes:
        raise ModelFileError(f"{file} is damaged or was changed: it is longer than it should be")
    return file.read_bytes()


def _tensors(folder: Path, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    import safetensors.torch

    file = _tensor_file(folder, expected)
    content = _content(file, expected["bytes"])
    if len(content) != expected["bytes"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise ModelFileError(f"{file} is damaged or was changed: its checksum is not the one in {CONFIG}")
    tensors = safetensors.torch.load(content)
    if {name: list(tensor.shape) for name, tensor in tensors.items()} != expected["shapes"]:
        raise ModelFileError(f"{file} holds tensors of other names or shapes than {CONFIG} says")
    return tensors


def _header(file: str, content: bytes, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    import torch

    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    digest = hashlib.sha256(content).hexdigest()
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "checksum": _BLANK,
        "versions": {"deep-ensembles": __version__, "torch": str(torch.__version__)},
        "tensors": {"file": file, "sha256": digest, "bytes": len(content), "shapes": shapes},
    }


def _sealed(config: Mapping[str, Any]) -> bytes:
    """JSON whose `checksum` is that of the text itself with zeros in the checksum's place."""
    text = json.dumps(config, indent=2, allow_nan=False) + "\n"
    return text.replace(_BLANK, hashlib.sha256(text.encode()).hexdigest(), 1).encode()


def _opened(content: bytes, path: Path) -> dict[str, Any]:
    """The configuration in a text, if that is to the letter what `_sealed` makes of it."""
    damaged = ModelFileError(f"{path} is damaged or was changed: its checksum does not fit")
    try:
        config = json.loads(content)
        written = _sealed({**config, "checksum": _BLANK})
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged from error
    if config.get("format") != FORMAT:
        raise ModelFileError(f"{path} does not describe a {FORMAT} model")
    version = config.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFileError(f"{path} has format version {version!r:.50}; update this library (it reads {FORMAT_VERSION})")
    if written != content:
        raise damaged
    return dict(config)


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Wait until no other process saves to a folder; False if there are no locks. One that is killed lets go of its lock."""
    is_locked = False
    with ExitStack() as held:
        with suppress(ImportError, OSError):  # Windows and some file systems have no locks
            import fcntl

            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
            is_locked = True
        yield is_locked


def json_ready(content: Any) -> Any:
    """Content as JSON can say it: arrays and tuples as lists, numbers that are not finite as null.

    Example:
        >>> json_ready({"scores": [1.0, float("nan")], 2: (0, float("inf"))})
        {'scores': [1.0, None], '2': [0, None]}
    """
    if hasattr(content, "tolist"):
        content = content.tolist()
    if isinstance(content, Mapping):
        return {str(name): json_ready(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [json_ready(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

"""Files that are there whole or not at all; model folders, sealed by checksums; content for JSON.

torch is imported where tensors are, so that what a folder says of itself can be read at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
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

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = "deep-ensembles"
FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
_BLANK = "0" * 64
_TENSOR_FILE = re.compile(r"model(-(?P<key>[0-9a-f]{32}))?\.safetensors")
_PARTLY_WRITTEN = re.compile(r"\.?(config\.json|model\.safetensors)(\.[0-9a-f]{32}\.tmp)?")
_MOST_CONFIG_BYTES = 2**28
# What Python, torch and NumPy raise for data of another kind than they expect.
_MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
              ValueError, safetensors.SafetensorError)  # fmt: skip


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
    except ModelFileError:
        raise
    except _MALFORMED as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{path} holds no model that this version can load: {reason:.300}") from error


def write_model(path: str | os.PathLike[str], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model folder; an existing model stands until the new one is complete, anything else is left alone.

    A new folder appears whole, under its name. In an existing one the tensors come first, in a file of another name, and the
    configuration, which names that file, is then replaced: at every instant there is one whole model to load.
    """
    import safetensors.torch

    target = Path(path).resolve()
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(stored)
    with ExitStack() as held:
        beside, key = _folder_beside(target, held)
        write_atomically(beside / TENSORS, content)
        write_atomically(beside / CONFIG, _sealed({**_header(TENSORS, content, stored), **config}))
        first = _renamed(beside, target)
        leftovers = _leftovers(target, first, held)
        if not first:
            file = f"model-{key}.safetensors"
            write_atomically(beside / CONFIG, _sealed({**_header(file, content, stored), **config}))
            try:  # the old model is whole until the configuration is replaced
                os.replace(beside / TENSORS, target / file)
                os.replace(beside / CONFIG, target / CONFIG)
            except OSError:
                (target / file).unlink(missing_ok=True)
                raise
        for leftover in leftovers:
            _remove(leftover)


def check_replaceable(target: Path) -> None:
    """Raise if a model cannot be written there."""
    if not target.exists():
        return
    names = _names(target)
    ours = target.is_dir() and all(name == CONFIG or _TENSOR_FILE.fullmatch(name) for name in names)
    if not ours or (names and not holds_model(target) and (TENSORS in names or CONFIG in names)):
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
        written = _content(folder, CONFIG, _MOST_CONFIG_BYTES)
        try:
            config = _opened(written, folder / CONFIG)
            return config, _tensors(folder, config["tensors"])
        except (ModelFileError, safetensors.SafetensorError):
            if _content(folder, CONFIG, _MOST_CONFIG_BYTES) == written:
                raise
            # Another model was saved there meanwhile.


def read_config(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """The configuration of a model folder and the size of its files in bytes; tensors are not looked into."""
    folder = Path(path)
    config = _opened(_content(folder, CONFIG, _MOST_CONFIG_BYTES), folder / CONFIG)
    files = CONFIG, _tensor_file(config["tensors"])
    _check_there(folder, files[1])
    return config, sum((folder / name).stat().st_size for name in files)


def _tensor_file(expected: Mapping[str, Any]) -> str:
    file = expected.get("file", TENSORS)
    require(isinstance(file, str) and bool(_TENSOR_FILE.fullmatch(file)), "file", f"a name like {TENSORS}", file)
    return str(file)


def _check_there(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise ModelFileError(f"{folder} is not a complete model folder: {name} is missing")


def _content(folder: Path, name: str, most_bytes: int) -> bytes:
    _check_there(folder, name)
    try:
        if (folder / name).stat().st_size > most_bytes:
            raise ModelFileError(f"{folder / name} is damaged or was changed: it is longer than it should be")
        return (folder / name).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be read ({error})") from error


def _tensors(folder: Path, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    import safetensors.torch

    file = _tensor_file(expected)
    require(type(expected["bytes"]) is int, "bytes", "an integer", expected["bytes"])
    content = _content(folder, file, expected["bytes"])
    if len(content) != expected["bytes"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise ModelFileError(f"{folder / file} is damaged or was changed: its checksum is not the one in {CONFIG}")
    tensors = safetensors.torch.load(content)
    if {name: list(tensor.shape) for name, tensor in tensors.items()} != expected["shapes"]:
        raise ModelFileError(f"{folder / file} holds tensors of other names or shapes than {CONFIG} says")
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
    damaged = ModelFileError(f"{path} is damaged or was changed: its checksum does not fit")
    try:
        config = json.loads(content.decode(), object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} does not describe a {FORMAT} model")
    version, checksum = config.get("format_version"), config.get("checksum")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{path} must have a format version from 1 to {FORMAT_VERSION}, got {version!r:.50}")
    if version > FORMAT_VERSION:
        raise ModelFileError(f"{path} has format version {version}, this library reads up to {FORMAT_VERSION}; update it")
    blank = content.replace(str(checksum).encode(), _BLANK.encode(), 1)
    if len(str(checksum)) != len(_BLANK) or hashlib.sha256(blank).hexdigest() != checksum:
        raise damaged
    return config


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name appears twice")
    return entries


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number


def _renamed(beside: Path, target: Path) -> bool:
    """Whether the folder could take its place, where there is none yet or an empty one."""
    try:
        beside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        return False
    return True


# Savers that are at work hold a lock on their folder; where one was killed, the system has let the lock go.


def _folder_beside(target: Path, held: ExitStack) -> tuple[Path, str]:
    """A new folder beside the target and the key in its name, gone when `held` is closed unless it was renamed."""
    for _ in range(3):  # in case another saver takes it for abandoned before it is locked
        key = uuid.uuid4().hex
        beside = target.with_name(f".{target.name}.{key}.tmp")
        beside.mkdir()
        is_locked = _lock(beside, held)
        held.callback(shutil.rmtree, beside, ignore_errors=True)
        if is_locked and beside.exists():
            break
    return beside, key


def _leftovers(target: Path, first: bool, held: ExitStack) -> list[Path]:
    """What a new model makes useless: the tensors of the old one, and what killed savers left. One saver at a time."""
    if not first:
        _lock(target, held, wait=True)
    names = [] if first else _names(target)
    files = [(target / name, match["key"]) for name in names if (match := _TENSOR_FILE.fullmatch(name))]
    beside = re.compile(rf"\.{re.escape(target.name)}\.(?P<key>[0-9a-f]{{32}})\.(tmp|old)")
    folders = {target.with_name(name): match["key"] for name in _names(target.parent) if (match := beside.fullmatch(name))}
    abandoned = [folder for folder in folders if _lock(folder, held)]
    in_use = {key for folder, key in folders.items() if folder not in abandoned}
    return [*(file for file, key in files if key not in in_use), *abandoned]


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _lock(folder: Path, held: ExitStack, wait: bool = False) -> bool:
    """Lock a folder until `held` is closed; False if another process has it, or there are no locks."""
    if fcntl is None:
        return False
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        held.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _remove(leftover: Path) -> None:
    """Delete a tensor file, or a folder that holds nothing but the files of a model."""
    if not leftover.is_dir():
        with suppress(OSError):  # Windows keeps a file that is being read; the next saver tries again
            leftover.unlink(missing_ok=True)
    elif all(_PARTLY_WRITTEN.fullmatch(name) for name in _names(leftover)):
        shutil.rmtree(leftover, ignore_errors=True)


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

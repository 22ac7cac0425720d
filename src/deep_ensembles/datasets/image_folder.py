"""Pictures in folders, one folder per class, as ImageNet has them."""

from __future__ import annotations

import csv
import os
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.utils.data import Dataset

from deep_ensembles._checks import check_flag, check_integer, require
from deep_ensembles._random import Purpose, stream
from deep_ensembles.datasets._dataset import DatasetError
from deep_ensembles.datasets._pictures import ENDINGS, read_picture


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Pictures of class folders `<path>/<part>/<class>/…`, read one by one when they are asked for.

    Pictures of any kind become RGB; their shorter side is brought to `image_size`, and the square in the middle taken.

    Arguments:
        path: a folder, or a zip file of one.
        part: the folder in it that holds the class folders; "" if it holds them itself.
        classes: these only, numbered in this order; by default all, sorted by name.
        image_size: height and width in pixels.
        augment: shift by up to an eighth at random, mirrored at the borders, and flip every other picture. An ensemble in
            training augments by its members' seeds and the epoch, and leaves validation rows alone; a data loader of
            your own augments by torch's random numbers.
        broken: what to do with files that are no pictures: "refuse" them when they are read, or "skip" them, for which
            all are read once, now, and a warning names those left out.

    Shape:
        items: a float tensor `[3, image_size, image_size]` in [0, 1], and a class number
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        part: str = "train",
        classes: Sequence[str] | None = None,
        image_size: int = 64,
        augment: bool = False,
        broken: str = "refuse",
    ) -> None:
        check_integer("image_size", image_size, low=1)
        check_flag("augment", augment)
        require(broken in ("refuse", "skip"), "broken", "'refuse' or 'skip'", broken)
        self.path, self.image_size, self.augment = Path(path), image_size, augment
        self._archive: tuple[int, zipfile.ZipFile] | None = None
        found = self._files_by_class(part.strip("/"))
        self.classes = tuple(sorted(found) if classes is None else classes)
        missing = [name for name in self.classes if name not in found]
        if missing or not found:
            wanted = f"class {missing[0]}" if missing else "class folders with pictures"
            raise DatasetError(f"{self.path} has no {wanted} in {part!r}; it has {', '.join(sorted(found)[:5]) or 'none'}")
        self.files = [(file, number) for number, name in enumerate(self.classes) for file in sorted(found[name])]
        if broken == "skip":
            self._leave_out(self.check())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, number = self.files[index]
        pixels = self._pixels(file)
        if self.augment and (move := _move(index)) is not None:
            pixels = _moved(pixels, *move)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float().div_(255), number

    def array(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All pictures `[image, height, width, 3]` in memory, as they are, and their class numbers."""
        images = np.empty((len(self), self.image_size, self.image_size, 3), np.uint8)
        for row, (file, _) in enumerate(self._shown(self.files)):
            images[row] = self._pixels(file)
        return images, np.array([number for _, number in self.files], np.int64)

    def check(self) -> list[str]:
        """Read every file; the names of those that are no pictures."""
        return [file for file, _ in self._shown(self.files) if not self._is_picture(file)]

    def _is_picture(self, file: str) -> bool:
        try:
            self._pixels(file)
        except DatasetError:
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_archive": None}

    def _leave_out(self, broken: list[str]) -> None:
        if broken:
            warnings.warn(f"{self.path}: left out {len(broken)} broken pictures: {', '.join(broken)}", stacklevel=3)
            self.files = [each for each in self.files if each[0] not in set(broken)]
        if not self.files:
            raise DatasetError(f"{self.path} has no picture that can be read")

    def _files_by_class(self, part: str) -> dict[str, list[str]]:
        if not self.path.exists():
            raise DatasetError(f"{self.path} is not there")
        prefix = f"{part}/" if part else ""
        found: dict[str, list[str]] = {}
        for file in self._names(part):
            name, _, rest = file.removeprefix(prefix).partition("/")
            hidden = any(each.startswith((".", "__")) for each in (name, rest.rpartition("/")[2]))
            if file.startswith(prefix) and file.lower().endswith(ENDINGS) and rest and not hidden:
                found.setdefault(name, []).append(file)
        return found

    def _names(self, part: str) -> Iterator[str]:
        if self.path.is_file():
            yield from self._zip().namelist()
            return
        for folder, _, files in os.walk(self.path / part):
            inside = Path(folder).relative_to(self.path)
            yield from ((inside / file).as_posix() for file in files)

    def _zip(self) -> zipfile.ZipFile:
        """The archive, opened in this process: processes that share an open file read from each other's places."""
        if self._archive is None or self._archive[0] != os.getpid():
            try:
                self._archive = os.getpid(), zipfile.ZipFile(self.path)
            except zipfile.BadZipFile as error:
                raise DatasetError(f"{self.path} is neither a folder nor a zip file ({error})") from error
        return self._archive[1]

    def _pixels(self, file: str) -> NDArray[np.uint8]:
        try:
            content = self._zip().read(file) if self.path.is_file() else (self.path / file).read_bytes()
        except (OSError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{self.path}: {file} cannot be read ({error})") from error
        return read_picture(content, f"{self.path}: {file}", size=self.image_size)

    def _shown(self, files: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
        """With a bar on a terminal."""
        console, quiet = Console(file=sys.stderr), not sys.stderr.isatty()
        return track(files, f"reading {self.path.name}", console=console, transient=True, disable=quiet)


def class_groups(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Classes by group, such as dogs and others, from a table with the columns `wnid` and `group` separated by tabs."""
    groups: dict[str, tuple[str, ...]] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                groups[row["group"]] = (*groups.get(row["group"], ()), row["wnid"])
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not a table with the columns `wnid` and `group` ({error})") from error
    return groups


def _move(index: int) -> tuple[float, float, bool] | None:
    """How to move a picture, reproducibly if the row number says what it is drawn for; None if it is to be left alone."""
    if not hasattr(index, "draw"):
        down, right, flip = torch.rand(3).tolist()
    elif index.draw is None:
        return None
    else:
        seed, epoch = index.draw
        down, right, flip = stream(seed, Purpose.AUGMENTATION, epoch, int(index)).random(3).tolist()
    return down, right, flip < 0.5


def _moved(pixels: NDArray[np.uint8], down: float, right: float, flip: bool) -> NDArray[np.uint8]:
    size = len(pixels)
    reach = size // 8
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    top, left = (int(each * (2 * reach + 1)) for each in (down, right))
    cut = padded[top : top + size, left : left + size]
    return cut[:, ::-1] if flip else cut

"""Pictures in folders, one folder per class, as ImageNet has them; the only file that knows the image library."""

import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from deep_ensembles._checks import check_flag, check_integer, require
from deep_ensembles._random import Purpose, stream
from deep_ensembles._terminal import progress


class DatasetError(ValueError):
    """A data set is missing, damaged, could not be fetched, or is not what its name promises."""


ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_picture(content: bytes, file: str, mode: str = "RGB", size: int | None = None) -> NDArray[np.uint8]:
    """A picture of any kind (grey, palette, CMYK, …) in one mode.

    Arguments:
        content: of the file.
        file: its name, for people.
        mode: "RGB" or "L" for grey.
        size: if given, the shorter side is brought to so many pixels, and the square in the middle taken.

    Shape:
        `[height, width, 3]`, or `[height, width]` for grey
    """
    library = _pillow()
    try:
        with library.open(io.BytesIO(content)) as opened:
            picture = opened.convert("RGBA") if "transparency" in opened.info else _eight_bits(opened, library)
            picture = picture.convert(mode)
    except Exception as error:  # the decoders of damaged files raise many kinds
        raise DatasetError(f"{file} is broken or not a picture ({error})") from error
    return np.array(picture if size is None else _fitted(picture, size, library))


def _eight_bits(picture: Any, library: Any) -> Any:
    """Grey pictures of 16 bits are brought to 8, which the library would cut off at white."""
    if picture.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose range is not known")
    if not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture).astype(np.int64)
    deep = picture.mode.startswith("I;16") or values.max() > 255
    return library.fromarray((values.clip(0, 65535) // 257).astype(np.uint8)) if deep else picture


def _fitted(picture: Any, size: int, library: Any) -> Any:
    if picture.size == (size, size):
        return picture
    factor = size / min(picture.size)
    wide, high = (max(size, round(side * factor)) for side in picture.size)
    left, top = (wide - size) // 2, (high - size) // 2
    smooth = picture.resize((wide, high), library.Resampling.BILINEAR)
    return smooth.crop((left, top, left + size, top + size))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need Pillow: pip install 'deep-ensembles[images]'") from error
    return Image


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Pictures of class folders `<path>/<part>/<class>/…`, read one by one when they are asked for.

    Pictures of any kind become RGB; their shorter side is brought to `image_size`, and the square in the middle taken.

    Arguments:
        path: a folder, or a zip file of one.
        part: the folder in it that holds the class folders; "" if it holds them itself.
        classes: these only, numbered in this order; by default all, sorted by name.
        image_size: height and width in pixels.
        augment: shift by up to an eighth at random, mirrored at the borders, and flip half of the time. An ensemble in
            training augments by its members' seeds and the epoch, and leaves validation rows alone; a data loader of
            your own augments by torch's random numbers.
        broken: what to do with files that are no pictures: "refuse" them when they are read, or "skip" them, for which
            all are read once, now, and a warning names those left out.

    Shape:
        items: a float tensor `[3, image_size, image_size]` in [0, 1], and a class number

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         Path(folder, "train", name).mkdir(parents=True)
        ...         Image.new("RGB", (80, 60)).save(Path(folder, "train", name, "0.png"))
        ...     image, number = ImageFolder(folder, image_size=32)[1]
        >>> image.shape, number
        (torch.Size([3, 32, 32]), 1)
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
        check_flag("augment", augment)
        check_integer("image_size", image_size, low=1)
        require(broken in ("refuse", "skip"), "broken", "'refuse' or 'skip'", broken)
        self.path, self.image_size, self.augment = Path(path), image_size, augment
        self._archive: tuple[int, zipfile.ZipFile] | None = None
        by_class = self._search(part.strip("/"))
        self.classes = tuple(sorted(by_class) if classes is None else classes)
        missing = [name for name in self.classes if name not in by_class]
        if missing or not by_class:
            wanted = f"class {missing[0]}" if missing else "class folders with pictures"
            names = ", ".join(sorted(by_class)[:5]) or "none"
            raise DatasetError(f"{self.path} has no {wanted} in {part!r}; it has {names}")
        self.files = [(file, number) for number, name in enumerate(self.classes) for file in sorted(by_class[name])]
        if broken == "skip" and (bad := set(self.check())):
            self.files = [(file, number) for file, number in self.files if file not in bad]
            warnings.warn(f"{self.path}: left out {len(bad)} broken pictures: {', '.join(sorted(bad))}", stacklevel=2)
            if not self.files:
                raise DatasetError(f"{self.path} has no picture that can be read")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, number = self.files[index]
        pixels = _moved(self.pixels(file), index) if self.augment else self.pixels(file)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float().div_(255), number

    def array(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All pictures `[image, height, width, 3]` in memory, as they are, and their class numbers."""
        images = np.empty((len(self), self.image_size, self.image_size, 3), np.uint8)
        for row, file in enumerate(self._shown()):
            images[row] = self.pixels(file)
        return images, np.array([number for _, number in self.files], np.int64)

    def check(self) -> list[str]:
        """Read every file; the names of those that are no pictures."""
        return [file for file in self._shown() if not self._is_picture(file)]

    def _is_picture(self, file: str) -> bool:
        try:
            self.pixels(file)
        except DatasetError:
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_archive": None}

    def _search(self, part: str) -> dict[str, list[str]]:
        """Pictures by class; a zip, or what was unpacked from one, often has a single folder around everything."""
        if not self.path.exists():
            raise DatasetError(f"{self.path} is not there")
        by_class = self._files_by_class(part)
        if by_class or not part:
            return by_class
        # The outermost folders, without hidden ones and those that macOS packs along.
        outer = {name.partition("/")[0] for name in self._names("") if "/" in name and not name.startswith((".", "__"))}
        return self._files_by_class(f"{outer.pop()}/{part}") if len(outer) == 1 else by_class

    def _files_by_class(self, part: str) -> dict[str, list[str]]:
        prefix = f"{part}/" if part else ""
        by_class: dict[str, list[str]] = {}
        for file in self._names(part):
            name, _, rest = file.removeprefix(prefix).partition("/")
            hidden = any(word.startswith((".", "__")) for word in (name, rest.rpartition("/")[2]))
            if file.startswith(prefix) and file.lower().endswith(ENDINGS) and rest and not hidden:
                by_class.setdefault(name, []).append(file)
        return by_class

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

    def pixels(self, file: str) -> NDArray[np.uint8]:
        """One picture, `[height, width, 3]`."""
        try:
            content = self._zip().read(file) if self.path.is_file() else (self.path / file).read_bytes()
        except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise DatasetError(f"{self.path}: {file} cannot be read ({error})") from error
        return read_picture(content, f"{self.path}: {file}", size=self.image_size)

    def _shown(self) -> Iterator[str]:
        """All files, with a bar on a terminal."""
        with progress(f"reading {self.path.name}", len(self), "pictures") as update:
            for file, _ in self.files:
                yield file
                update(advance=1)


def _moved(pixels: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
    """A picture moved at random, reproducibly if the row number says what it is drawn for; as it is if that is nothing."""
    draw = getattr(index, "draw", ())
    if draw is None:
        return pixels
    numbers: Any = stream(draw[0], Purpose.AUGMENTATION, draw[1], int(index)).random(3) if draw else torch.rand(3)
    down, right, flip = numbers.tolist()
    size = len(pixels)
    reach = size // 8
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    top, left = (int(share * (2 * reach + 1)) for share in (down, right))
    cut = padded[top : top + size, left : left + size]
    return cut[:, ::-1] if flip < 0.5 else cut

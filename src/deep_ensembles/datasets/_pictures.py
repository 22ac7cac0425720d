"""Pictures as arrays; the only file that knows the image library."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles.datasets._dataset import DatasetError

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


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need Pillow: pip install 'deep-ensembles[images]'") from error
    return Image

"""Pictures in folders, one folder per class, as ImageNet has them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from deep_ensembles._pictures import ClassFolders
from deep_ensembles._random import Purpose, stream


class ImageFolder(ClassFolders, Dataset[tuple[Tensor, int]]):
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

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, number = self.files[index]
        pixels = self.pixels(file)
        if self.augment and (move := _move(index)) is not None:
            pixels = _moved(pixels, *move)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float().div_(255), number


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
    top, left = (int(share * (2 * reach + 1)) for share in (down, right))
    cut = padded[top : top + size, left : left + size]
    return cut[:, ::-1] if flip else cut

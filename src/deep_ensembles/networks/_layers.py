"""What networks for images share."""

from __future__ import annotations

from typing import Any

from torch import nn

from deep_ensembles._checks import check_integer, check_number


def check_image_network(n_outputs: Any, in_channels: Any, image_size: Any, dropout: Any, smallest: int) -> None:
    """The arguments that every network for images has."""
    check_integer("n_outputs", n_outputs, low=1)
    check_integer("in_channels", in_channels, low=1)
    check_integer("image_size", image_size, low=smallest)
    check_number("dropout", dropout, low=0, high=1)


def scaled(channels: int, width: float) -> int:
    """So many channels of a network that is `width` times as wide, at least one."""
    check_number("width", width, low=0, above=True)
    return max(1, round(width * channels))


def dropped(dropout: float) -> list[nn.Module]:
    """A dropout layer if there is anything to drop."""
    return [nn.Dropout(dropout)] if dropout > 0 else []


def convolution(
    before: int, after: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0
) -> list[nn.Module]:
    """Convolution → batch norm → ReLU; batch norm takes any constant away again, so there is no bias."""
    return [nn.Conv2d(before, after, kernel, stride, padding, bias=False), nn.BatchNorm2d(after, eps=1e-3), nn.ReLU()]

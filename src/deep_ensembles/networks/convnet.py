"""A small convolutional network, and the layers and checks that all networks for images share."""

from typing import Any

from torch import nn

from deep_ensembles._checks import check_integer, check_number


def convnet(
    n_outputs: int, in_channels: int = 1, image_size: int = 28, width: int = 32, dropout: float = 0.0
) -> nn.Sequential:
    """Two convolutions and one dense layer, the usual network for MNIST.

    Twice 5×5 convolution → ReLU → (dropout) → 2×2 max pooling, with `width` and twice `width` channels; then a dense layer
    of four times `width` units → ReLU → (dropout); the last layer is linear.

    References:
        LeCun, Bottou, Bengio & Haffner (1998)

    Arguments:
        n_outputs: the size of the raw output, for classes their number.
        in_channels: 1 for grey images, 3 for colour.
        image_size: height and width of the images.
        width: channels of the first convolution.
        dropout: the rate at which units are dropped in training.

    Shape:
        `[batch, in_channels, image_size, image_size]` → `[batch, n_outputs]`

    Example:
        >>> import torch
        >>> convnet(10)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    check_image_network(n_outputs, in_channels, image_size, dropout, smallest=4)
    check_integer("width", width, low=1)
    layers: list[nn.Module] = []
    for before, after in ((in_channels, width), (width, 2 * width)):
        layers += [nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), *dropout_layers(dropout), nn.MaxPool2d(2)]
    features = 2 * width * (image_size // 4) ** 2
    layers += [nn.Flatten(), nn.Linear(features, 4 * width), nn.ReLU(), *dropout_layers(dropout)]
    return nn.Sequential(*layers, nn.Linear(4 * width, n_outputs))


def check_image_network(n_outputs: Any, in_channels: Any, image_size: Any, dropout: Any, smallest: int) -> None:
    """Check the arguments that every network for images has."""
    check_integer("n_outputs", n_outputs, low=1)
    check_integer("in_channels", in_channels, low=1)
    check_integer("image_size", image_size, low=smallest)
    check_number("dropout", dropout, low=0, high=1)


def scaled(channels: int, width: float) -> int:
    """The number of channels times `width`, at least one."""
    check_number("width", width, low=0, above=True)
    return max(1, round(width * channels))


def dropout_layers(dropout: float) -> list[nn.Module]:
    """A dropout layer, or none at rate 0."""
    return [nn.Dropout(dropout)] if dropout > 0 else []


def convolution(
    before: int, after: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0
) -> list[nn.Module]:
    """Convolution → batch norm → ReLU; batch norm takes any constant away again, so there is no bias."""
    return [nn.Conv2d(before, after, kernel, stride, padding, bias=False), nn.BatchNorm2d(after, eps=1e-3), nn.ReLU()]

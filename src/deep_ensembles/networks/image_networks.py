"""Networks for images: a small convolutional one, a VGG-style one and a small Inception."""

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

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


# (channels, convolutions) of each block; configuration D of the paper.
BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg(
    n_outputs: int, in_channels: int = 3, image_size: int = 32, width: float = 1.0, dropout: float = 0.0
) -> nn.Sequential:
    """VGG-16 with batch norm, its dense layers small enough for 32×32 images such as SVHN's.

    Five blocks of two or three 3×3 convolutions, each → batch norm → ReLU, a block → 2×2 max pooling (where there are
    2×2 pixels left) → (dropout); then two dense layers of 512 units → ReLU → (dropout); the last layer is linear.

    References:
        Simonyan & Zisserman (2015); batch norm: Ioffe & Szegedy (2015)

    Arguments:
        n_outputs: the size of the raw output, for classes their number.
        in_channels: 1 for grey images, 3 for colour.
        image_size: height and width of the images.
        width: a factor on all channels and units; 0.25 can be trained without a GPU.
        dropout: the rate at which units are dropped in training.

    Shape:
        `[batch, in_channels, image_size, image_size]` → `[batch, n_outputs]`

    Example:
        >>> import torch
        >>> vgg(10, width=0.25)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    check_image_network(n_outputs, in_channels, image_size, dropout, smallest=1)
    layers: list[nn.Module] = []
    channels, size = in_channels, image_size
    for wanted, convolutions in BLOCKS:
        for _ in range(convolutions):
            layers += convolution(channels, scaled(wanted, width), kernel=3, padding=1)
            channels = scaled(wanted, width)
        layers += [nn.MaxPool2d(2)] if size > 1 else []
        layers += dropout_layers(dropout)
        size = max(1, size // 2)
    layers.append(nn.Flatten())
    units = channels * size**2
    for _ in range(2):
        layers += [nn.Linear(units, scaled(512, width)), nn.ReLU(), *dropout_layers(dropout)]
        units = scaled(512, width)
    return nn.Sequential(*layers, nn.Linear(units, n_outputs))


Step: TypeAlias = tuple[Any, ...]  # channels and kernel of a convolution; several kernels are side by side

# Channels, kernel and padding of the convolutions of the stem, and the halvings from which a pooling follows.
STEM = ((32, 3, 0, 4), (32, 3, 0, 4), (64, 3, 1, 2), (80, 1, 0, 4), (192, 3, 0, 3))
GRID = 35  # pixels a side that the first block sees in the paper, from images of 299


def inception(
    n_outputs: int, in_channels: int = 3, image_size: int = 299, width: float = 1.0, dropout: float = 0.0
) -> nn.Sequential:
    """Inception-v3 without its auxiliary classifier, for images of 299×299 pixels and for small ones.

    A stem of five convolutions; three blocks of 5×5 and double 3×3 convolutions; a reduction; four blocks of 7×7
    convolutions factorised into 7×1 and 1×7; a reduction; two blocks whose last 3×3 convolutions are a 3×1 beside a 1×3;
    the mean over all pixels → (dropout) → a linear layer. Every convolution is followed by batch norm and ReLU.

    The stem halves the image three times in the paper. Here it does so as often as brings the image nearest to the 35×35
    pixels that the paper's first block sees: once at 64 pixels, never at 32.

    References:
        Szegedy, Vanhoucke, Ioffe, Shlens & Wojna (2016), Table 1 and Figures 5 to 7

    Arguments:
        n_outputs: the size of the raw output, for classes their number.
        in_channels: 1 for grey images, 3 for colour.
        image_size: height and width of the images, at least 13.
        width: a factor on all channels.
        dropout: the rate at which the last layer's inputs are dropped in training.

    Shape:
        `[batch, in_channels, image_size, image_size]` → `[batch, n_outputs]`

    Example:
        >>> inception(30, image_size=64, width=0.1)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 30])
    """
    check_image_network(n_outputs, in_channels, image_size, dropout, smallest=13)
    halvings = min(3, max(0, round(math.log2(image_size / GRID))))
    build = _Builder(in_channels, width)
    build.stem(halvings)
    for pooled in (32, 64, 64):
        build.block([(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], pooled=pooled)
    build.block([(384, 3)], [(64, 1), (96, 3), (96, 3)])
    for inner in (128, 160, 160, 192):
        short: list[Step] = [(inner, 1), (inner, (1, 7)), (192, (7, 1))]
        long: list[Step] = [(inner, 1), (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7))]
        build.block([(192, 1)], short, long, pooled=192)
    build.block([(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)])
    fork: Step = (384, (1, 3), (3, 1))
    for _ in range(2):
        build.block([(320, 1)], [(384, 1), fork], [(448, 1), (384, 3), fork], pooled=192)
    return nn.Sequential(*build.layers, _Mean(), *dropout_layers(dropout), nn.Linear(build.channels, n_outputs))


class _Concatenated(nn.ModuleList):
    """Branches that all see the same input, their channels one after another."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], dim=1)


class _Mean(nn.Module):
    """The mean over all pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class _Builder:
    """Layers so far, and the channels that the last one gives."""

    def __init__(self, channels: int, width: float) -> None:
        self.layers: list[nn.Module] = []
        self.channels, self.width = channels, width

    def stem(self, halvings: int) -> None:
        """Convolutions without padding but the third; the first and two poolings halve the image, as often as asked."""
        for number, (wanted, kernel, padding, pooled_from) in enumerate(STEM):
            stride = 2 if number == 0 and halvings >= 1 else 1
            self.layers += convolution(self.channels, scaled(wanted, self.width), kernel, stride, padding)
            self.layers += [nn.MaxPool2d(3, 2)] if halvings >= pooled_from else []
            self.channels = scaled(wanted, self.width)

    def block(self, *branches: list[Step], pooled: int = 0) -> None:
        """Branches, and a pooled branch of so many channels beside them; by default all of them halve the image."""
        chains = [self._chain(steps, last_stride=1 if pooled else 2) for steps in branches]
        pool: tuple[nn.Module, int] = nn.MaxPool2d(3, 2), self.channels
        if pooled:
            convolved, channels = self._chain([(pooled, 1)])
            pool = nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), *convolved), channels
        self.layers.append(_Concatenated(branch for branch, _ in (*chains, pool)))
        self.channels = sum(channels for _, channels in (*chains, pool))

    def _chain(self, steps: list[Step], last_stride: int = 1) -> tuple[nn.Sequential, int]:
        """Convolutions one after another, padded to keep the size unless they halve it; and their channels."""
        layers: list[nn.Module] = []
        before = self.channels
        for number, (wanted, *kernels) in enumerate(steps):
            stride, after = last_stride if number == len(steps) - 1 else 1, scaled(wanted, self.width)
            beside = []
            for kernel in kernels:
                height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
                padding = (height // 2, width // 2) if stride == 1 else 0
                beside.append(convolution(before, after, kernel, stride, padding))
            layers += beside[0] if len(beside) == 1 else [_Concatenated(nn.Sequential(*part) for part in beside)]
            before = after * len(beside)
        return nn.Sequential(*layers), before

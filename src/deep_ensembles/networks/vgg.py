"""Deep stacks of small convolutions."""

from torch import nn

from deep_ensembles.networks.convnet import check_image_network, convolution, dropout_layers, scaled

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

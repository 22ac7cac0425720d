"""Multi-layer perceptrons."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from deep_ensembles._checks import check_flag, check_integer, check_number, require

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


def mlp(
    in_features: int,
    out_features: int,
    hidden_sizes: Sequence[int] = (50,),
    activation: str | Callable[[], nn.Module] = "relu",
    batch_norm: bool = False,
    dropout: float = 0.0,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron with torch's default initialisation.

    Each hidden layer is linear → (batch norm) → activation → (dropout); the last layer is linear. Before batch norm,
    which takes any constant away again, linear layers have no bias.

    Arguments:
        in_features, out_features: sizes of input and raw output.
        hidden_sizes: one size per hidden layer; none for a linear model.
        activation: a name (see `ACTIVATIONS`) or a function that makes a module.
        batch_norm: normalise each hidden layer over the batch.
        dropout: the rate at which hidden units are dropped in training.
        dtype: of the parameters; torch's default if none.

    Shape:
        `[batch, in_features]` → `[batch, out_features]`

    Example:
        >>> mlp(8, 2, hidden_sizes=(50,))
        Sequential(
          (0): Linear(in_features=8, out_features=50, bias=True)
          (1): ReLU()
          (2): Linear(in_features=50, out_features=2, bias=True)
        )
    """
    check_integer("in_features", in_features, low=1)
    check_integer("out_features", out_features, low=1)
    check_number("dropout", dropout, low=0, high=1)
    check_flag("batch_norm", batch_norm)
    layers: list[nn.Module] = []
    for size in checked_sizes(hidden_sizes):
        layers.append(nn.Linear(in_features, size, bias=not batch_norm, dtype=dtype))
        layers += [nn.BatchNorm1d(size, dtype=dtype)] if batch_norm else []
        layers.append(make_activation(activation))
        layers += [nn.Dropout(dropout)] if dropout > 0 else []
        in_features = size
    return nn.Sequential(*layers, nn.Linear(in_features, out_features, dtype=dtype))


def checked_sizes(hidden_sizes: Sequence[int]) -> list[int]:
    """The sizes of hidden layers, or an error."""
    is_sequence = isinstance(hidden_sizes, Sequence) and not isinstance(hidden_sizes, str)
    require(is_sequence, "hidden_sizes", "a sequence of integers ≥ 1", hidden_sizes, "for one layer write (50,)")
    for size in hidden_sizes:
        check_integer("hidden_sizes", size, low=1)
    return [int(size) for size in hidden_sizes]


def make_activation(activation: str | Callable[[], nn.Module]) -> nn.Module:
    """The module that a name or a function stands for."""
    if isinstance(activation, str):
        require(activation in ACTIVATIONS, "activation", f"one of {', '.join(ACTIVATIONS)}", activation)
        return ACTIVATIONS[activation]()
    require(callable(activation), "activation", "a name or a function that makes a module", activation)
    return activation()

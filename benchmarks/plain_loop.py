"""The plain loop that a PyTorch user writes: one network after another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def gaussian_network(n_features: int) -> nn.Module:
    """50 hidden units; mean and raw variance."""
    return nn.Sequential(nn.Linear(n_features, 50), nn.ReLU(), nn.Linear(50, 2))


def batch_norm_network(n_features: int, n_classes: int) -> nn.Module:
    """Three times 200 hidden units, each layer with batch norm."""
    layers: list[nn.Module] = []
    for size in (200, 200, 200):
        layers += [nn.Linear(n_features, size), nn.BatchNorm1d(size), nn.ReLU()]
        n_features = size
    return nn.Sequential(*layers, nn.Linear(n_features, n_classes))


def gaussian_nll() -> Loss:
    """The Gaussian negative log-likelihood of a network's mean and variance."""
    criterion = nn.GaussianNLLLoss()

    def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        mean, raw = network(x).unbind(1)
        return criterion(mean, y, F.softplus(raw) + 1e-6)

    return loss


def adversarial(loss: Loss, step: Tensor) -> Loss:
    """The loss at x and at x′, one step along the sign of the gradient at x."""

    def both(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x.requires_grad_()
        first = loss(network, x, y)
        (gradient,) = torch.autograd.grad(first, x, retain_graph=True)
        return first + loss(network, x.detach() + step * gradient.sign(), y)

    return both


def cross_entropy(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(network(x), y)


def train(network: nn.Module, x: Tensor, y: Tensor, loss: Loss, epochs: int, learning_rate: float) -> nn.Module:
    """Adam on batches of 100."""
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            loss(network, x[batch], y[batch]).backward()
            optimizer.step()
    return network


def standardized(values: np.ndarray) -> Tensor:
    """Mean 0 and deviation 1 per column, in single precision."""
    return torch.from_numpy((values - values.mean(0)) / values.std(0)).float()


def regression_ensemble(X: np.ndarray, y: np.ndarray, epsilon: float | None = None) -> list[nn.Module]:
    """5 networks, 40 epochs; with adversarial training if there is an `epsilon`."""
    torch.manual_seed(0)
    inputs, targets = standardized(X), standardized(y)
    loss = gaussian_nll()
    if epsilon is not None:
        loss = adversarial(loss, epsilon * (inputs.amax(0) - inputs.amin(0)))
    return [train(gaussian_network(X.shape[1]), inputs, targets, loss, 40, 0.01) for _ in range(5)]

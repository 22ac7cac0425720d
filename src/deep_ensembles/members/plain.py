"""Members that are plain multi-layer perceptrons: batched matrix products and a backward pass by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from deep_ensembles._random import bernoulli, torch_generators
from deep_ensembles.members._base import Members

_aten = torch.ops.aten

# activation → (gradient with respect to its input) from (gradient of its output, input, output)
_DERIVATIVES: dict[type[nn.Module], Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    nn.ReLU: lambda gradient, x, y: _aten.threshold_backward.grad_input(gradient, y, 0, grad_input=gradient),
    nn.Tanh: lambda gradient, x, y: _aten.tanh_backward(gradient, y),
    nn.Sigmoid: lambda gradient, x, y: _aten.sigmoid_backward(gradient, y),
    nn.SiLU: lambda gradient, x, y: _aten.silu_backward(gradient, x),
    nn.GELU: lambda gradient, x, y: _aten.gelu_backward(gradient, x),
}


def is_plain(module: nn.Module) -> bool:
    """Whether a network is a sequence of linear layers, common activations and dropout, and nothing else."""
    if type(module) is not nn.Sequential or _hooked(module) or len(set(module)) < len(module):
        return False
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return False
    known = all(type(layer) in (nn.Linear, nn.Dropout, *_DERIVATIVES) and not _hooked(layer) for layer in module)
    exact = all(getattr(layer, "approximate", "none") == "none" for layer in module)
    return known and exact and isinstance(module[0], nn.Linear)


def _hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


class Plain(Members):
    """About four times less time per step than automatic differentiation on small networks, where overhead rules."""

    kind: ClassVar[str] = "plain"

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        layers = list(self.modules[0].named_children())
        linear = [name for name, module in layers if isinstance(module, nn.Linear)]
        self._layers: list[_Layer] = []
        for name, module in layers:
            ends = name == linear[0], name == linear[-1]
            self._layers.append(_layer(name, module, parameters, self._gradients, ends))
        self.noisy = any(isinstance(layer, _Dropout) and layer.rate > 0 for layer in self._layers)

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in self._layers:
                inputs = layer.evaluate(inputs)
        return inputs

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        generators = torch_generators(seeds, inputs.device) if self.noisy else []
        inputs = inputs.detach()
        for layer in self._layers:
            inputs = layer.forward(inputs, generators)
        self._input_gradient = input_gradient
        return inputs

    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        gradient: Tensor | None = raw_gradient
        for layer in reversed(self._layers):
            needed = self._input_gradient or layer is not self._layers[0]
            gradient = layer.backward(gradient, accumulate, needed)  # type: ignore[arg-type]
        return gradient


class _Layer:
    """One layer of all members: an evaluation, and a training pass that remembers what its backward pass needs."""

    def evaluate(self, x: Tensor) -> Tensor:
        return self.forward(x, [])

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        raise NotImplementedError

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        raise NotImplementedError


class _Linear(_Layer):
    """y = x Wᵀ + b: `[member, batch, in]` × `[member, out, in]` → `[member, batch, out]`."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, gradients: tuple[Tensor, Tensor | None] | None, ends: tuple[bool, bool]
    ) -> None:
        self.first, self.last = ends  # what leaves the network must not be overwritten by the next step
        self.spaces: dict[tuple[str, int], Tensor] = {}
        self.weight, self.transposed = weight, weight.mT
        self.bias = None if bias is None else bias.unsqueeze(1)
        self.weight_gradient = None if gradients is None else gradients[0]
        of_bias = None if gradients is None else gradients[1]
        self.bias_gradient = None if of_bias is None else of_bias.unsqueeze(1)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x = x
        if self.last:
            return self.evaluate(x)
        y = torch.bmm(x, self.transposed, out=self._space("y", x, self.weight.shape[1]))
        return y if self.bias is None else y.add_(self.bias)

    def evaluate(self, x: Tensor) -> Tensor:
        y = torch.bmm(x, self.transposed)
        return y if self.bias is None else y.add_(self.bias)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        assert self.weight_gradient is not None
        if accumulate:
            self.weight_gradient.add_(torch.bmm(gradient.mT, self.x))
        else:
            torch.bmm(gradient.mT, self.x, out=self.weight_gradient)
        if self.bias_gradient is not None and accumulate:
            self.bias_gradient.add_(gradient.sum(1, keepdim=True))
        elif self.bias_gradient is not None:
            torch.sum(gradient, 1, keepdim=True, out=self.bias_gradient)
        if not needed:
            return None
        return torch.bmm(gradient, self.weight, out=None if self.first else self._space("x", self.x, self.x.shape[2]))

    def _space(self, name: str, like: Tensor, size: int) -> Tensor:
        """Memory that is used again in each step: large activations would otherwise be mapped and unmapped each time."""
        key = name, like.shape[1]
        if key not in self.spaces:
            self.spaces[key] = like.new_empty(*like.shape[:2], size)
        return self.spaces[key]


class _Activation(_Layer):
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.derivative = _DERIVATIVES[type(module)]
        self.in_place = isinstance(module, nn.ReLU)

    def evaluate(self, x: Tensor) -> Tensor:
        y: Tensor = x.relu_() if self.in_place else self.module(x)
        return y

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x, self.y = x, self.evaluate(x)
        return self.y

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        result = self.derivative(gradient, self.x, self.y)
        del self.x, self.y
        return result


class _Dropout(_Layer):
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def evaluate(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        if self.rate == 0:
            self.kept = None
            return x
        # The same two operations as torch's own dropout, so that the same seed gives the same bits.
        self.kept = bernoulli(x, 1 - self.rate, generators).div_(1 - self.rate) if self.rate < 1 else torch.zeros_like(x)
        return x * self.kept

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return gradient if self.kept is None else gradient * self.kept


def _layer(
    name: str, module: nn.Module, parameters: dict[str, Tensor], gradients: dict[str, Tensor], ends: tuple[bool, bool]
) -> _Layer:
    if isinstance(module, nn.Linear):
        weight, bias = f"{name}.weight", f"{name}.bias"
        own = (gradients[weight], gradients.get(bias)) if gradients else None
        return _Linear(parameters[weight], parameters.get(bias), own, ends)
    return _Dropout(module.p) if isinstance(module, nn.Dropout) else _Activation(module)

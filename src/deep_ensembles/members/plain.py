"""Members that are plain multi-layer perceptrons: batched matrix products and a backward pass by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from deep_ensembles._random import drawn, torch_generators
from deep_ensembles.members._base import Members, hooks

_aten = torch.ops.aten
_relu_backward = _aten.threshold_backward.grad_input

# activation → (gradient with respect to its input) from (gradient of its output, input, output)
_DERIVATIVES: dict[type[nn.Module], Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    nn.ReLU: lambda gradient, x, y: _relu_backward(gradient, y, 0, grad_input=gradient),
    nn.Tanh: lambda gradient, x, y: _aten.tanh_backward(gradient, y),
    nn.Sigmoid: lambda gradient, x, y: _aten.sigmoid_backward(gradient, y),
    nn.SiLU: lambda gradient, x, y: _aten.silu_backward(gradient, x),
    nn.GELU: lambda gradient, x, y: _aten.gelu_backward(gradient, x),
}
_KNOWN = (nn.Linear, nn.BatchNorm1d, nn.Dropout, *_DERIVATIVES)


def is_plain(module: nn.Module) -> bool:
    """Whether a network is a sequence of linear layers, batch norm, common activations and dropout, and nothing else."""
    if type(module) is not nn.Sequential or any(hooks(module)) or len(set(module)) < len(module):
        return False
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return False
    if len(list(module.parameters())) < sum(len(list(layer.parameters())) for layer in module):
        return False  # a weight that two layers share
    known = all(type(layer) in _KNOWN and not any(hooks(layer)) for layer in module)
    usual = all(getattr(layer, "approximate", "none") == "none" and _usual_norm(layer) for layer in module)
    return known and usual and isinstance(module[0], nn.Linear)


def _usual_norm(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.BatchNorm1d):
        return True
    return layer.affine and layer.track_running_stats and layer.momentum is not None


class Plain(Members):
    """About four times less time per step than automatic differentiation on small networks, where overhead rules."""

    kind: ClassVar[str] = "plain"
    uses_autograd: ClassVar[bool] = False

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        layers = list(self.modules[0].named_children())
        linear = [name for name, module in layers if isinstance(module, nn.Linear)]
        self._layers: list[_Layer] = []
        for name, module in layers:
            tensors = _Tensors(*(_of(name, part) for part in (parameters, self._gradients, self._buffers)))
            self._layers.append(_layer(module, tensors, (name == linear[0], name == linear[-1])))
        self.traits.needs_seeds = any(isinstance(layer, _Dropout) and layer.rate > 0 for layer in self._layers)

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in self._layers:
                inputs = layer.evaluate(inputs)
        return inputs

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        generators = torch_generators(seeds, inputs.device)
        with torch.no_grad():
            for layer in self._layers:
                inputs = layer.forward(inputs, generators) if isinstance(layer, _Dropout) else layer.evaluate(inputs)
        return inputs

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        generators = torch_generators(seeds, inputs.device) if self.traits.needs_seeds else []
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

    def __init__(self, tensors: _Tensors, ends: tuple[bool, bool]) -> None:
        self.first, self.last = ends  # what leaves the network must not be overwritten by the next step
        self.spaces: dict[tuple[str, int], Tensor] = {}
        self.weight, self.transposed = tensors.parameters["weight"], tensors.parameters["weight"].mT
        self.weight_gradient = tensors.gradients.get("weight")
        self.bias, self.bias_gradient = _rows(tensors.parameters.get("bias")), _rows(tensors.gradients.get("bias"))

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x = x
        if self.last:
            # Each raw output contiguous over the batch: the criterion's small operations on one of them are faster.
            y = torch.bmm(self.weight, x.mT).mT
            return y if self.bias is None else y.add_(self.bias)
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


class _BatchNorm(_Layer):
    """y = w (x - mean) / sqrt(variance + ε) + b over each member's own batch."""

    def __init__(self, module: nn.BatchNorm1d, tensors: _Tensors) -> None:
        self.module, self.buffers = module, tensors.buffers
        self.weight, self.bias = _rows(tensors.parameters["weight"]), _rows(tensors.parameters["bias"])
        self.weight_gradient, self.bias_gradient = (_rows(tensors.gradients.get(name)) for name in ("weight", "bias"))

    def evaluate(self, x: Tensor) -> Tensor:
        mean, variance = (_rows(self.buffers[name]) for name in ("running_mean", "running_var"))
        factor = self.weight * (variance + self.module.eps).rsqrt()
        return torch.addcmul(self.bias - mean * factor, x, factor)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        n = x.shape[1]
        if n < 2:
            raise ValueError(f"batch norm needs at least 2 rows in a batch, got {n}")
        # torch.var_mean over an inner axis takes several times as long as these two sums.
        mean = x.mean(1, keepdim=True)
        self.normal = x - mean
        variance = self.normal.square().mean(1, keepdim=True)
        self._update_running(mean, variance * (n / (n - 1)))
        self.inverse = (variance + self.module.eps).rsqrt_()
        self.normal.mul_(self.inverse)
        return torch.addcmul(self.bias, self.normal, self.weight)

    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        momentum = self.module.momentum
        assert momentum is not None
        self.buffers["running_mean"].lerp_(mean.squeeze(1), momentum)
        self.buffers["running_var"].lerp_(variance.squeeze(1), momentum)
        self.buffers["num_batches_tracked"].add_(1)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        of_bias = gradient.sum(1, keepdim=True)
        of_weight = (gradient * self.normal).sum(1, keepdim=True)
        for total, part in ((self.weight_gradient, of_weight), (self.bias_gradient, of_bias)):
            assert total is not None
            total.add_(part) if accumulate else total.copy_(part)
        n = gradient.shape[1]
        centred = self.normal.mul_(of_weight / -n).add_(gradient).sub_(of_bias / n)
        del self.normal
        return centred.mul_(self.inverse * self.weight)


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
        self.kept = (
            drawn("bernoulli_", x, generators, 1 - self.rate).div_(1 - self.rate) if self.rate < 1 else torch.zeros_like(x)
        )
        return x * self.kept

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return gradient if self.kept is None else gradient * self.kept


class _Tensors(NamedTuple):
    """What belongs to one layer, by the names that the layer's module has for it."""

    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


def _of(layer: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{layer}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _rows(tensor: Tensor | None) -> Any:
    """`[member, feature]` → `[member, 1, feature]`, to broadcast over a batch."""
    return None if tensor is None else tensor.unsqueeze(1)


def _layer(module: nn.Module, tensors: _Tensors, ends: tuple[bool, bool]) -> _Layer:
    if isinstance(module, nn.Linear):
        return _Linear(tensors, ends)
    if isinstance(module, nn.BatchNorm1d):
        return _BatchNorm(module, tensors)
    return _Dropout(module.p) if isinstance(module, nn.Dropout) else _Activation(module)

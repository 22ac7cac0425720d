"""Members that are plain multi-layer perceptrons: batched matrix products and a backward pass by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from deep_ensembles._random import drawn, torch_generators
from deep_ensembles.members._base import Members, hooks
from deep_ensembles.networks.periodic_mlp import Periodic, Skip, SmoothClip

_aten = torch.ops.aten
_relu_backward, _silu_backward = _aten.threshold_backward.grad_input, _aten.silu_backward.grad_input


class _Function(NamedTuple):
    """An activation: `out` for its input, and the gradient of its input from that of its output, input and output."""

    forward: Callable[..., Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]


_FUNCTIONS: dict[type[nn.Module], _Function] = {
    nn.ReLU: _Function(torch.relu, lambda gradient, x, y: _relu_backward(gradient, y, 0, grad_input=gradient)),
    nn.Tanh: _Function(torch.tanh, lambda gradient, x, y: _aten.tanh_backward(gradient, y)),
    nn.Sigmoid: _Function(torch.sigmoid, lambda gradient, x, y: _aten.sigmoid_backward(gradient, y)),
    nn.SiLU: _Function(_aten.silu.out, lambda gradient, x, y: _silu_backward(gradient, x, grad_input=gradient)),
    nn.GELU: _Function(_aten.gelu.out, lambda gradient, x, y: _aten.gelu_backward(gradient, x)),
}
_KNOWN = (nn.Linear, nn.BatchNorm1d, nn.Dropout, Periodic, SmoothClip, *_FUNCTIONS)


def is_plain(module: nn.Module) -> bool:
    """Whether a network is a sequence of layers that are known here (see `_KNOWN`), and skips of such."""
    if type(module) is not nn.Sequential:
        return False
    parts = [part for part in module.modules() if type(part) not in (nn.Sequential, Skip)]
    n_layers = sum(1 for _ in _leaves(module))
    if len(parts) < n_layers or any(any(hooks(part)) for part in module.modules()):
        return False  # a layer that stands in two places, or one that does more than it says
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return False
    if len(list(module.parameters())) < sum(len(list(part.parameters())) for part in parts):
        return False  # a weight that two layers share
    known = all(type(part) in _KNOWN for part in parts)
    usual = all(getattr(part, "approximate", "none") == "none" and _usual_norm(part) for part in parts)
    return known and usual and isinstance(module[-1], nn.Linear)


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a sequence in order, those within skips too, as often as they stand there."""
    for part in module._modules.values():
        if isinstance(part, Skip):
            yield from _leaves(part)
        else:
            yield cast(nn.Module, part)


def _usual_norm(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.BatchNorm1d):
        return True
    return layer.affine and layer.track_running_stats and layer.momentum is not None


class Plain(Members):
    """About four times less time per step than automatic differentiation on small networks, where overhead rules."""

    kind: ClassVar[str] = "plain"
    uses_autograd: ClassVar[bool] = False

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        module = self.modules[0]
        tensors = _Tensors(parameters, self._gradients, self._buffers)
        linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        self._layers = _layers(module, tensors, (linear[0], linear[-1]))
        trained = [i for i, part in enumerate(module.children()) if any(True for _ in part.parameters())]
        self._n_fixed = trained[0]  # layers at the front that have nothing to learn
        drops = [part.p > 0 for part in module.modules() if isinstance(part, nn.Dropout)]
        self.traits.needs_seeds = any(drops)

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in self._layers:
                inputs = layer.evaluate(inputs)
        return inputs

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        generators = torch_generators(seeds, inputs.device)
        with torch.no_grad():
            for layer in self._layers:
                inputs = layer.sample(inputs, generators)
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
        stop = 0 if self._input_gradient else self._n_fixed
        for number in range(len(self._layers) - 1, stop - 1, -1):
            needed = self._input_gradient or number > stop
            gradient = self._layers[number].backward(gradient, accumulate, needed)  # type: ignore[arg-type]
        return gradient if self._input_gradient else None


class _Layer:
    """One layer of all members: an evaluation, and a training pass that remembers what its backward pass needs."""

    spaces: dict[tuple[str, int], Tensor]

    def evaluate(self, x: Tensor) -> Tensor:
        apart = copy.copy(self)  # a pass remembers: threads that predict side by side must not share that
        apart.spaces = {}
        return apart.forward(x, [])

    def sample(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        """Evaluate with the noise of training left on."""
        return self.evaluate(x)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        raise NotImplementedError

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        raise NotImplementedError

    def space(self, name: str, *shape: int, like: Tensor) -> Tensor:
        """Memory that is used again in each step: large activations would otherwise be mapped and unmapped each time."""
        key = name, like.shape[1]
        if key not in self.spaces:
            self.spaces[key] = like.new_empty(shape)
        return self.spaces[key]


class _Linear(_Layer):
    """y = x Wᵀ + b: `[member, batch, in]` × `[member, out, in]` → `[member, batch, out]`."""

    def __init__(self, tensors: _Tensors, ends: tuple[bool, bool]) -> None:
        self.first, self.last = ends  # what leaves the network must not be overwritten by the next step
        self.spaces = {}
        self.weight, self.transposed = tensors.parameters["weight"], tensors.parameters["weight"].mT
        self.weight_gradient = tensors.gradients.get("weight")
        self.bias, self.bias_gradient = _rows(tensors.parameters.get("bias")), _rows(tensors.gradients.get("bias"))

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x = x
        if self.last:
            # Each raw output contiguous over the batch: the criterion's small operations on one of them are faster.
            y = torch.bmm(self.weight, x.mT).mT
            return y if self.bias is None else y.add_(self.bias)
        y = torch.bmm(x, self.transposed, out=self.space("y", *x.shape[:2], self.weight.shape[1], like=x))
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
        return torch.bmm(gradient, self.weight, out=None if self.first else self.space("x", *self.x.shape, like=self.x))


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
        self.module, self.function, self.spaces = module, _FUNCTIONS[type(module)], {}
        self.in_place = isinstance(module, nn.ReLU)

    def evaluate(self, x: Tensor) -> Tensor:
        y: Tensor = x.relu_() if self.in_place else self.module(x)
        return y

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x = x
        self.y = x.relu_() if self.in_place else self.function.forward(x, out=self.space("y", *x.shape, like=x))
        return self.y

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return self.function.backward(gradient, self.x, self.y)


class _Dropout(_Layer):
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def evaluate(self, x: Tensor) -> Tensor:
        return x

    def sample(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        return self.forward(x, generators)

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


class _SmoothClip(_Layer):
    """y = x / √(1 + (x/c)²), and y′ = (1 + (x/c)²)^(-3/2)."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.inverse = torch.addcmul(x.new_ones(()), x, x, value=self.limit**-2).rsqrt_()
        return x * self.inverse

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return gradient * self.inverse.pow_(3)


class _Periodic(_Layer):
    """y = [x, Vᵀ cos(wx + b)] for each number; `[member · number, wave, batch]` while it lasts: products are fastest so."""

    def __init__(self, module: Periodic, tensors: _Tensors) -> None:
        self.rate, self.spaces = module.RATE, {}
        self.n_inputs, self.n, _, self.n_outputs = module.sizes
        frequency, phase, self.weight = (tensors.parameters[name].flatten(0, 1) for name in _PERIODIC)
        self.frequency, self.phase = frequency.unsqueeze(2), phase.unsqueeze(2)
        self.gradients = [tensors.gradients.get(name) for name in _PERIODIC]
        device = self.weight.device
        self.columns = None if module.columns is None else torch.tensor(module.columns, device=device)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        numbers = x.mT.contiguous()
        self.chosen = (numbers if self.columns is None else numbers[:, self.columns]).flatten(0, 1).unsqueeze(1)
        shape = *self.frequency.shape[:2], x.shape[1]
        angle, waves = (self.space(name, *shape, like=x) for name in ("angle", "waves"))
        self.angle = torch.addcmul(self.phase * self.rate, self.chosen, self.frequency, value=self.rate, out=angle)
        self.waves = torch.cos(angle, out=waves)
        embedded = torch.bmm(self.weight.mT, self.waves).view(len(x), self.n * self.n_outputs, x.shape[1])
        return torch.cat([numbers, embedded], 1).mT

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        of_embedded = gradient[..., self.n_inputs :].mT.reshape(-1, self.n_outputs, gradient.shape[1])
        space = self.space("of angle", *self.angle.shape, like=gradient)
        of_angle = torch.baddbmm(space, self.weight, of_embedded, beta=0, alpha=-self.rate, out=space).mul_(
            self.angle.sin_()
        )
        parts = torch.bmm(of_angle, self.chosen.mT), of_angle.sum(2), torch.bmm(self.waves, of_embedded.mT)
        for total, part in zip(self.gradients, parts, strict=True):
            assert total is not None
            total.add_(part.view(total.shape)) if accumulate else total.copy_(part.view(total.shape))
        if not needed:
            return None
        of_chosen = (of_angle * self.frequency).sum(1).view(len(gradient), self.n, -1).mT
        of_x = gradient[..., : self.n_inputs].clone()
        if self.columns is None:
            return of_x.add_(of_chosen)
        return of_x.index_add_(2, self.columns, of_chosen)


_PERIODIC = ("frequency", "phase", "weight")


class _Skip(_Layer):
    """y = x + f(x)."""

    def __init__(self, layers: list[_Layer]) -> None:
        self.layers, self.spaces = layers, {}

    def evaluate(self, x: Tensor) -> Tensor:
        return x + self._through("evaluate", x)

    def sample(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        return x + self._through("sample", x, generators)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        y = self._through("forward", x, generators)
        return torch.add(x, y, out=self.space("y", *y.shape, like=y))

    def _through(self, name: str, y: Tensor, *others: Any) -> Tensor:
        for layer in self.layers:
            y = getattr(layer, name)(y, *others)
        return y

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        inner: Any = gradient.clone()  # layers may overwrite it
        for layer in reversed(self.layers):
            inner = layer.backward(inner, accumulate, True)
        return inner.add_(gradient)


class _Tensors(NamedTuple):
    """What belongs to a layer, by the names that the layer's module has for it."""

    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def of(self, layer: str) -> _Tensors:
        """What belongs to one of its parts."""
        prefix = f"{layer}."
        return _Tensors(*({n.removeprefix(prefix): t for n, t in part.items() if n.startswith(prefix)} for part in self))


def _rows(tensor: Tensor | None) -> Any:
    """`[member, feature]` → `[member, 1, feature]`, to broadcast over a batch."""
    return None if tensor is None else tensor.unsqueeze(1)


def _layers(module: nn.Module, tensors: _Tensors, ends: tuple[str, str], path: str = "") -> list[_Layer]:
    """The layers of a sequence; `ends` are the names of its first and last linear layer."""
    layers: list[_Layer] = []
    for name, part in module.named_children():
        own, full = tensors.of(name), f"{path}{name}"
        if isinstance(part, Skip):
            layers.append(_Skip(_layers(part, own, ends, f"{full}.")))
        elif isinstance(part, nn.Linear):
            layers.append(_Linear(own, (full == ends[0], full == ends[1])))
        elif isinstance(part, nn.BatchNorm1d):
            layers.append(_BatchNorm(part, own))
        elif isinstance(part, Periodic):
            layers.append(_Periodic(part, own))
        elif isinstance(part, SmoothClip):
            layers.append(_SmoothClip(part.limit))
        else:
            layers.append(_Dropout(part.p) if isinstance(part, nn.Dropout) else _Activation(part))
    return layers

"""Layers of all members of plain networks at once: batched matrix products and backward passes by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deep_ensembles._random import drawn
from deep_ensembles.networks.periodic_mlp import Levels, NumberEmbedding, Skip, SmoothClip

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


class Layer:
    """One layer of all members: an evaluation, and a training pass that remembers what its backward pass needs."""

    spaces: dict[tuple[str, tuple[int, ...]], Tensor]

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
        key = name, shape
        if key not in self.spaces:
            self.spaces[key] = like.new_empty(shape)
        return self.spaces[key]


class _Linear(Layer):
    """y = x Wᵀ + b: `[member, batch, in]` × `[member, out, in]` → `[member, batch, out]`."""

    first = last = False  # of the network: what leaves it must not be overwritten by the next step

    def __init__(self, module: nn.Linear, tensors: Tensors) -> None:
        self.spaces = {}
        self.weight, self.transposed = tensors.parameters["weight"], tensors.parameters["weight"].mT
        self.weight_gradient = tensors.gradients.get("weight")
        self.bias, self.bias_gradient = _rows(tensors.parameters.get("bias")), _rows(tensors.gradients.get("bias"))

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        self.x = x
        if self.last:
            # Each raw output contiguous over the batch: the criterion's small operations on one of them are faster.
            y = torch.bmm(self.weight, x.mT).mT
        else:
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


class _BatchNorm(Layer):
    """y = w (x - mean) / sqrt(variance + ε) + b over each member's own batch."""

    def __init__(self, module: nn.BatchNorm1d, tensors: Tensors) -> None:
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
        for name, value in (("running_mean", mean), ("running_var", variance * (n / (n - 1)))):
            self.buffers[name].lerp_(value.squeeze(1), self.module.momentum)  # type: ignore[arg-type]
        self.buffers["num_batches_tracked"].add_(1)
        self.inverse = (variance + self.module.eps).rsqrt_()
        self.normal.mul_(self.inverse)
        return torch.addcmul(self.bias, self.normal, self.weight)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        of_bias = gradient.sum(1, keepdim=True)
        of_weight = (gradient * self.normal).sum(1, keepdim=True)
        _keep(self.weight_gradient, of_weight, accumulate)
        _keep(self.bias_gradient, of_bias, accumulate)
        n = gradient.shape[1]
        centred = self.normal.mul_(of_weight / -n).add_(gradient).sub_(of_bias / n)
        del self.normal
        return centred.mul_(self.inverse * self.weight)


class _Activation(Layer):
    def __init__(self, module: nn.Module, tensors: Tensors) -> None:
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


class _Dropout(Layer):
    def __init__(self, module: nn.Dropout, tensors: Tensors) -> None:
        self.rate = module.p

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


class _SmoothClip(Layer):
    """y = x / √(1 + (x/c)²), and y′ = (1 + (x/c)²)^(-3/2)."""

    def __init__(self, module: SmoothClip, tensors: Tensors) -> None:
        self.limit = module.limit

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        x = x.clamp(-SmoothClip.LARGEST, SmoothClip.LARGEST)
        self.inverse = torch.addcmul(x.new_ones(()), x, x, value=self.limit**-2).rsqrt_()
        return x * self.inverse

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return gradient * self.inverse.pow_(3)


class _NumberEmbedding(Layer):
    """y = [x, Vᵀ f(x)] for each number; `[member · number, feature, batch]` while it lasts: products are fastest so."""

    def __init__(self, module: NumberEmbedding, tensors: Tensors) -> None:
        self.spaces, self.rate = {}, module.RATE
        self.n_inputs, self.n, self.n_waves, _, self.n_outputs = module.sizes
        own = {name: tensor.flatten(0, 1) for name, tensor in (tensors.parameters | tensors.buffers).items()}
        self.over_batch = {name: tensor.unsqueeze(2) for name, tensor in own.items() if name != "weight"}
        self.has_bins = "slope" in own and bool(own["slope"].any())  # where no member has them, they cost nothing
        used = slice(0, None if self.has_bins else self.n_waves)
        self.weight, gradients = own["weight"][:, used], tensors.gradients
        self.weight_gradient = gradients["weight"].flatten(0, 1)[:, used] if "weight" in gradients else None
        self.wave_gradients = [gradients.get(name) for name in ("frequency", "phase")]
        self.columns = None if module.columns is None else torch.tensor(module.columns, device=self.weight.device)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        numbers = x.mT.contiguous()
        chosen = (numbers if self.columns is None else numbers[:, self.columns]).flatten(0, 1).unsqueeze(1)
        self.features = self.space("features", *self.weight.shape[:2], x.shape[1], like=x)
        waves, bins = self.features[:, : self.n_waves], self.features[:, self.n_waves :]
        if self.n_waves:
            frequency, phase = self.over_batch["frequency"], self.over_batch["phase"] * self.rate
            self.angle, self.chosen = self.space("angle", *waves.shape, like=x), chosen
            torch.cos(torch.addcmul(phase, chosen, frequency, value=self.rate, out=self.angle), out=waves)
        if self.has_bins:
            torch.sub(chosen, self.over_batch["start"], out=bins).mul_(self.over_batch["slope"]).clamp_(0, 1)
        embedded = torch.bmm(self.weight.mT, self.features).view(len(x), self.n * self.n_outputs, x.shape[1])
        return torch.cat([numbers, embedded], 1).mT

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        of_embedded = gradient[..., self.n_inputs :].mT.reshape(-1, self.n_outputs, gradient.shape[1])
        _keep(self.weight_gradient, torch.bmm(self.features, of_embedded.mT), accumulate)
        parts = [self._of_waves(of_embedded, accumulate, needed)] if self.n_waves else []
        parts += [self._of_bins(of_embedded)] if self.has_bins and needed else []
        if not needed:
            return None
        of_x = gradient[..., : self.n_inputs].clone()
        for of_chosen in parts:
            of_numbers = of_chosen.view(len(gradient), self.n, -1).mT
            of_x = of_x.add_(of_numbers) if self.columns is None else of_x.index_add_(2, self.columns, of_numbers)
        return of_x

    def _of_waves(self, of_embedded: Tensor, accumulate: bool, needed: bool) -> Tensor:
        """The gradients of frequencies and phases, and that of the numbers if it is needed."""
        space = self.space("of angle", *self.angle.shape, like=of_embedded)
        weight = self.weight[:, : self.n_waves]
        of_angle = torch.baddbmm(space, weight, of_embedded, beta=0, alpha=-self.rate, out=space).mul_(self.angle.sin_())
        for total, part in zip(self.wave_gradients, (torch.bmm(of_angle, self.chosen.mT), of_angle.sum(2)), strict=True):
            _keep(total, part, accumulate)
        return (of_angle * self.over_batch["frequency"]).sum(1) if needed else of_angle

    def _of_bins(self, of_embedded: Tensor) -> Tensor:
        bins = self.features[:, self.n_waves :]
        of_bins = torch.bmm(self.weight[:, self.n_waves :], of_embedded)
        return (of_bins * self.over_batch["slope"] * ((bins > 0) & (bins < 1))).sum(1)


class _Levels(Layer):
    """A vector for each category, `[member · column, level, output]`; the gradient of a level is the sum over its rows."""

    def __init__(self, module: Levels, tensors: Tensors) -> None:
        self.n_inputs, self.rate, self.weight = module.in_features, module.UNKNOWN, tensors.parameters["weight"]
        self.columns = torch.tensor(module.columns, device=self.weight.device)
        self.gradient = tensors.gradients.get("weight")
        self.shift, self.scale = (_rows(tensors.buffers[name]) for name in ("shift", "scale"))

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        n_members, n, most, n_outputs = self.weight.shape
        numbers = torch.addcmul(self.shift, x[..., self.columns], self.scale).round_().clamp_(0, most - 1)
        if generators:
            numbers *= drawn("bernoulli_", numbers, generators, 1 - self.rate)
        self.index = numbers.long().mT.flatten(0, 1).unsqueeze(2).expand(-1, -1, n_outputs)
        vectors = self.weight.flatten(0, 1).gather(1, self.index).view(n_members, n, -1, n_outputs)
        return torch.cat([x.index_fill(2, self.columns, 0), vectors.transpose(1, 2).flatten(2)], 2)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        assert self.gradient is not None
        of_vectors = gradient[..., self.n_inputs :].unflatten(2, (len(self.columns), -1)).transpose(1, 2).flatten(0, 1)
        total = self.gradient if accumulate else self.gradient.zero_()
        total.flatten(0, 1).scatter_add_(1, self.index, of_vectors)
        return gradient[..., : self.n_inputs].index_fill(2, self.columns, 0) if needed else None


def _keep(total: Tensor | None, part: Tensor, accumulate: bool) -> None:
    """Put a gradient where it belongs, or add it."""
    assert total is not None
    part = part.view(total.shape)
    total.add_(part) if accumulate else total.copy_(part)


class _Skip(Layer):
    """y = x + f(x)."""

    def __init__(self, module: Skip, tensors: Tensors) -> None:
        self.layers, self.spaces = make_layers(module, tensors), {}

    def evaluate(self, x: Tensor) -> Tensor:
        return x + through(self.layers, "evaluate", x)

    def sample(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        return x + through(self.layers, "sample", x, generators)

    def forward(self, x: Tensor, generators: list[torch.Generator]) -> Tensor:
        y = through(self.layers, "forward", x, generators)
        return torch.add(x, y, out=self.space("y", *y.shape, like=y))

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        inner: Any = gradient.clone()  # layers may overwrite it
        for layer in reversed(self.layers):
            inner = layer.backward(inner, accumulate, True)
        return inner.add_(gradient)


LAYERS: dict[type[nn.Module], Callable[[Any, Tensors], Layer]] = {
    nn.Linear: _Linear, nn.BatchNorm1d: _BatchNorm, nn.Dropout: _Dropout, NumberEmbedding: _NumberEmbedding,
    Levels: _Levels, SmoothClip: _SmoothClip, Skip: _Skip, **dict.fromkeys(_FUNCTIONS, _Activation),
}  # fmt: skip


class Tensors(NamedTuple):
    """What belongs to a layer, by the names that the layer's module has for it."""

    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def of(self, layer: str) -> Tensors:
        """What belongs to one of its parts."""
        prefix = f"{layer}."
        return Tensors(*({n.removeprefix(prefix): t for n, t in part.items() if n.startswith(prefix)} for part in self))


def _rows(tensor: Tensor | None) -> Any:
    """`[member, feature]` → `[member, 1, feature]`, to broadcast over a batch."""
    return None if tensor is None else tensor.unsqueeze(1)


def make_layers(module: nn.Module, tensors: Tensors) -> list[Layer]:
    """The layers of a sequence."""
    return [LAYERS[type(part)](part, tensors.of(name)) for name, part in module.named_children()]


def network_layers(module: nn.Module, tensors: Tensors) -> list[Layer]:
    """The layers of a whole network, whose first and last linear layer keep others from writing into what leaves it."""
    layers = make_layers(module, tensors)
    linear = [layer for layer in _flat(layers) if isinstance(layer, _Linear)]
    linear[0].first = linear[-1].last = True
    return layers


def _flat(layers: Sequence[Layer]) -> Iterator[Layer]:
    """The layers in order, those within skips too."""
    for layer in layers:
        yield from _flat(layer.layers) if isinstance(layer, _Skip) else (layer,)


def through(layers: Sequence[Layer], method: str, x: Tensor, *others: Any) -> Tensor:
    """What a method of each layer in turn makes of a value."""
    for layer in layers:
        x = getattr(layer, method)(x, *others)
    return x

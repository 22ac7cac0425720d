"""Layers of all members of plain networks at once: batched matrix products and backward passes by hand."""

import copy
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from deep_ensembles._random import drawn
from deep_ensembles.networks.periodic_mlp import Levels, NumberEmbedding, Skip, SmoothClip, Values, Vectors

_aten = torch.ops.aten
Generators = list[torch.Generator]  # one for each member, or none without noise


# Of activations: y for x, `out` given; and the gradient of x from that of y, put in place of y.
_FUNCTIONS: dict[type[nn.Module], tuple[Callable[..., Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (
        lambda x, out: torch.clamp_min(x, 0, out=out),
        lambda gradient, x, y: _aten.threshold_backward.grad_input(gradient, y, 0, grad_input=y),
    ),
    nn.Tanh: (torch.tanh, lambda gradient, x, y: _aten.tanh_backward.grad_input(gradient, y, grad_input=y)),
    nn.Sigmoid: (torch.sigmoid, lambda gradient, x, y: _aten.sigmoid_backward.grad_input(gradient, y, grad_input=y)),
    nn.GELU: (_aten.gelu.out, lambda gradient, x, y: _aten.gelu_backward.grad_input(gradient, x, grad_input=y)),
}


class Tensors(NamedTuple):
    """What belongs to a layer, by the names that the layer's module has for it."""

    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def of(self, layer: str) -> "Tensors":
        """What belongs to one of its parts."""
        prefix = f"{layer}."
        return Tensors(*({n.removeprefix(prefix): t for n, t in part.items() if n.startswith(prefix)} for part in self))


class Layer:
    """One layer of all members: an evaluation, and a training pass that remembers what its backward pass needs."""

    spaces: dict[tuple[str, tuple[int, ...]], Tensor]

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        """What it makes of a value after training; with generators, the noise of dropout is left on."""
        apart = copy.copy(self)  # a pass remembers: threads that predict side by side must not share that
        apart.spaces = {}
        return apart.forward(x, [])

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        raise NotImplementedError

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        """Put (or add) the gradients of parameters where they belong; that of the input if it is needed.

        The gradient it is given stays as it is; what `forward` remembers may be overwritten.
        """
        raise NotImplementedError

    def space(self, name: str, *shape: int, like: Tensor) -> Tensor:
        """Memory that is used again in each step: large activations would otherwise be mapped and unmapped each time."""
        key = name, shape
        if key not in self.spaces:
            self.spaces[key] = like.new_empty(shape)
        return self.spaces[key]


class _Linear(Layer):
    """y = x Wᵀ + b: `[member, batch, in]` × `[member, out, in]` → `[member, batch, out]`."""

    is_last = False  # of the network: what leaves it must not be overwritten by the next step

    def __init__(self, module: nn.Linear, tensors: Tensors) -> None:
        self.spaces, self.gradients = {}, tensors.gradients
        self.weight, self.bias = tensors.parameters["weight"], _rows(tensors.parameters.get("bias"))

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        self.x = x
        if self.is_last:
            # Each raw output contiguous over the batch: the criterion's small operations on one of them are faster.
            y = torch.bmm(self.weight, x.mT).mT
            return y if self.bias is None else y.add_(self.bias)
        return self._product(x, self.space("y", *x.shape[:2], self.weight.shape[1], like=x))

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        return self._product(x)

    def _product(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        if self.bias is None:
            return torch.bmm(x, self.weight.mT, out=out)
        return torch.baddbmm(self.bias, x, self.weight.mT, out=out)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        self.gradients["weight"].baddbmm_(gradient.mT, self.x, beta=int(accumulate))
        if self.bias is not None:
            _keep(self.gradients["bias"], gradient.sum(1), accumulate)
        return torch.bmm(gradient, self.weight, out=self.space("x", *self.x.shape, like=self.x)) if needed else None


class _BatchNorm(Layer):
    """y = w (x - mean) / sqrt(variance + ε) + b over each member's own batch."""

    def __init__(self, module: nn.BatchNorm1d, tensors: Tensors) -> None:
        self.module, self.buffers, self.gradients = module, tensors.buffers, tensors.gradients
        self.weight, self.bias = _rows(tensors.parameters["weight"]), _rows(tensors.parameters["bias"])

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        mean, variance = (_rows(self.buffers[name]) for name in ("running_mean", "running_var"))
        factor = self.weight * (variance + self.module.eps).rsqrt()
        return torch.addcmul(self.bias - mean * factor, x, factor)

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
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
        _keep(self.gradients["weight"], of_weight, accumulate)
        _keep(self.gradients["bias"], of_bias, accumulate)
        n = gradient.shape[1]
        centred = self.normal.mul_(of_weight / -n).add_(gradient).sub_(of_bias / n)
        del self.normal
        return centred.mul_(self.inverse * self.weight)


class _Activation(Layer):
    def __init__(self, module: nn.Module, tensors: Tensors) -> None:
        self.module, self.spaces = module, {}
        self.function, self.derivative = _FUNCTIONS[type(module)]

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        y: Tensor = self.module(x)
        return y

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        self.x, self.y = x, self.function(x, out=self.space("y", *x.shape, like=x))
        return self.y

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return self.derivative(gradient, self.x, self.y)


class _SiLU(Layer):
    """y = x s with s = 1 / (1 + exp(-x)), and y′ = s + y (1 - s); torch's own take twice the time."""

    def __init__(self, module: nn.SiLU, tensors: Tensors) -> None:
        self.spaces = {}

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        return torch.sigmoid(x).mul_(x)

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        self.s = torch.sigmoid(x, out=self.space("s", *x.shape, like=x))
        self.y = torch.mul(x, self.s, out=self.space("y", *x.shape, like=x))
        return self.y

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return self.y.addcmul_(self.y, self.s, value=-1).add_(self.s).mul_(gradient)


class _Dropout(Layer):
    def __init__(self, module: nn.Dropout, tensors: Tensors) -> None:
        self.rate = module.p

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        return self.forward(x, generators) if generators else x

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
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

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        x = x.clamp(-SmoothClip.LARGEST, SmoothClip.LARGEST)
        self.inverse = torch.addcmul(x.new_ones(()), x, x, value=self.limit**-2).rsqrt_()
        return x * self.inverse

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        return gradient * self.inverse.pow_(3)


class _NumberEmbedding(Layer):
    """y = [x, Vᵀ f(x)] for each number; `[member · number, feature, batch]` while it lasts: products are fastest so."""

    def __init__(self, module: NumberEmbedding, tensors: Tensors) -> None:
        self.spaces, (self.n_inputs, self.n, n_waves, _, self.n_outputs) = {}, module.sizes
        own = Tensors(*({name: tensor.flatten(0, 1) for name, tensor in part.items()} for part in tensors))
        self.parts: list[Layer] = [_Waves(n_waves, module.RATE, own)] if n_waves else []
        has_bins = "slope" in own.buffers and bool(own.buffers["slope"].any())  # where no member has them, they cost nothing
        self.parts += [_Bins(n_waves, own)] if has_bins or not n_waves else []
        device = own.parameters["weight"].device
        self.columns = None if module.columns is None else torch.tensor(module.columns, device=device)

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        return self._joined(x, None, "evaluate", generators)

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        n_features = self.n_inputs + self.n * self.n_outputs
        return self._joined(x, self.space("y", len(x), n_features, x.shape[1], like=x), "forward", generators)

    def _joined(self, x: Tensor, out: Tensor | None, method: str, generators: Generators) -> Tensor:
        numbers = x.mT.contiguous()
        chosen = (numbers if self.columns is None else numbers[:, self.columns]).flatten(0, 1).unsqueeze(1)
        embedded = reduce(Tensor.add_, (getattr(part, method)(chosen, generators) for part in self.parts))
        return torch.cat([numbers, embedded.view(len(x), self.n * self.n_outputs, x.shape[1])], 1, out=out).mT

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        of_embedded = gradient[..., self.n_inputs :].mT.reshape(-1, self.n_outputs, gradient.shape[1])
        parts: list[Any] = [part.backward(of_embedded, accumulate, needed) for part in self.parts]
        if not needed:
            return None
        of_x = gradient[..., : self.n_inputs].clone()
        of_numbers = reduce(Tensor.add_, parts).view(len(gradient), self.n, -1).mT
        return of_x.add_(of_numbers) if self.columns is None else of_x.index_add_(2, self.columns, of_numbers)


class _Waves(Layer):
    """y = Vᵀ cos(r (w x + b)) for each number."""

    def __init__(self, n_waves: int, rate: float, tensors: Tensors) -> None:
        self.spaces, self.rate, self.weight = {}, rate, tensors.parameters["weight"][:, :n_waves]
        self.frequency, self.phase = (tensors.parameters[name].unsqueeze(2) for name in ("frequency", "phase"))
        self.gradients = tensors.gradients | {n: t[:, :n_waves] for n, t in tensors.gradients.items() if n == "weight"}

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        shape, self.x = (*self.phase.shape[:2], x.shape[2]), x
        self.angle, self.cosine = (self.space(name, *shape, like=x) for name in ("angle", "cosine"))
        torch.baddbmm(self.phase, self.frequency, x, beta=self.rate, alpha=self.rate, out=self.angle)
        _fast(torch.cos, np.cos, self.angle, self.cosine)
        return torch.bmm(self.weight.mT, self.cosine, out=self.space("y", len(x), self.weight.shape[2], x.shape[2], like=x))

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        _keep(self.gradients["weight"], torch.bmm(self.cosine, gradient.mT), accumulate)
        _fast(torch.sin, np.sin, self.angle, self.angle)
        of_cosine = torch.baddbmm(self.cosine, self.weight, gradient, beta=0, alpha=-self.rate, out=self.cosine)
        of_angle = of_cosine.mul_(self.angle)
        _keep(self.gradients["frequency"], torch.bmm(of_angle, self.x.mT), accumulate)
        _keep(self.gradients["phase"], of_angle.sum(2), accumulate)
        return torch.bmm(self.frequency.mT, of_angle) if needed else None


def _fast(function: Callable[..., Tensor], on_cpu: Callable[..., Any], x: Tensor, out: Tensor) -> None:
    """A function of a tensor, by NumPy's vector instructions on CPUs, where torch's sine and cosine take twice the time."""
    on_cpu(x.numpy(), out=out.numpy()) if x.device.type == "cpu" else function(x, out=out)


class _Bins(Layer):
    """y = Vᵀ f(x) with f = (x - start) · slope, at least 0 and at most 1, for each number."""

    def __init__(self, n_waves: int, tensors: Tensors) -> None:
        self.spaces, self.weight = {}, tensors.parameters["weight"][:, n_waves:]
        self.gradients = {name: tensor[:, n_waves:] for name, tensor in tensors.gradients.items() if name == "weight"}
        self.start, self.slope = (tensors.buffers[name].unsqueeze(2) for name in ("start", "slope"))

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        self.x, self.features = x, self.space("features", *self.start.shape[:2], x.shape[2], like=x)
        torch.sub(x, self.start, out=self.features).mul_(self.slope).clamp_(0, 1)
        return torch.bmm(self.weight.mT, self.features)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        _keep(self.gradients["weight"], torch.bmm(gradient, self.features.mT).mT, accumulate)
        return self._of_x(gradient) if needed else None

    def _of_x(self, gradient: Tensor) -> Tensor:
        """f changes with x only in the one bin that x is in."""
        edges = self.start[:, 1:, 0].masked_fill(self.slope[:, 1:, 0] == 0, torch.inf)
        place = torch.searchsorted(edges, self.x.squeeze(1), right=True).unsqueeze(1)
        share, slope = self.features.gather(1, place), self.slope.mT.gather(2, place)
        of_share = (gradient * self.weight.mT.gather(2, place.expand_as(gradient))).sum(1, keepdim=True)
        return of_share.mul_(slope).masked_fill_((share == 0) | (share == 1), 0)


class _Vectors(Layer):
    """A vector for each value, `[member · column, value, output]`; the gradient of a vector is the sum over its rows."""

    def __init__(self, module: Vectors, tensors: Tensors) -> None:
        self.module, self.weight, self.gradients = module, tensors.parameters["weight"], tensors.gradients
        self.columns = torch.tensor(module.columns, device=self.weight.device)
        self.buffers = [tensors.buffers[name] for name in module.BUFFERS]

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        n_members, n, n_values, n_outputs = self.weight.shape
        chosen = x[..., self.columns]
        places = self.module.places(chosen.mT.contiguous(), self.buffers[0], self.buffers[1])
        if generators:
            places *= drawn("bernoulli_", chosen, generators, 1 - self.module.UNKNOWN).mT.long()
        # [member, batch, column]: the vectors of all columns and members are rows of one matrix.
        first = torch.arange(n_members * n, device=x.device).view(n_members, 1, n) * n_values
        self.index = (places.mT + first).flatten()
        vectors = self.weight.view(-1, n_outputs).index_select(0, self.index)
        return torch.cat([self._others(x), vectors.view(*x.shape[:2], -1)], 2)

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor | None:
        n_inputs, n_outputs = self.module.in_features, self.weight.shape[3]
        total = self.gradients["weight"] if accumulate else self.gradients["weight"].zero_()
        total.view(-1, n_outputs).index_add_(0, self.index, gradient[..., n_inputs:].reshape(-1, n_outputs))
        return self._others(gradient[..., :n_inputs]) if needed else None

    def _others(self, x: Tensor) -> Tensor:
        """Numbers that no vector stands for."""
        return x.index_fill(2, self.columns, 0) if self.module.replaces else x


def _keep(total: Tensor, part: Tensor, accumulate: bool) -> None:
    """Put a gradient where it belongs, or add it."""
    part = part.reshape(total.shape)
    total.add_(part) if accumulate else total.copy_(part)


class _Skip(Layer):
    """y = x + f(x)."""

    def __init__(self, module: Skip, tensors: Tensors) -> None:
        self.layers, self.spaces = make_layers(module, tensors), {}

    def evaluate(self, x: Tensor, generators: Generators) -> Tensor:
        return x + through(self.layers, "evaluate", x, generators)

    def forward(self, x: Tensor, generators: Generators) -> Tensor:
        y = through(self.layers, "forward", x, generators)
        return torch.add(x, y, out=self.space("y", *y.shape, like=y))

    def backward(self, gradient: Tensor, accumulate: bool, needed: bool) -> Tensor:
        inner: Any = gradient
        for layer in reversed(self.layers):
            inner = layer.backward(inner, accumulate, True)
        return inner.add_(gradient)


LAYERS: dict[type[nn.Module], Callable[[Any, Tensors], Layer]] = {
    nn.Linear: _Linear, nn.BatchNorm1d: _BatchNorm, nn.Dropout: _Dropout, NumberEmbedding: _NumberEmbedding,
    Levels: _Vectors, Values: _Vectors, SmoothClip: _SmoothClip, Skip: _Skip, nn.SiLU: _SiLU,
    **dict.fromkeys(_FUNCTIONS, _Activation),
}  # fmt: skip


def _rows(tensor: Tensor | None) -> Any:
    """`[member, feature]` → `[member, 1, feature]`, to broadcast over a batch."""
    return None if tensor is None else tensor.unsqueeze(1)


def make_layers(module: nn.Module, tensors: Tensors) -> list[Layer]:
    """The layers of a sequence."""
    return [LAYERS[type(part)](part, tensors.of(name)) for name, part in module.named_children()]


def through(layers: Sequence[Layer], method: str, x: Tensor, generators: Generators) -> Tensor:
    """What a method of each layer in turn makes of a value."""
    for layer in layers:
        x = getattr(layer, method)(x, generators)
    return x

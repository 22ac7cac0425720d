"""What members promise: M networks as one layer with a forward and a backward pass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Self


@dataclass
class Traits:
    """What is known of networks besides their tensors, shared by all parts of a stack.

    Arguments:
        noisy: whether a training pass may draw random numbers, so that seeds matter.
        quiet: whether none has been seen to, so that it is tried without the machinery for it.
        channels_last: whether images are best given to a training pass with the channels of a pixel side by side.
    """

    noisy: bool = True
    quiet: bool = False
    channels_last: bool = False


class Members(ABC):
    """Networks of one architecture, the member axis always first.

    Calling them evaluates. `forward` and `backward` train: together they are one layer whose gradient lands in
    `gradients`, so that whatever trains members never asks how they are run.

    Arguments:
        modules: the networks, or one of them as a template.
        parameters: name → `[member, *shape]`, what is trained.
        buffers: name → `[member, *shape]`, what is not: running statistics, frozen parameters.
    """

    kind: ClassVar[str]
    uses_autograd: ClassVar[bool] = True

    def __init__(self, modules: Sequence[nn.Module], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]):
        self.modules = list(modules)
        self.parameters = FlatStack(parameters)
        self.buffers = {name: tensor.detach().clone() for name, tensor in buffers.items()}
        self.gradients: FlatStack | None = None
        self.traits = Traits()
        self._use(self.parameters.views, {}, self.buffers)

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> Self:
        """Members made of networks that were built one by one."""
        return cls(modules, *stacked_state(modules))

    def _use(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        """Compute with these views from now on; without gradients the members can only evaluate."""
        self._views, self._gradients, self._buffers = parameters, gradients, buffers
        self._bind(parameters)

    @abstractmethod
    def _bind(self, parameters: dict[str, Tensor]) -> None:
        """Take up new views of the parameters (gradients and buffers are in `_gradients` and `_buffers`)."""

    @abstractmethod
    def __call__(self, inputs: Tensor) -> Tensor:
        """Evaluate: `[member, batch, *features]` → raw `[member, batch, raw]`, no graph kept."""

    @abstractmethod
    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        """Evaluate with the noise of training (dropout) left on: one draw per member, from its seed."""

    @abstractmethod
    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        """A training pass; `seeds` drive each member's own dropout. The raw output carries no graph."""

    @abstractmethod
    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        """Put (or add) the parameters' gradient into `gradients`; return the inputs' if `forward` was asked to."""

    def __len__(self) -> int:
        return next(len(tensor) for tensor in (self._views | self._buffers).values())

    @property
    def device(self) -> torch.device:
        return next(tensor.device for tensor in (self.parameters.views | self.buffers).values())

    def prepare(self) -> FlatStack:
        """Make room for gradients and return it."""
        self.gradients = self.parameters.zeros_like()
        self._use(self.parameters.views, self.gradients.views, self.buffers)
        return self.gradients

    def gradient_views(self) -> list[Tensor]:
        """The tensors that `backward` writes into."""
        return list(self._gradients.values())

    def window(self, start: int, stop: int) -> Members:
        """Members start … stop-1 as views: training the window trains these members."""
        if (start, stop) == (0, len(self)):
            return self
        other = self._shell(range(start, stop))
        parts = (self._views, self._gradients, self._buffers)
        other._use(*({name: tensor[start:stop] for name, tensor in part.items()} for part in parts))
        return other

    def alone(self) -> Sequence[Members]:
        """Windows that are best trained one after another: of a stack it is itself, the only one."""
        return (self,)

    def select(self, members: Sequence[int]) -> Members:
        """Copies of some members."""
        index = torch.as_tensor(members, device=self.device)
        buffers = {name: tensor.index_select(0, index) for name, tensor in self.buffers.items()}
        chosen = type(self)(self._modules_of(members), self.parameters.select(members).views, buffers)
        chosen.traits = self.traits
        return chosen

    def to(self, device: torch.device) -> Members:
        """The same members on another device."""
        parameters = {name: tensor.to(device) for name, tensor in self.parameters.views.items()}
        buffers = {name: tensor.to(device) for name, tensor in self.buffers.items()}
        return type(self)([module.to(device) for module in self.modules], parameters, buffers)

    def _modules_of(self, members: Sequence[int]) -> list[nn.Module]:
        return self.modules

    def _shell(self, members: Sequence[int]) -> Members:
        other = object.__new__(type(self))
        other.modules = self._modules_of(members)
        other.traits = self.traits
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        parameters = {name: tensor.clone() for name, tensor in self.parameters.views.items()}
        return type(self), (self.modules, parameters, self.buffers)


def with_noise(module: nn.Module) -> nn.Module:
    """Put a network into training mode, except for layers that keep running statistics."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            part.eval()
    return module


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a network that training changes."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def untrained(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network that gradient descent leaves alone: buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return frozen | {name: buffer.detach() for name, buffer in module.named_buffers()}


def check_same_shapes(modules: Sequence[nn.Module]) -> None:
    """Networks must have the same tensors, some of them to train."""
    shapes = [{n: tuple(t.shape) for n, t in (trainable(m) | untrained(m)).items()} for m in modules]
    if any(each != shapes[0] for each in shapes):
        raise ValueError("the network factory must build the same architecture each time, got different shapes")
    if not trainable(modules[0]):
        raise ValueError("the network must have parameters to train, got none")


def stacked_state(modules: Sequence[nn.Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of all networks, stacked."""
    states = [[state(m) for m in modules] for state in (trainable, untrained)]
    parameters, buffers = ({name: torch.stack([s[name] for s in each]) for name in each[0]} for each in states)
    return parameters, buffers


class FlatStack:
    """Tensors `[run, *shape]` laid out one after another in one flat buffer.

    Each tensor is contiguous, and so is any range of its runs: kernels write into it directly, one optimiser call
    updates everything, and a window on some runs is a view.

    Arguments:
        tensors: name → `[run, *shape]`, all of one floating dtype, device and number of runs. They are copied.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        dtypes = {tensor.dtype for tensor in tensors.values()}
        if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
            raise TypeError(f"parameters must share one floating-point dtype, got {sorted(map(str, dtypes))}")
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        parts = [tensor.detach().reshape(-1) for tensor in tensors.values()]
        self.flat = torch.cat(parts) if parts else torch.empty(0)
        self.views = self._cut(self.flat)

    def _cut(self, flat: Tensor) -> dict[str, Tensor]:
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = flat.split(sizes) if sizes else ()
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def copy(self) -> FlatStack:
        """The same numbers in a buffer of their own."""
        return FlatStack(self.views)

    def zeros_like(self) -> FlatStack:
        """A stack of the same layout, filled with zeros."""
        return FlatStack({name: torch.zeros_like(view) for name, view in self.views.items()})

    def select(self, runs: Sequence[int]) -> FlatStack:
        """A new stack with copies of some runs."""
        index = torch.as_tensor(runs, device=self.flat.device)
        return FlatStack({name: view.index_select(0, index) for name, view in self.views.items()})

    def finite(self) -> Tensor:
        """Whether all numbers of each run are finite, `[run]`."""
        if bool(self.flat.sum().isfinite()):
            return torch.ones(len(next(iter(self.views.values()))), dtype=torch.bool)
        checks = [view.flatten(1).isfinite().all(1) for view in self.views.values()]
        return torch.stack(checks).all(0).cpu()

    def norms(self, start: int, stop: int) -> Tensor:
        """The Euclidean norm of each run's numbers in a range of runs, `[run]`."""
        squares = [view[start:stop].flatten(1).square().sum(1) for view in self.views.values()]
        return torch.stack(squares).sum(0).sqrt()


def copy_runs(source: Mapping[str, Tensor], target: Mapping[str, Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    """Copy runs of every tensor: pairs of (run in `source`, run in `target`)."""
    if not pairs:
        return
    for name, tensor in source.items():
        index = torch.as_tensor(pairs, device=tensor.device)
        target[name].index_copy_(0, index[:, 1], tensor.index_select(0, index[:, 0]))

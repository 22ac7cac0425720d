"""Members: M networks as one layer, and the flat buffer that holds their parameters."""

from __future__ import annotations

import copy
import dataclasses
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from typing_extensions import Self

from deep_ensembles.networks.periodic_mlp import Vectors

_VECTOR = 64  # numbers in the longest loop of vector instructions


@dataclasses.dataclass
class Traits:
    """What is known of networks besides their tensors, shared by all windows on a stack.

    Arguments:
        needs_seeds: whether a training pass may draw random numbers.
        deterministic: whether none was drawn when it was tried, so that passes go without the machinery for it until one is.
        channels_last: whether images are best given to a training pass with the channels of a pixel side by side.
        bf16: whether training passes multiply in bfloat16, as far as torch's autocast does.
    """

    needs_seeds: bool = True
    deterministic: bool = False
    channels_last: bool = False
    bf16: bool = False


class Members(ABC):
    """Networks of one architecture, the member axis always first.

    Calling them evaluates. `forward` and `backward` train: together they are one layer whose gradient lands in
    `gradients`, so that whatever trains members never asks how they are run.

    Members own their modules: `assemble`, `select`, `to` and pickling copy them. Only a `window` shares, with its source.

    Arguments:
        modules: the networks, or one of them as a template; in the mode (`train()`, `eval()`) that each part is trained in.
        parameters: name → `[member, *shape]`, what is trained.
        buffers: name → `[member, *shape]`, what is not: running statistics, frozen parameters.
    """

    kind: ClassVar[str]
    uses_autograd: ClassVar[bool] = True
    one_module_per_member: ClassVar[bool] = False

    def __init__(self, modules: Sequence[nn.Module], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]):
        self.modules = list(modules if self.one_module_per_member else modules[:1])
        self._parts_in_eval = [parts_in_eval(module) for module in self.modules]
        self.parameters = FlatStack(parameters)
        self.buffers = {name: tensor.detach().clone() for name, tensor in buffers.items()}
        self.gradients: FlatStack | None = None
        self.traits = Traits()
        self._use(self.parameters.views, {}, self.buffers)

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> Self:
        """Members made of networks that were built one by one, and are theirs from now on."""
        states = [[state(module) for module in modules] for state in (trainable, untrained)]
        return cls(modules, *({name: torch.stack([s[name] for s in part]) for name in part[0]} for part in states))

    def _use(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        """Compute with these views from now on; without gradients the members can only evaluate."""
        self._views, self._gradients, self._buffers = parameters, gradients, buffers
        self._bind(parameters)

    @abstractmethod
    def _bind(self, parameters: dict[str, Tensor]) -> None:
        """Take up new views of the parameters (gradients and buffers are in `_gradients` and `_buffers`)."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Evaluate: `[member, batch, *features]` → raw `[member, batch, raw]`, no graph kept."""
        return self.sample(inputs, ())

    @abstractmethod
    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        """Evaluate with the noise of training, dropout, left on: one draw per member from its seed, or none without."""

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

    def changing_views(self) -> list[Tensor]:
        """The tensors that a training pass may change: gradients, and running statistics among the buffers."""
        return [*self._gradients.values(), *self._buffers.values()]

    def window(self, start: int, stop: int) -> Members:
        """Members start … stop-1 as views: training the window trains these members."""
        if (start, stop) == (0, len(self)):
            return self
        other = object.__new__(type(self))
        numbers = self._module_numbers(range(start, stop))
        other.modules = [self.modules[n] for n in numbers]
        other._parts_in_eval = [self._parts_in_eval[n] for n in numbers]
        other.traits = self.traits
        parts = (self._views, self._gradients, self._buffers)
        other._use(*({name: tensor[start:stop] for name, tensor in part.items()} for part in parts))
        return other

    def training_units(self) -> Sequence[Members]:
        """Parts that are trained one after another; a stack is a single part."""
        return (self,)

    def select(self, members: Sequence[int]) -> Members:
        """Copies of some members."""
        index = torch.as_tensor(members, device=self.device)
        chosen = self._copy(self._module_numbers(members), lambda tensor: tensor.index_select(0, index))
        chosen.traits = dataclasses.replace(self.traits)
        return chosen

    def to(self, device: torch.device) -> Members:
        """Copies of all members on a device."""
        return self._copy(range(len(self.modules)), lambda tensor: tensor.to(device), device)

    def _copy(
        self, numbers: Sequence[int], change: Callable[[Tensor], Tensor], device: torch.device | None = None
    ) -> Members:
        parts = (self.parameters.views, self.buffers)
        parameters, buffers = ({name: change(tensor) for name, tensor in part.items()} for part in parts)
        return type(self)([self._module_copy(n).to(device) for n in numbers], parameters, buffers)

    def _module_copy(self, number: int) -> nn.Module:
        return train_mode(copy_module(self.modules[number]), self._parts_in_eval[number])

    def _module_numbers(self, members: Sequence[int]) -> Sequence[int]:
        return members if self.one_module_per_member else (0,)

    def _train_mode(self, number: int = 0) -> nn.Module:
        return train_mode(self.modules[number], self._parts_in_eval[number])

    def _sample_mode(self, number: int = 0) -> nn.Module:
        """A network as in training, except for layers that keep running statistics, and categories, which stay known."""
        module = self._train_mode(number)
        for part in module.modules():
            if isinstance(part, (nn.modules.batchnorm._NormBase, Vectors)):
                part.training = False
        return module

    def __reduce__(self) -> tuple[Any, ...]:
        parameters = {name: tensor.clone() for name, tensor in self.parameters.views.items()}
        return type(self), ([self._module_copy(n) for n in range(len(self.modules))], parameters, self.buffers)


def concatenated_members(parts: Sequence[Members]) -> Members:
    """Members of the same kind and architecture as one."""
    states = [(part.parameters.views, part.buffers) for part in parts]
    tensors = ({name: torch.cat([state[i][name] for state in states]) for name in states[0][i]} for i in (0, 1))
    modules = [part._module_copy(n) for part in parts for n in range(len(part.modules))]
    return type(parts[0])(modules, *tensors)


class AutogradMembers(Members):
    """Members that autograd differentiates: `forward` keeps a graph from `_leaves` and inputs to the raw output."""

    _leaves: list[Tensor]

    @abstractmethod
    def _pass(self, seeds: Sequence[int] | None) -> Tensor | None:
        """The raw output for `_inputs` in training, each member's random numbers from its seed.

        Without seeds, for networks that draw no random numbers; None if one does after all.
        """

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        self._inputs = inputs.detach().requires_grad_(input_gradient)
        half = torch.autocast(inputs.device.type, torch.bfloat16) if self.traits.bf16 else nullcontext()
        with torch.enable_grad(), half:
            found = self._deterministic_pass() if self.traits.deterministic else None
            raw = cast(Tensor, self._pass(seeds)) if found is None else found
            self._raw = raw.float() if self.traits.bf16 else raw
        return self._raw.detach()

    def _deterministic_pass(self) -> Tensor | None:
        """A pass without seeds; if a network draws a random number, which may be late, nothing has happened."""
        before = {name: tensor.clone() for name, tensor in self._buffers.items()}
        raw = self._pass(None)
        if raw is None:
            for name, tensor in before.items():
                self._buffers[name].copy_(tensor)
            self.traits.deterministic = False
        return raw

    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        if not accumulate:
            for gradient in self._gradients.values():
                gradient.zero_()
        inputs = [self._inputs] if self._inputs.requires_grad else []
        self._raw.backward(raw_gradient, inputs=self._leaves + inputs)  # networks may use modules that are not theirs
        input_gradient = self._inputs.grad
        del self._raw, self._inputs
        return input_gradient


def copy_module(module: nn.Module) -> nn.Module:
    """A network that shares nothing with this one; weights that are tied inside of it stay tied."""
    held = [value for part in module.modules() for value in tree_leaves(vars(part)) if isinstance(value, Tensor)]
    held = [tensor for tensor in held if not isinstance(tensor, nn.Parameter) and not nn.parameter.is_lazy(tensor)]
    # `deepcopy` would take the whole of what a view shows a part of, and refuses tensors with a graph.
    loose = [tensor for tensor in held if not (tensor.is_leaf and tensor.requires_grad)]
    memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in loose}
    parts = {id(part) for part in (*module.modules(), *module.parameters(), *module.buffers())}
    if any(id(value) in parts for part in module.modules() for value in _enclosed(part)):
        raise TypeError(f"members share nothing, but {type(module).__name__} cannot be copied (a hook or function in it "
                        "refers to a part of it); use a method of the module instead")  # fmt: skip
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise TypeError(f"members share nothing, but {type(module).__name__} cannot be copied ({problem}); "
                        "keep what is no part of the network out of it, or give it a `__deepcopy__`") from error  # fmt: skip


def _enclosed(part: nn.Module) -> list[Any]:
    """What functions held by a part of a network take from their surroundings, where a copy cannot follow."""
    functions = [*vars(part).values(), *(hook for kind in hooks(part) for hook in kind.values())]
    cells = [cell for function in functions for cell in getattr(function, "__closure__", None) or ()]
    return [cell.cell_contents for cell in cells if cell != types.CellType()]


def hooks(module: nn.Module) -> tuple[Mapping[int, Any], ...]:
    """The hooks of a module by kind."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def parts_in_eval(module: nn.Module) -> list[int]:
    """The numbers of those parts of a network that are in evaluation mode, such as a batch norm with frozen statistics."""
    return [number for number, part in enumerate(module.modules()) if not part.training]


def train_mode(module: nn.Module, in_eval: Sequence[int]) -> nn.Module:
    """Put a network into training mode, except for these parts; an overridden `train` may return nothing."""
    module.train()
    parts = list(module.modules()) if in_eval else []
    for number in in_eval:
        parts[number].training = False
    return module


def eval_mode(module: nn.Module) -> nn.Module:
    """Put a network into evaluation mode."""
    module.eval()
    return module


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a network that training changes."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def untrained(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network that gradient descent leaves alone: buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return frozen | {name: buffer.detach() for name, buffer in module.named_buffers()}


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
        parts = [tensor.detach().reshape(-1) for tensor in tensors.values()]
        sizes = [len(part) for part in parts]
        # Filled up with zeros: vector instructions that leave no rest round each number alike, wherever it stands.
        self.flat = torch.cat([*parts, parts[0].new_zeros(-sum(sizes) % _VECTOR)])
        blocks = self.flat[: sum(sizes)].split(sizes)
        self.views = {name: block.view(tensors[name].shape) for name, block in zip(tensors, blocks, strict=True)}

    def zeros_like(self) -> FlatStack:
        """A stack of the same layout, filled with zeros."""
        return FlatStack({name: torch.zeros_like(view) for name, view in self.views.items()})


def copy_members(source: Members, target: Members, pairs: Sequence[tuple[int, int]] | None = None) -> None:
    """Copy the tensors of members: pairs of (member of `source`, member of `target`), or None for all."""
    tensors = target.parameters.views | target.buffers
    for name, tensor in (source.parameters.views | source.buffers).items():
        if pairs is None:
            tensors[name].copy_(tensor)
        elif pairs:
            index = torch.as_tensor(pairs, device=tensor.device)
            tensors[name].index_copy_(0, index[:, 1], tensor.index_select(0, index[:, 0]))

"""Members of any architecture, differentiated automatically: one after another, or as one stack through `torch.func`."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from deep_ensembles._random import MemberNoise, seeded, torch_generators
from deep_ensembles.members._base import AutogradMembers, Members, eval_mode


class Looped(AutogradMembers):
    """Every member is called by itself, as plain PyTorch; its parameters are views of the common buffer."""

    kind: ClassVar[str] = "looped"
    one_module_per_member: ClassVar[bool] = True

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._leaves = []
        for m, module in enumerate(self.modules):
            named = dict(module.named_parameters())
            for name, stacked in parameters.items():
                named[name].data = stacked[m]
                named[name].grad = self._gradients[name][m] if self._gradients else None
                self._leaves.append(named[name])
            for name, stacked in self._buffers.items():
                _set(module, name, stacked[m])

    def training_units(self) -> Sequence[Members]:
        """Single members, so that only one member's activations are in memory at a time."""
        if not hasattr(self, "_units"):
            self._units = [self.window(m, m + 1) for m in range(len(self))]
        return self._units

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        outputs = []
        for m, (module, x) in enumerate(zip(self.modules, inputs, strict=True)):
            with torch.no_grad(), _noise(seeds[m], x.device) if seeds else nullcontext():
                outputs.append((self._sample_mode(m) if seeds else eval_mode(module))(x))
        return torch.stack(outputs)

    def _pass(self, seeds: Sequence[int] | None) -> Tensor | None:
        outputs, untouched = [], torch.get_rng_state() if seeds is None else None
        for m, x in enumerate(self._inputs):
            module, arranged = self._train_mode(m), channels_last(x) if self.traits.channels_last else x
            with nullcontext() if seeds is None else _noise(seeds[m], x.device):
                outputs.append(module(arranged))
            # A module may replace a buffer rather than write into it: bring the new value into the common tensor.
            for name, buffer in module.named_buffers():
                if name in self._buffers and buffer.data_ptr() != self._buffers[name][m].data_ptr():
                    self._buffers[name][m] = buffer.detach()
                    _set(module, name, self._buffers[name][m])
        if untouched is not None and not torch.equal(torch.get_rng_state(), untouched):
            torch.set_rng_state(untouched)
            return None
        return torch.stack(outputs)


@contextmanager
def _noise(seed: int, device: torch.device) -> Iterator[None]:
    """All random numbers of a network from one seed."""
    with seeded(seed, device), MemberNoise(torch.Generator(device).manual_seed(seed)):
        yield


def channels_last(images: Tensor) -> Tensor:
    """The same images, with the channels of each pixel side by side; layers keep to the order they are given."""
    return torch.empty_like(images, memory_format=torch.channels_last).copy_(images)


def _set(module: nn.Module, name: str, value: Tensor) -> None:
    """Put `value` in place of a buffer or a frozen parameter, by its dotted name."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    if last in owner._parameters:
        owner.get_parameter(last).data = value
    else:
        owner._buffers[last] = value


class Stacked(AutogradMembers):
    """One vectorised call runs all members; batch norm works because its running statistics are stacked too."""

    kind: ClassVar[str] = "stacked"

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._stacks = {name: tensor.detach().requires_grad_(bool(self._gradients)) for name, tensor in parameters.items()}
        for name, gradient in self._gradients.items():
            self._stacks[name].grad = gradient
        self._leaves = list(self._stacks.values())
        self._aliases = _aliases(self.modules[0])

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        template, randomness = (self._sample_mode(), "different") if seeds else (eval_mode(self.modules[0]), "error")
        with torch.no_grad(), MemberNoise(torch_generators(seeds, inputs.device)) if seeds else nullcontext():
            return self._run(template, inputs, randomness)

    def _pass(self, seeds: Sequence[int] | None) -> Tensor | None:
        if seeds is not None:
            with MemberNoise(torch_generators(seeds, self._inputs.device)):
                return self._run(self._train_mode(), self._inputs, "different")
        try:
            return self._run(self._train_mode(), self._inputs, "error")
        except RuntimeError as error:
            if "random" not in str(error):
                raise
            return None

    def _run(self, template: nn.Module, inputs: Tensor, randomness: str) -> Tensor:
        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
            state = parameters | buffers
            state |= {alias: state[name] for alias, name in self._aliases.items()}
            return torch.func.functional_call(template, state, (x,), tie_weights=False)

        with _operations_with_a_batching_rule():
            return torch.func.vmap(one, randomness=randomness)(self._stacks, self._buffers, inputs)


def _aliases(module: nn.Module) -> dict[str, str]:
    """Other names of shared parameters and buffers, one per place: other name → the name it is stacked under.

    `functional_call` could tie weights by itself, but leaves a stray tensor behind where one module has two names.
    """
    names: dict[int, str] = {}
    aliases = {}
    for path, part in module.named_modules():  # each of them once
        for last, tensor in (part._parameters | part._buffers).items():
            name = f"{path}.{last}" if path else last
            if tensor is not None and names.setdefault(id(tensor), name) != name:
                aliases[name] = names[id(tensor)]
    return aliases


# The switches below are torch's and hold for the whole process, and a template serves one call at a time.
_SWITCHED = threading.RLock()


@contextmanager
def _operations_with_a_batching_rule() -> Iterator[None]:
    """Attention by plain matrix products: its fused kernels would be run member by member under `vmap`."""
    with _SWITCHED, sdpa_kernel(SDPBackend.MATH), ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        yield

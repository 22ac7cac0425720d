"""Members of any architecture as one stack, through `torch.func`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from deep_ensembles.members._base import Members, with_noise
from deep_ensembles.members.noise import MemberNoise


class Stacked(Members):
    """One vectorised call runs all members; batch norm works because its running statistics are stacked too."""

    kind: ClassVar[str] = "stacked"

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._leaves = {name: tensor.detach().requires_grad_(bool(self._gradients)) for name, tensor in parameters.items()}
        for name, gradient in self._gradients.items():
            self._leaves[name].grad = gradient
        self._aliases = _aliases(self.modules[0])

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self._run(self.modules[0].eval(), inputs, "error")

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        with torch.no_grad(), MemberNoise(seeds, inputs.device):
            return self._run(with_noise(self.modules[0]), inputs, "different")

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        self._inputs = inputs.detach().requires_grad_(input_gradient)
        noise = MemberNoise(seeds, inputs.device) if self.noisy else nullcontext()
        with torch.enable_grad(), noise:
            self._raw = self._run(self.modules[0].train(), self._inputs, "different" if self.noisy else "error")
        return self._raw.detach()

    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        if not accumulate:
            for gradient in self._gradients.values():
                gradient.zero_()
        self._raw.backward(raw_gradient)
        input_gradient = self._inputs.grad
        del self._raw, self._inputs
        return input_gradient

    def _run(self, template: nn.Module, inputs: Tensor, randomness: str) -> Tensor:
        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
            state = parameters | buffers
            state |= {alias: state[name] for alias, name in self._aliases.items()}
            out: Tensor = functional_call(template, state, (x,), tie_weights=False)
            return out

        with _operations_with_a_batching_rule():
            raw: Tensor = vmap(one, randomness=randomness)(self._leaves, self._buffers, inputs)
        return raw


def _aliases(module: nn.Module) -> dict[str, str]:
    """Other names of shared parameters and buffers, one per place: other name → the name it is stacked under.

    `functional_call` could tie weights by itself, but leaves a stray tensor behind where one module has two names.
    """
    names: dict[int, str] = {}
    places: set[tuple[int, str]] = set()
    aliases = {}
    everything = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in everything:
        path, _, last = name.rpartition(".")
        place = id(module.get_submodule(path)), last
        if id(tensor) in names and place not in places:
            aliases[name] = names[id(tensor)]
        names.setdefault(id(tensor), name)
        places.add(place)
    return aliases


@contextmanager
def _operations_with_a_batching_rule() -> Iterator[None]:
    """Attention by plain matrix products: its fused kernels would be run member by member under `vmap`."""
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if fused:
            stack.callback(torch.backends.mha.set_fastpath_enabled, True)
            torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield

"""Members of any architecture as one stack, through `torch.func`."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from deep_ensembles._random import MemberNoise, torch_generators
from deep_ensembles.members._base import AutogradMembers, eval_mode


class Stacked(AutogradMembers):
    """One vectorised call runs all members; batch norm works because its running statistics are stacked too."""

    kind: ClassVar[str] = "stacked"

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._stacks = {name: tensor.detach().requires_grad_(bool(self._gradients)) for name, tensor in parameters.items()}
        for name, gradient in self._gradients.items():
            self._stacks[name].grad = gradient
        self._leaves = list(self._stacks.values())
        self._aliases = _aliases(self.modules[0])

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self._run(eval_mode(self.modules[0]), inputs, "error")

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        with torch.no_grad(), MemberNoise(torch_generators(seeds, inputs.device)):
            return self._run(self._sample_mode(), inputs, "different")

    def _seeded_pass(self, seeds: Sequence[int]) -> Tensor:
        with MemberNoise(torch_generators(seeds, self._inputs.device)):
            return self._run(self._train_mode(), self._inputs, "different")

    def _unseeded_pass(self) -> Tensor | None:
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
    places: set[tuple[int, str]] = set()
    aliases = {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        path, _, last = name.rpartition(".")
        place = id(module.get_submodule(path)), last
        if id(tensor) in names and place not in places:
            aliases[name] = names[id(tensor)]
        names.setdefault(id(tensor), name)
        places.add(place)
    return aliases


# The switches below are torch's and hold for the whole process, and a template serves one call at a time.
_SWITCHED = threading.RLock()


@contextmanager
def _operations_with_a_batching_rule() -> Iterator[None]:
    """Attention by plain matrix products: its fused kernels would be run member by member under `vmap`."""
    with _SWITCHED, ExitStack() as stack:
        fused = torch.backends.mha.get_fastpath_enabled()
        if fused:
            stack.callback(torch.backends.mha.set_fastpath_enabled, True)
            torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield

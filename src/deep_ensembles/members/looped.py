"""Members one after another: works for every module, and is what the faster ways are compared with."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from deep_ensembles._random import MemberNoise, seeded
from deep_ensembles.members._base import Members, eval_mode


class Looped(Members):
    """Every member is called by itself, as plain PyTorch; its parameters are views of the common buffer."""

    kind: ClassVar[str] = "looped"
    one_module_per_member: ClassVar[bool] = True

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._leaves: list[Tensor] = []
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

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.stack([eval_mode(module)(x) for module, x in zip(self.modules, inputs, strict=True)])

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        outputs = []
        for m, (x, seed) in enumerate(zip(inputs, seeds, strict=True)):
            with torch.no_grad(), seeded(seed, x.device), MemberNoise([seed], x.device, stacked=False):
                outputs.append(self._sample_mode(m)(x))
        return torch.stack(outputs)

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        arranged = map(channels_last, inputs) if self.traits.channels_last else inputs
        self._inputs = [x.detach().requires_grad_(input_gradient) for x in arranged]
        with torch.enable_grad():
            outputs = self._deterministic_pass() if self.traits.deterministic else None
            self._raw = torch.stack(self._seeded_pass(seeds) if outputs is None else outputs)
        return self._raw.detach()

    def _seeded_pass(self, seeds: Sequence[int]) -> list[Tensor]:
        outputs = []
        for m, (x, seed) in enumerate(zip(self._inputs, seeds, strict=True)):
            with seeded(seed, x.device), MemberNoise([seed], x.device, stacked=False):
                outputs.append(self._train_mode(m)(x))
            self._keep_buffers(m)
        return outputs

    def _deterministic_pass(self) -> list[Tensor] | None:
        """A pass for networks that draw no random numbers; if one does after all, it is as if nothing had happened."""
        before, state = {name: tensor.clone() for name, tensor in self._buffers.items()}, torch.get_rng_state()
        outputs = []
        for m, x in enumerate(self._inputs):
            outputs.append(self._train_mode(m)(x))
            self._keep_buffers(m)
        if torch.equal(torch.get_rng_state(), state):
            return outputs
        torch.set_rng_state(state)
        for name, tensor in before.items():
            self._buffers[name].copy_(tensor)
        self.traits.deterministic = False
        return None

    def _keep_buffers(self, m: int) -> None:
        """A module may replace a buffer rather than write into it: bring the new value into the common tensor."""
        module = self.modules[m]
        for name, buffer in module.named_buffers():
            if name in self._buffers and buffer.data_ptr() != self._buffers[name][m].data_ptr():
                self._buffers[name][m] = buffer.detach()
                _set(module, name, self._buffers[name][m])

    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        if not accumulate:
            for gradient in self._gradients.values():
                gradient.zero_()
        inputs = [x for x in self._inputs if x.requires_grad]
        self._raw.backward(raw_gradient, inputs=self._leaves + inputs)  # networks may use modules that are not theirs
        gradients = [x.grad for x in self._inputs if x.grad is not None]
        del self._raw, self._inputs
        return torch.stack(gradients) if gradients else None


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

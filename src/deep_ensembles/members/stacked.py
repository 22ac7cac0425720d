"""Members of any architecture as one stack, through `torch.func`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from deep_ensembles._random import torch_generators
from deep_ensembles.members._base import Members


class Stacked(Members):
    """One vectorised call runs all members; batch norm works because its running statistics are stacked too."""

    kind: ClassVar[str] = "stacked"

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        self._leaves = {name: tensor.detach().requires_grad_(bool(self._gradients)) for name, tensor in parameters.items()}
        for name, gradient in self._gradients.items():
            self._leaves[name].grad = gradient

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self._run(self.modules[0].eval(), inputs, "error")

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
            out: Tensor = functional_call(template, (parameters, buffers), (x,))
            return out

        with _operations_with_a_batching_rule():
            raw: Tensor = vmap(one, randomness=randomness)(self._leaves, self._buffers, inputs)
        return raw


class MemberNoise(TorchDispatchMode):
    """Random numbers drawn inside a vectorised call come from one generator per member.

    Below `vmap`, a random operation sees the whole stack `[member, …]`. Each member's slice is filled from a generator
    seeded for it, which gives what the member would draw alone after `torch.manual_seed(seed)`.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.used = False
        self._generators = torch_generators(seeds, device)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.used = True
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        if name in ("bernoulli", "rand_like", "randn_like", "normal_functional", "native_dropout"):
            return self._functional(name, args, kwargs)
        if name in ("rand", "randn"):
            out = torch.empty(args[0], **{k: v for k, v in kwargs.items() if k != "generator"})
            return self._fill("uniform_" if name == "rand" else "normal_", out)
        if name in ("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "log_normal_", "geometric_"):
            return self._fill(name, *args)
        raise NotImplementedError(f"no per-member form of the random operation {name}")

    def _functional(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "native_dropout":
            inputs, rate, _ = args
            kept = self._fill("bernoulli_", torch.empty_like(inputs), 1 - rate)
            return inputs * kept / max(1 - rate, torch.finfo(inputs.dtype).tiny), kept.bool()
        if name == "bernoulli" and len(args) == 1:
            return torch.stack([torch.bernoulli(p, generator=g) for p, g in zip(args[0], self._generators, strict=True)])
        fill = {"bernoulli": "bernoulli_", "rand_like": "uniform_"}.get(name, "normal_")
        return self._fill(fill, torch.empty_like(args[0]), *args[1:])

    def _fill(self, name: str, out: Tensor, *args: Any) -> Tensor:
        for part, generator in zip(out, self._generators, strict=True):
            getattr(part, name)(*args, generator=generator)
        return out


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

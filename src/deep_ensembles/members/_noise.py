"""Random numbers inside networks: each member draws from its own generator, however members are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from deep_ensembles._random import torch_generators

_FILLS = {"bernoulli_", "uniform_", "normal_", "exponential_", "random_", "log_normal_", "geometric_", "cauchy_"}


class MemberNoise(TorchDispatchMode):
    """Random operations of a forward pass (dropout above all) draw from generators seeded per member.

    Below `vmap`, an operation sees the whole stack `[member, …]`, and each member's slice is filled from its own
    generator. Run for a single member, it sees that member's tensor. Either way numbers are drawn in the order of the
    elements, not of memory, so a member draws the same numbers in a stack and alone.

    Arguments:
        seeds: one per member.
        stacked: whether tensors have a leading member axis; without it there must be one seed.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device, stacked: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.used = False
        self._generators = torch_generators(seeds, device)
        self._stacked = stacked

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.used = True
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        if name in _FILLS:
            return args[0].copy_(self._drawn(name, args[0].shape, args[0], *args[1:]))
        if name in ("rand", "randn"):
            like = torch.empty(0, **{key: value for key, value in kwargs.items() if key != "generator"})
            return self._drawn("uniform_" if name == "rand" else "normal_", args[0], like)
        if name in ("rand_like", "randn_like"):
            return self._drawn("uniform_" if name == "rand_like" else "normal_", args[0].shape, args[0])
        if name == "bernoulli" and len(args) == 2:
            return self._drawn("bernoulli_", args[0].shape, args[0], args[1])
        if name == "bernoulli":
            return (self._drawn("uniform_", args[0].shape, args[0]) < args[0]).to(args[0].dtype)
        if name == "native_dropout":
            return self._dropped(*args[:2])
        if self._stacked:
            raise NotImplementedError(f"no per-member form of the random operation {name}")
        return func(*args, **kwargs)

    def _dropped(self, inputs: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        kept = self._drawn("bernoulli_", inputs.shape, inputs, 1 - rate)
        return inputs * kept / (1 - rate) if rate < 1 else torch.zeros_like(inputs), kept.bool()

    def _drawn(self, fill: str, shape: Sequence[int], like: Tensor, *args: Any) -> Tensor:
        out = torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
        for part, generator in zip(out if self._stacked else [out], self._generators, strict=True):
            getattr(part, fill)(*args, generator=generator)
        return out

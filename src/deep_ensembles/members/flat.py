"""Named tensors of many runs as views of one flat buffer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


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

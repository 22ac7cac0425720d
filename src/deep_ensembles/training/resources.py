"""What a training takes of the machine: multiplications, threads, memory."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from joblib import cpu_count
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from deep_ensembles._random import seeded
from deep_ensembles.members import copy_module

_THREADED_WORK = 1e8  # multiplications of a step from which several threads gain more than they wait
_COPIES = 7  # of the weights: themselves, gradients, two moments, the best, an average, and what is given back


def work_per_row(n_parameters: int, inputs: Tensor) -> int:
    """About how many multiplications a pass over a row takes; `inputs` are a few rows `[row, *features]`.

    Every parameter is used once, or at every place of a picture, sequence or text.

    Example:
        >>> work_per_row(1000, torch.zeros(2, 10)), work_per_row(1000, torch.zeros(2, 3, 8, 8))
        (1000, 64000)
    """
    features = inputs.shape[1:]
    return n_parameters * math.prod(features[1:] if inputs.is_floating_point() else features)


@contextmanager
def limited_threads(work: float) -> Iterator[None]:
    """One thread for steps of so few multiplications that others would only wait; never more than cores that we may use."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, cpu_count()) if work >= _THREADED_WORK else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_memory(n_weights: int, n_bytes: float, at_once: int = 1) -> None:
    """Raise if weights, and data of so many bytes, of trainings that go on at once do not fit into memory."""
    needed, free = at_once * (4.0 * _COPIES * n_weights + n_bytes), free_memory()
    if needed > free:
        several = f" in {at_once} processes at once" if at_once > 1 else ""
        raise MemoryError(f"training needs about {needed / 1e9:.1f} GB{several} and {free / 1e9:.1f} GB are free; lower "
                          "`n_members`, `batch_size` or the size of networks, use fewer processes, or stream the "
                          "rows (docs/scale.md)")  # fmt: skip


def kept_bytes(network: nn.Module, inputs: Tensor) -> int:
    """Bytes that the backward pass keeps of each row `[row, *features]` of pictures, sequences or tokens.

    For rows of plain numbers, and networks that cannot be tried yet, it is 0.
    """
    is_plain = inputs.dim() < 3 and inputs.is_floating_point()
    if is_plain or any(nn.parameter.is_lazy(parameter) for parameter in network.parameters()):
        return 0
    kept, tried = dict[int, int](), copy_module(network).cpu().eval()

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    row = inputs[:1].to(torch.float32 if inputs.dtype == torch.uint8 else inputs.dtype, copy=True)
    with suppress(Exception), seeded(0), torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        tried(row)  # what is wrong with a network is told where it is used
    weights = {parameter.untyped_storage().data_ptr() for parameter in tried.parameters()}
    return sum(size for place, size in kept.items() if place not in weights)


def free_memory() -> float:
    """Bytes that this process may still take, as far as the system says."""
    about = Path("/proc/meminfo")
    free = about.read_text().partition("MemAvailable:")[2].split() if about.exists() else []
    return min([memory_limit(), *(1024 * float(kilobytes) for kilobytes in free[:1])])


def memory_limit(root: Path = Path("/")) -> float:
    """Bytes that this process may use, whatever others use now: those of the machine, or of its control groups if less."""
    limits = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))] if hasattr(os, "sysconf") else [math.inf]
    own, home = root / "proc/self/cgroup", root / "sys/fs/cgroup"
    groups = [Path(line.split(":")[2].strip("/")) for line in own.read_text().splitlines()] if own.exists() else []
    for place in {Path(), *groups, *(parent for group in groups for parent in group.parents)}:
        for path in (home / place / "memory.max", home / "memory" / place / "memory.limit_in_bytes"):
            text = path.read_text().strip() if path.is_file() else ""
            limits += [float(text)] if text.isdigit() else []
    return min(limits)

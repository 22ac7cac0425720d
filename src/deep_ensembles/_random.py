"""Random numbers: one seed becomes independent streams, by run and purpose.

`random_state` is turned into a `numpy.random.SeedSequence` once. Run *i* gets the seed that child *i* of that sequence
yields, and everything random about the run is keyed by (its seed, a purpose, a counter). Nothing depends on how many
runs there are, in which order they are trained, or on the state of a global generator.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

RandomState = int | np.integer | np.random.RandomState | np.random.Generator | np.random.SeedSequence | None
Generators = torch.Generator | Sequence[torch.Generator] | None
# The random operations that fill a tensor in place.
_FILLS = {"bernoulli_", "uniform_", "normal_", "exponential_", "random_", "log_normal_", "geometric_", "cauchy_"}
# Those that make a tensor, by the operation that fills it.
_MADE = {"rand": "uniform_", "randn": "normal_", "rand_like": "uniform_", "randn_like": "normal_"}


class Purpose(IntEnum):
    """What a stream is for; two purposes never share random numbers."""

    INITIALISATION = 0
    ORDER = 1
    RESAMPLING = 2
    VALIDATION = 3
    NOISE = 4
    AUGMENTATION = 5
    UNLABELLED = 6


def seed_sequence(random_state: RandomState) -> np.random.SeedSequence:
    """Turn anything scikit-learn or NumPy users call a random state into a seed sequence."""
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(0, 2**32, size=4, dtype=np.uint32).tolist())
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(random_state.randint(0, 2**31 - 1, size=4).tolist())
    if random_state is None or (isinstance(random_state, (int, np.integer)) and random_state >= 0):
        return np.random.SeedSequence(None if random_state is None else int(random_state))
    raise ValueError(f"`random_state` must be None, an integer ≥ 0 or a NumPy generator, got {random_state!r}")


def run_seeds(random_state: RandomState, n_runs: int) -> list[int]:
    """The seeds of runs 0 … n-1; the seed of run i does not depend on n."""
    root = seed_sequence(random_state)
    children = (np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, i)) for i in range(n_runs))
    return [int(child.generate_state(1, np.uint64)[0]) for child in children]


def stream(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """A NumPy generator for one run, one purpose and (say) one epoch."""
    return np.random.default_rng((seed, purpose, *counters))


def torch_seed(seed: int, purpose: Purpose, *counters: int) -> int:
    """A seed for torch's generators, for one run, one purpose and (say) one step."""
    return int(np.random.SeedSequence((seed, purpose, *counters)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generators(seeds: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """One torch generator per run, each started at its own seed."""
    return [torch.Generator(device).manual_seed(seed) for seed in seeds]


def drawn(fill: str, like: Tensor, generator: Generators, *arguments: float) -> Tensor:
    """Numbers of the shape of `like` by an operation such as `normal_`; with one generator per run, each from its own."""
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    for part, of_part in zip(out, generator, strict=True) if isinstance(generator, Sequence) else [(out, generator)]:
        getattr(part, fill)(*arguments, generator=of_part)
    return out


def random_signs(like: Tensor, generator: Generators) -> Tensor:
    """Fair −1 and 1 of the shape of `like`, eight from each random byte; with one generator per run, each run's own."""
    if isinstance(generator, Sequence):
        return torch.stack([random_signs(row, of_run) for row, of_run in zip(like, generator, strict=True)])
    drawn = torch.empty((like.numel() + 7) // 8, dtype=torch.uint8, device=like.device)
    bits = drawn.random_(0, 256, generator=generator).unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=like.device)
    return (bits & 1).flatten()[: like.numel()].reshape(like.shape).to(like.dtype).mul_(2).sub_(1)


# torch has one default generator per process: two threads must not lend it to networks at the same time.
_LENT = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let code that draws from torch's global generator draw from `seed`; the global state is put back afterwards."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with _LENT, torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for gpu in devices:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


class MemberNoise(TorchDispatchMode):
    """Random operations of a forward pass (dropout above all) draw from generators seeded per member.

    Below `vmap`, an operation sees the whole stack `[member, …]`, and each member's slice is filled from its own
    generator. Run for a single member, it sees that member's tensor. Either way numbers are drawn in the order of the
    elements, not of memory, so a member draws the same numbers in a stack and alone.

    Arguments:
        generators: one per member where tensors have a leading member axis; else a single one.
    """

    def __init__(self, generators: torch.Generator | Sequence[torch.Generator]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators = generators

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        if name in _FILLS:
            return args[0].copy_(drawn(name, args[0], self._generators, *args[1:]))
        if name in _MADE:
            options = {key: value for key, value in kwargs.items() if key != "generator"}
            like = args[0] if name.endswith("_like") else torch.empty(args[0], **options)
            return drawn(_MADE[name], like, self._generators)
        if name == "bernoulli" and len(args) == 2:
            return drawn("bernoulli_", args[0], self._generators, args[1])
        if name == "bernoulli":
            return (drawn("uniform_", args[0], self._generators) < args[0]).to(args[0].dtype)
        if name == "native_dropout":
            kept = drawn("bernoulli_", args[0], self._generators, 1 - args[1])
            return args[0] * kept / (1 - args[1]) if args[1] < 1 else torch.zeros_like(args[0]), kept.bool()
        if isinstance(self._generators, torch.Generator):
            return func(*args, **kwargs)
        raise NotImplementedError(f"no per-member form of the random operation {name}")

"""Build one network per seed, and choose how they are run."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deep_ensembles._random import Purpose, seeded, torch_seed
from deep_ensembles.members._base import Members, copy_module, parts_in_eval, train_mode, trainable, untrained
from deep_ensembles.members.any_network import Looped, Stacked, channels_last
from deep_ensembles.members.plain import Plain, is_plain

Factory = Callable[[], nn.Module]
Tensors = Mapping[str, Tensor]

# A stack of convolutions is one grouped convolution, which CPUs compute more slowly than one after another unless they are
# so small that calling them is what takes the time.
_MOST_STACKED_ON_CPU = 4096
# Small convolutions on CPUs mostly wait for memory, and need less of it with channels last; from about half a million
# weights each, it is the other way round.
_MOST_CHANNELS_LAST = 500_000


def assemble(build: Factory, seeds: Sequence[int], example: Tensor, kind: type[Members] | None = None) -> Members:
    """Members from a factory, one network per seed, run in the fastest way that gives what running them singly gives.

    Arguments:
        build: makes one network; called once per member, under the member's seed. Members get a copy of what it returns,
            and train it in the mode that it comes in: parts that were left in `eval()` stay so.
        seeds: one per member.
        example: a few input rows `[batch, *features]` on the device to use, to try the networks on.
        kind: insist on one way instead of choosing.
    """
    modules = _build(build, seeds, example)
    if example.is_floating_point():
        example = example.to(next(modules[0].parameters(), example).dtype)
    obstacle, deterministic = None, False
    alike = len({(repr(module), *(part.training for part in module.modules())) for module in modules}) == 1
    plain = alike and is_plain(modules[0]) and not parts_in_eval(modules[0]) and example.dim() == 2
    if kind is Plain and not plain:
        raise ValueError("`members` must be Stacked or Looped, or None, unless networks are plain perceptrons, got Plain")
    if kind is None:
        kind = Plain if plain else Stacked
        if kind is Stacked and example.device.type == "cpu" and sum(_convolution_weights(modules[0])) > _MOST_STACKED_ON_CPU:
            kind, deterministic = Looped, True
        elif kind is Stacked:
            obstacle, deterministic = _stacking_obstacle(modules, example, alike)
    if obstacle is not None:
        warnings.warn(f"members are run one after another, not as one stack: {obstacle}", UserWarning, stacklevel=2)
        kind = Looped
    members = kind.of(modules)
    members.traits.deterministic = deterministic
    members.traits.channels_last = kind is Looped and _takes_channels_last(modules[0], example)
    return members


def rebuild(
    build: Factory, seeds: Sequence[int], kind: str, parameters: Tensors, buffers: Tensors, example: Tensor, *, trusted: bool
) -> Members:
    """Members from stored tensors; the factory gives the structure, `example` its sizes where they are lazy.

    Arguments:
        trusted: whether the factory is the caller's code. One that a file describes is first built without memory, and
            only so far as there are stored tensors for it.
    """
    kinds: dict[str, type[Members]] = {members.kind: members for members in (Plain, Stacked, Looped)}
    if not trusted:
        with torch.device("meta"), _Limit(2 * len(parameters) + 2 * len(buffers) + 16):
            _check_fits(build(), parameters, buffers)
    modules = _build(build, seeds if kind == Looped.kind else seeds[:1], example)
    _check_fits(modules[0], parameters, buffers)
    if kind == Plain.kind and not is_plain(modules[0]):
        raise ValueError(f"the network does not fit the model: it is no plain perceptron, but {modules[0]}")
    for name, built in untrained(modules[0]).items():  # a mask may hold infinities
        if not bool((buffers[name].isfinite() | (buffers[name] == built)).all()):
            raise ValueError(f"the model's buffer {name} must be finite, got NaN or infinity")
    return kinds[kind](modules, parameters, buffers)


class _Limit(TorchFunctionMode):
    """Stops a factory that makes more tensors than there can be."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= func in (torch.empty, torch.zeros, torch.ones, torch.tensor)
        if self.left < 0:
            raise ValueError("the network does not fit the model: it has more tensors")
        return func(*args, **(kwargs or {}))


def _check_fits(module: nn.Module, parameters: Tensors, buffers: Tensors) -> None:
    """The network must have the stored tensors, of the same shapes (but for the member axis) and types."""
    pairs = {"parameters": (trainable(module), parameters), "buffers": (untrained(module), buffers)}
    for what, (wanted, stored) in pairs.items():
        built = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in wanted.items()}
        kept = {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in stored.items()}
        if built != kept:
            raise ValueError(f"the network does not fit the model: its {what} are {built}, the model's {kept}")


def new_modules(build: Factory) -> Factory:
    """The factory, which is refused when it makes anything but a new module each time."""
    if isinstance(build, nn.Module):
        raise TypeError(f"the network must be a function that builds a torch.nn.Module, got {type(build).__name__}; "
                        "write `lambda: YourModule(...)`")  # fmt: skip
    known = WeakSet[nn.Module]()

    def checked() -> nn.Module:
        built = build()
        if not isinstance(built, nn.Module):
            raise TypeError(f"the network factory must return a torch.nn.Module, got {type(built).__name__}")
        if built in known:
            raise ValueError("the network factory must build a new module each time it is called, got the same one twice")
        known.add(built)
        return built

    return checked


def _build(build: Factory, seeds: Sequence[int], example: Tensor) -> list[nn.Module]:
    build, modules = new_modules(build), []
    for seed in seeds:
        with seeded(torch_seed(seed, Purpose.INITIALISATION)):
            built = build()
        modules.append(_initialised(copy_module(built), seed, example))
    states = [trainable(module) | untrained(module) for module in modules]
    if len({frozenset((name, tensor.shape) for name, tensor in state.items()) for state in states}) > 1:
        raise ValueError("the network factory must build the same architecture each time, got different shapes")
    if not trainable(modules[0]):
        raise ValueError("the network must have parameters to train, got none")
    return modules


def _initialised(module: nn.Module, seed: int, example: Tensor) -> nn.Module:
    """The network with the sizes that the example gives to lazy layers, on the example's device, in the mode of training."""
    in_eval = parts_in_eval(module)
    if any(nn.parameter.is_lazy(p) for p in (*module.parameters(), *module.buffers())):
        with seeded(torch_seed(seed, Purpose.INITIALISATION, 1)), torch.no_grad():
            module.eval()
            module(example.cpu().to(next(module.parameters()).dtype))
    if next(module.parameters(), example).device != example.device:
        module.to(example.device)
    return train_mode(module, in_eval)


def _stacking_obstacle(modules: list[nn.Module], example: Tensor, alike: bool) -> tuple[str | None, bool]:
    """Train for one step both ways on copies: why they may not be stacked (or None), and whether they drew no noise."""
    if not alike:
        return "the networks differ in more than their parameters", False
    looped, stacked = Looped.of(list(map(copy_module, modules))), Stacked.of(list(map(copy_module, modules)))
    seeds = list(range(len(modules)))
    inputs = example.expand(len(modules), *example.shape).clone()
    reference = _outcome(looped, inputs, seeds)
    with warnings.catch_warnings():
        # Where an operation has no vectorised form, vmap warns and runs it member by member.
        warnings.filterwarnings("error", message="There is a performance drop")
        try:
            stacked.traits.deterministic = True  # until a random number is drawn
            outcome = _outcome(stacked, inputs, seeds)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            return f"{type(modules[0]).__name__} cannot be vectorised ({reason[0][:160]})", False
    different = [name for name, expected in reference.items()
                 if not torch.allclose(outcome[name], expected, rtol=1e-3, atol=1e-4, equal_nan=True)]  # fmt: skip
    deterministic = stacked.traits.deterministic
    del looped, stacked, reference, outcome  # large networks need the room
    if different and not _is_rounding(modules, example):
        return f"{type(modules[0]).__name__} gives another {different[0]} when vectorised", False
    return None, deterministic


def _is_rounding(modules: list[nn.Module], example: Tensor) -> bool:
    """Whether both ways agree in float64: many norms over few rows can blow up the rounding of float32 to percents."""
    if next(modules[0].parameters()).dtype == torch.float64:
        return False
    try:
        precise = [copy_module(module).double() for module in modules]
        example = example.double() if example.is_floating_point() else example
        return _stacking_obstacle(precise, example, alike=True)[0] is None
    except (RuntimeError, TypeError):  # a network or a device that has no float64
        return False


def _convolution_weights(module: nn.Module) -> list[int]:
    """How many weights each convolution of a network has."""
    return [part.weight.numel() for part in module.modules() if isinstance(part, nn.modules.conv._ConvNd)]


def _takes_channels_last(module: nn.Module, example: Tensor) -> bool:
    """Whether a network gains from images with channels last, and gives the same: `view` has no way with them."""
    weights = _convolution_weights(module)
    is_small = bool(weights) and sum(weights) <= _MOST_CHANNELS_LAST * len(weights)
    if not is_small or example.dim() != 4 or example.device.type != "cpu" or not example.is_floating_point():
        return False
    try:
        module = copy_module(module)
        with seeded(0), torch.enable_grad():
            module(channels_last(example)).sum().backward()
        module.eval()  # in training mode, norms over few rows blow up the rounding
        with torch.no_grad():
            first, last = (module(images) for images in (example, channels_last(example)))
    except Exception:  # whatever is wrong with the network itself is an error where it is first used
        return False
    return torch.allclose(first, last, rtol=1e-3, atol=1e-4, equal_nan=True)


def _outcome(members: Members, inputs: Tensor, seeds: Sequence[int]) -> dict[str, Tensor]:
    gradients = members.prepare()
    raw = members.forward(inputs, seeds)
    members.backward(torch.ones_like(raw))
    state = {f"buffer {name}": tensor.double() for name, tensor in members.buffers.items()}
    state |= {f"gradient of {name}": tensor for name, tensor in gradients.views.items()}
    return {"training output": raw, "evaluation output": members(inputs)} | state

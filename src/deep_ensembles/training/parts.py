"""Inputs that are a dict or tuple of tensors, or items of a dataset: one flat tensor for all that trains and predicts."""

import inspect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, default_collate

from deep_ensembles._checks import require
from deep_ensembles._random import Purpose, seeded, torch_seed
from deep_ensembles._tensors import check_finite, check_kind, input_tensor, is_dataset, listed
from deep_ensembles.members import Factory, copy_module, new_modules

_WHOLE = {name: getattr(torch, name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")}
_EXACT = 2**24  # whole numbers up to here are exact in float32
_TARGET_KEYS, _WEIGHT_KEY = ("target", "targets", "label", "labels", "y"), "weight"
_MOST_TRIED = 8  # whole-number parts of which every choice is tried


@dataclass(frozen=True)
class InputParts:
    """What the input of a network that takes several tensors is made of.

    `pack` makes it one flat tensor and `unpack` undoes that. All that trains and predicts sees the flat tensor, and only
    the network its parts.

    Arguments:
        names: the keys of a dict; None for a tuple.
        shapes: the shape of a part in one row.
        dtypes: "float" for a part that is standardised and comes in the dtype of the network; for one that the network
            takes as whole numbers or flags, such as tokens or a mask, its dtype.
        precise: whether a part needs float64.

    Example:
        >>> values = {"tokens": torch.tensor([[1, 2], [3, 4]]), "table": torch.tensor([0.5, 1.5])}
        >>> parts = InputParts.of(values)
        >>> parts.pack(values)
        tensor([[1.0000, 2.0000, 0.5000],
                [3.0000, 4.0000, 1.5000]])
        >>> parts.unpack(parts.pack(values))["tokens"]
        tensor([[1, 2],
                [3, 4]])
    """

    names: tuple[str, ...] | None
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    precise: bool = False

    @classmethod
    def of(cls, values: Any) -> "InputParts":
        """The structure of these inputs, a dict or tuple of `[row, …]`."""
        names = tuple(values) if isinstance(values, Mapping) else None
        named = len(values) > 0 and all(isinstance(name, str) for name in names or ())
        require(named, "inputs", "a dict with text as keys, at least one", list(names or ()))
        tensors = _part_tensors(_by_key(values)).values()
        large = [max(map(abs, _extremes(tensor))) > _EXACT for tensor in tensors]
        own = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
        dtypes = [dtype if dtype in _WHOLE and not beyond else "float" for dtype, beyond in zip(own, large, strict=True)]
        precise = any(large) or any(tensor.dtype == torch.float64 for tensor in tensors)
        return cls(names, tuple(tuple(tensor.shape[1:]) for tensor in tensors), tuple(dtypes), precise)

    @classmethod
    def of_item(cls, values: Any) -> "InputParts | None":
        """The structure of the input in an item of a dataset; None if it is one tensor."""
        batch, is_tuple = default_collate([values]), isinstance(values, (tuple, list))
        if isinstance(values, Mapping) or (is_tuple and all(hasattr(part, "shape") for part in values)):
            return cls.of(tuple(batch) if is_tuple else batch)
        if not isinstance(batch, Tensor):
            raise TypeError("the input in items of the dataset must be a tensor or array, or a dict or tuple of them, "
                            f"got {type(values).__name__}")  # fmt: skip
        return None

    @classmethod
    def from_file(cls, data: Any, features: tuple[int, ...]) -> "InputParts":
        """The structure that a model file describes by the fields of this class, if it can be one of `features` numbers."""
        names, shapes, dtypes, precise = (data[field.name] for field in fields(cls))
        keys = range(len(shapes)) if names is None else names
        valid = len({len(keys), len({*keys}), len(shapes), len(dtypes)}) == 1 and type(precise) is bool
        valid = valid and all(type(part) is list for part in (shapes, dtypes, names or [], *shapes))
        valid = valid and (names is None or all(type(name) is str for name in names))
        valid = valid and all(type(size) is int and size >= 1 for shape in shapes for size in shape)
        valid = valid and all(dtype in ("float", *_WHOLE) for dtype in dtypes)
        require(valid and (sum(map(math.prod, shapes)),) == features, "parts", f"of {list(features)} numbers", data)
        return cls(None if names is None else tuple(names), tuple(map(tuple, shapes)), tuple(dtypes), precise)

    def __str__(self) -> str:
        shapes = [str(list(shape)) for shape in self.shapes]
        if self.names is None:
            return f"a tuple of {listed(shapes)}"
        return f"a dict of {listed(f'{name} {shape}' for name, shape in zip(self.names, shapes, strict=True))}"

    @property
    def whole(self) -> tuple[bool, ...]:
        """Whether the network takes a part as whole numbers, which nothing standardises or perturbs."""
        return tuple(dtype != "float" for dtype in self.dtypes)

    def spans(self) -> list[slice]:
        """Where each part is in the flat tensor."""
        ends = itertools.accumulate(map(math.prod, self.shapes), initial=0)
        return [slice(start, stop) for start, stop in itertools.pairwise(ends)]

    def checked(self, values: Any) -> dict[Any, Tensor]:
        """The parts of these inputs as tensors, if they are of this structure."""
        check_kind(values)
        if not isinstance(values, (tuple, list) if self.names is None else Mapping):
            raise TypeError(f"`inputs` must be {self}, got {type(values).__name__}")
        keys, given = self.names or range(len(self.shapes)), _by_key(values)
        for key in (*keys, *given):
            cure = f"{key!r} is {'missing' if key in keys else 'not known'}"
            require(key in keys and key in given, "inputs", str(self), listed(given), cure)
        tensors = _part_tensors({key: given[key] for key in keys})
        for (key, tensor), shape, dtype in zip(tensors.items(), self.shapes, self.dtypes, strict=True):
            name = f"inputs[{key!r}]"
            require(tuple(tensor.shape[1:]) == shape, name, f"of shape {['n', *shape]}", list(tensor.shape))
            if dtype != "float":
                _check_whole(name, tensor, dtype)
        return tensors

    def pack(self, values: Any) -> Tensor:
        """These inputs, a dict or tuple of `[row, …]`, as numbers `[row, number]`."""
        return self.join(self.checked(values).values())

    def join(self, tensors: Iterable[Tensor]) -> Tensor:
        """The same for parts that are checked."""
        dtype = torch.float64 if self.precise else torch.float32
        return torch.cat([part.to(dtype).reshape(len(part), math.prod(part.shape[1:])) for part in tensors], dim=1)

    def unpack(self, flat: Tensor) -> dict[str, Tensor] | tuple[Tensor, ...]:
        """The parts of `[row, number]`."""
        parts = []
        for span, shape, dtype in zip(self.spans(), self.shapes, self.dtypes, strict=True):
            part = flat[:, span].reshape(len(flat), *shape)
            parts.append(part if dtype == "float" else part.round().to(_WHOLE[dtype]))
        return tuple(parts) if self.names is None else dict(zip(self.names, parts, strict=True))


def _by_key(values: Any) -> dict[Any, Any]:
    """The parts of an input by name or position."""
    return dict(values if isinstance(values, Mapping) else enumerate(values))


def _part_tensors(values: dict[Any, Any]) -> dict[Any, Tensor]:
    """The parts of an input as tensors, with as many rows each."""
    tensors = {key: input_tensor(value, f"inputs[{key!r}]") for key, value in values.items()}
    first = next(iter(tensors))
    for key, tensor in tensors.items():
        name, expected = f"inputs[{key!r}]", len(tensors[first])
        require(tensor.dim() > 0 and 0 not in tensor.shape[1:], name, "of shape [row, …]", list(tensor.shape))
        require(len(tensor) == expected, name, f"as long as `inputs[{first!r}]`, {expected} rows", len(tensor))
        if not tensor.is_floating_point() and tensor.dtype not in _WHOLE.values():
            tensors[key] = tensor.long()
    return tensors


def _extremes(tensor: Tensor) -> tuple[int, int]:
    """The least and the greatest of whole numbers; of other tensors 0."""
    if tensor.is_floating_point() or not tensor.numel():
        return 0, 0
    low, high = (tensor.byte() if tensor.dtype == torch.bool else tensor).aminmax()
    return int(low), int(high)


def _check_whole(name: str, tensor: Tensor, dtype: str) -> None:
    if tensor.is_floating_point():
        raise TypeError(f"`{name}` must be whole numbers ({dtype}), as the network takes them, got {tensor.dtype}")
    low, high = (0, 1) if dtype == "bool" else (torch.iinfo(_WHOLE[dtype]).min, torch.iinfo(_WHOLE[dtype]).max)
    low, high, (least, greatest) = max(low, -_EXACT), min(high, _EXACT), _extremes(tensor)
    require(low <= least and greatest <= high, name, f"{dtype} from {low} to {high}", [least, greatest])


def pack_inputs(inputs: Any) -> tuple[Tensor, InputParts | None]:
    """Finite inputs to train on as one tensor `[row, feature, …]`, and what its numbers are if there are several tensors.

    These are a dict, or a tuple of tensors or arrays (not of rows of numbers).
    """
    is_tuple = isinstance(inputs, tuple) and len(inputs) > 0 and all(getattr(part, "shape", ()) for part in inputs)
    if is_tuple or isinstance(inputs, Mapping):
        parts = InputParts.of(inputs)
        tensors = parts.checked(inputs)
        return parts.join([check_finite(f"inputs[{key!r}]", tensor) for key, tensor in tensors.items()]), parts
    x = check_finite("inputs", input_tensor(inputs))
    require(x.dim() >= 2, "inputs", "of shape [row, feature, …]", list(x.shape), "for one feature reshape to (-1, 1)")
    return x, None


def count_rows(inputs: Any, parts: InputParts | None) -> int:
    """How many rows there are in inputs of this structure."""
    several = parts is not None and isinstance(inputs, (Mapping, tuple, list))
    return len(next(iter(_by_key(inputs).values())) if several else inputs)


def input_batches(inputs: Any, size: int, parts: InputParts | None) -> Iterator[Tensor]:
    """Batches of rows of new inputs, packed if there are parts; at least one of a tensor, be it empty."""
    if is_dataset(inputs):
        for numbers in BatchSampler(range(len(inputs)), size, drop_last=False):
            batch = default_collate([_item_input(inputs[number], parts) for number in numbers])
            yield input_tensor(batch) if parts is None else parts.pack(batch)
        return
    tensors = {"": input_tensor(inputs)} if parts is None else parts.checked(inputs)
    for start in range(0, max(1, len(next(iter(tensors.values())))), size):
        rows = [tensor[start : start + size] for tensor in tensors.values()]
        yield rows[0] if parts is None else parts.join(rows)


def split_item(item: Any, names: Sequence[str] = (), *, labelled: bool = True) -> tuple[Any, Any, Any]:
    """Input, target and weight of a dataset's item, or of a batch of collated items.

    Arguments:
        item: `(input, target)`, `(input, target, weight)`, or a dict with a target, maybe a weight, and the input: the value
            that is left, or the dict of all that are left.
        names: keys of the input, where they are known.
        labelled: whether there must be a target; without, an item may be the input alone.
    """
    if isinstance(item, Mapping):
        present = [name for name in _TARGET_KEYS if name in item and name not in names]
        if len(present) > 1 or (labelled and not present):
            raise TypeError("items of the dataset must have one target, under the key `target`, `label` or `y`, got the "
                            f"keys {listed(item)}; or return (input, target)")  # fmt: skip
        rest = dict(item)
        target = rest.pop(present[0]) if present else None
        weight = None if _WEIGHT_KEY in names else rest.pop(_WEIGHT_KEY, None)
        return next(iter(rest.values())) if len(rest) == 1 and not names else rest, target, weight
    is_sequence = isinstance(item, (tuple, list))
    if labelled and not (is_sequence and len(item) in (2, 3)):
        raise TypeError("items of the dataset must be (input, target) or (input, target, weight), or a dict with the key "
                        f"`target`, got {type(item).__name__}")  # fmt: skip
    values, target, weight = (*(item if is_sequence else [item]), None, None)[:3]
    return values, target, weight


def _item_input(item: Any, parts: InputParts | None) -> Any:
    """The input in an item of a dataset to predict for; the item itself may be a tuple of parts."""
    names = None if parts is None else parts.names
    is_tuple = parts is not None and names is None and isinstance(item, (tuple, list))
    return item if is_tuple and not isinstance(item[0], (tuple, list)) else split_item(item, names or (), labelled=False)[0]


class PartsNetwork(nn.Module):
    """A network of parts as a network of one flat tensor.

    It is called with the tensors of a tuple one by one, and with a dict, or by keyword where its `forward` names the keys.
    """

    def __init__(self, network: nn.Module, parts: InputParts) -> None:
        super().__init__()
        self.network, self.parts = network, parts
        accepted = inspect.signature(network.forward).parameters
        named = len(accepted) > 1 and set(parts.names or ()) <= set(accepted)
        self.by_keyword = named or all(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())

    def forward(self, flat: Tensor) -> Any:
        """What the network returns for the parts."""
        parts = self.parts.unpack(flat)
        if isinstance(parts, tuple):
            return self.network(*parts)
        return self.network(**parts) if self.by_keyword else self.network(parts)

    def extra_repr(self) -> str:
        """The structure, which must be the same in a checkpoint."""
        return str(self.parts)


class NetworkFactory:
    """A factory of networks that take one flat tensor instead of parts, if there are any.

    Its first network may be built already. Sent to another process, it builds all of them.
    """

    def __init__(self, build: Factory, parts: InputParts | None = None) -> None:
        self.build, self.parts = build, parts
        self._new = new_modules(build)
        self.first: list[nn.Module] = []

    def __call__(self) -> nn.Module:
        network = self.first.pop() if self.first else self._new()
        return network if self.parts is None else PartsNetwork(network, self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return NetworkFactory, (self.build, self.parts)


def choose_inputs(
    build: Factory, example: Tensor, parts: InputParts | None, standardize: Any, seed: int
) -> tuple[NetworkFactory, InputParts | None, Any]:
    """Whether whole numbers reach the network as they are or standardised, by trying the first network on two rows.

    A tensor of whole numbers is standardised unless the network refuses that (as an embedding does); whole-number parts
    are standardised if the network refuses them as they are. Returns the factory to train, the parts, and whether to
    standardise.

    Arguments:
        example: two rows, packed if there are parts.
        seed: that of the first run, whose network is built here and not again.
    """
    factory = NetworkFactory(build)
    with seeded(torch_seed(seed, Purpose.INITIALISATION)):
        network = factory()
    factory.first = [network]
    if parts is not None:
        factory.parts = parts = _choose_parts(network, example, parts, standardize)
    elif standardize and not example.is_floating_point():
        standardize = _refusal(network, _signs(example)) is None or _refusal(network, example) is not None
    return factory, parts, standardize


def _choose_parts(network: nn.Module, example: Tensor, parts: InputParts, standardize: bool) -> InputParts:
    """The parts with as few whole numbers made floats as the network needs."""
    numbers = [number for number, whole in enumerate(parts.whole) if whole]
    dtype = next(network.parameters(), example).dtype
    if numbers and torch.finfo(dtype).eps > torch.finfo(torch.float32).eps:
        raise TypeError(f"whole numbers in `inputs` need a network with parameters of float32 or float64, got {dtype}")
    errors = []
    for floats in _choices(numbers, parts.dtypes) if standardize else [()]:
        dtypes = tuple("float" if number in floats else dtype for number, dtype in enumerate(parts.dtypes))
        chosen, tried = replace(parts, dtypes=dtypes), example.clone()
        for span in (parts.spans()[number] for number in floats):
            tried[:, span] = _signs(tried[:, span])
        errors.append(_refusal(PartsNetwork(network, chosen), tried))
        if errors[-1] is None:
            return chosen
    reason = f"{type(errors[0]).__name__}: {errors[0]}".splitlines()[0][:120]
    raise TypeError(f"the network must take {parts}, which it refuses ({reason})") from errors[0]


def _choices(numbers: Sequence[int], dtypes: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Which parts to make floats, few first: all of a dtype together, as columns of counts are alike, then one by one."""
    alike = [[number for number in numbers if dtypes[number] == dtype] for dtype in _WHOLE if dtype in dtypes]
    for n in range(len(alike) + 1):
        yield from (tuple(itertools.chain(*groups)) for groups in itertools.combinations(alike, n))
    for n in range(1, len(numbers)) if len(numbers) <= _MOST_TRIED else (1, len(numbers) - 1):
        yield from itertools.combinations(numbers, n)


def _signs(example: Tensor) -> Tensor:
    """Standardised numbers to try, negative ones among them, which a network that makes them an index refuses."""
    signs = torch.tensor([-1.0, 1.0])[: len(example)]
    return signs.reshape(-1, *[1] * (example.dim() - 1)).expand(example.shape)


def _refusal(network: nn.Module, inputs: Tensor) -> Exception | None:
    """What a copy of the network raises for these inputs."""
    network = copy_module(network).cpu()
    network.eval()
    if inputs.is_floating_point():
        inputs = inputs.to(next(network.parameters(), inputs).dtype)
    try:
        with seeded(0), torch.no_grad():
            network(inputs)
    except Exception as error:
        return error
    return None

"""What users may pass as inputs, and what they may not: each refusal is one sentence with the cure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from deep_ensembles._tensors import as_tensor

_KINDS = "a tensor, an array, a dict or tuple of them, or a map-style dataset"
_MAP_STYLE = "each member draws its own order of rows, so give it `__len__` and `__getitem__`"
_CURES = (
    (DataLoader, "pass its `.dataset`, and `batch_size=` for the size of a batch"),
    (IterableDataset, _MAP_STYLE),
    (Iterator, "collect its rows first, as in `torch.stack(list(rows))`"),
    ((str, bytes), "read the file or encode the text first"),
)
_TARGET_KEYS, _WEIGHT_KEY = ("target", "targets", "label", "labels", "y"), "weight"


def is_dataset(inputs: Any) -> bool:
    """Whether rows are read one by one: a torch `Dataset`, or what has its two methods and is no sequence or array."""
    check_kind(inputs)
    if isinstance(inputs, (Tensor, Sequence, Mapping, type)) or hasattr(inputs, "__array__"):
        return False
    return isinstance(inputs, Dataset) or (hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"))


def is_parts(inputs: Any) -> bool:
    """Whether these are inputs of several tensors: a dict, or a tuple of tensors or arrays (not of rows of numbers)."""
    if isinstance(inputs, Mapping):
        return True
    return isinstance(inputs, tuple) and len(inputs) > 0 and all(getattr(part, "shape", ()) for part in inputs)


def check_kind(inputs: Any, name: str = "inputs") -> None:
    """Refuse, with the cure, what holds data but not as rows that can be taken by number."""
    kind, cure = type(inputs).__name__, next((cure for kind, cure in _CURES if isinstance(inputs, kind)), "")
    if isinstance(inputs, Tensor) and inputs.layout != torch.strided:
        kind, cure = "sparse Tensor", "make it dense with `.to_dense()`"
    elif hasattr(inputs, "toarray") and hasattr(inputs, "nnz"):
        cure = "make it dense with `.toarray()`"
    elif isinstance(inputs, list) and inputs and isinstance(inputs[0], Mapping):
        kind, cure = "list of dicts", "pass a dict of tensors, as `torch.utils.data.default_collate(rows)` makes"
    elif isinstance(inputs, Dataset) and not hasattr(inputs, "__len__"):
        cure = _MAP_STYLE
    elif not cure and hasattr(inputs, "__iter__") and not (hasattr(inputs, "__getitem__") or hasattr(inputs, "__array__")):
        cure = "it has no `__getitem__` to take a row by its number; collect its rows first"
    if cure:
        raise TypeError(f"`{name}` must be {_KINDS}, got {kind}; {cure}")


def input_tensor(inputs: Any, name: str = "inputs") -> Tensor:
    """Inputs that are one tensor, array, frame or list of rows, as a tensor."""
    check_kind(inputs, name)
    if isinstance(inputs, Mapping):
        raise TypeError(f"`{name}` must be one tensor or array, got {type(inputs).__name__} of {listed(inputs)}")
    try:
        return as_tensor(name, inputs)
    except TypeError:
        for column in inputs.columns if hasattr(inputs, "dtypes") and hasattr(inputs, "columns") else ():
            if (kind := np.asarray(inputs[column]).dtype).kind not in "biuf":
                raise TypeError(f"`{name}` must be numbers, got {kind} in the column {column!r}; encode it, or fit a "
                                "`DeepEnsembleRegressor` or `DeepEnsembleClassifier`") from None  # fmt: skip
        raise
    except ValueError as error:
        raise ValueError(f"`{name}` must be rows of one shape, got {type(inputs).__name__} ({str(error)[:120]})") from error


def check_finite(name: str, tensor: Tensor) -> Tensor:
    """The tensor, if it has no NaN or infinity: the least and the greatest tell, and need no copy of the data."""
    if tensor.is_floating_point() and tensor.numel() and not all(math.isfinite(float(end)) for end in tensor.aminmax()):
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return tensor


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
        others = {*present, _WEIGHT_KEY} - {*names}
        rest = {name: value for name, value in item.items() if name not in others}
        values = next(iter(rest.values())) if len(rest) == 1 and not names else rest
        return values, item[present[0]] if present else None, item[_WEIGHT_KEY] if _WEIGHT_KEY in {*item} & others else None
    if labelled and not (isinstance(item, (tuple, list)) and len(item) in (2, 3)):
        raise TypeError("items of the dataset must be (input, target) or (input, target, weight), or a dict with the key "
                        f"`target`, got {type(item).__name__}")  # fmt: skip
    values, target, weight = (*item, None, None)[:3] if isinstance(item, (tuple, list)) else (item, None, None)
    return values, target, weight


def listed(names: Iterable[Any]) -> str:
    """The first of these names, for messages."""
    return ", ".join(map(str, names))[:120]

"""What users pass, checked, each refusal with the cure: inputs, targets and confidences as tensors or NumPy vectors."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.data import DataLoader, Dataset, IterableDataset

from deep_ensembles._checks import require

Vector = NDArray[np.float64]
# Averaged probabilities exceed 1 by rounding, in half precision by this much.
_ROUNDING = 1e-3
_KINDS = "a tensor, an array, a dict or tuple of them, or a map-style dataset"
# What holds data but not as rows that can be taken by number, and the cure.
_CURES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda x: isinstance(x, DataLoader), "pass its `.dataset`, and `batch_size=` for the size of a batch"),
    (lambda x: isinstance(x, IterableDataset) or (isinstance(x, Dataset) and not hasattr(x, "__len__")),
     "each member draws its own order of rows, so give it `__len__` and `__getitem__`"),
    (lambda x: isinstance(x, Iterator), "collect its rows first, as in `torch.stack(list(rows))`"),
    (lambda x: isinstance(x, (str, bytes)), "read the file or encode the text first"),
    (lambda x: isinstance(x, Tensor) and x.layout != torch.strided, "make it dense with `.to_dense()`"),
    (lambda x: hasattr(x, "toarray") and hasattr(x, "nnz"), "make it dense with `.toarray()`"),
    (lambda x: isinstance(x, list) and bool(x) and isinstance(x[0], Mapping),
     "pass a dict of tensors, as `torch.utils.data.default_collate(rows)` makes of dicts"),
    (lambda x: hasattr(x, "__iter__") and not (hasattr(x, "__getitem__") or hasattr(x, "__array__")),
     "it has no `__getitem__` to take a row by its number; collect its rows first"),
)  # fmt: skip


def as_tensor(name: str, values: Any) -> Tensor:
    """Numbers of any kind as a tensor on the CPU, without a copy where that is possible; the tensor is only read."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must be numbers, got {array.dtype} in {type(values).__name__}")
    if array.dtype.byteorder == ">" or (array.dtype.kind == "u" and array.dtype.itemsize > 1) or array.dtype.itemsize > 8:
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    # Torch takes neither steps backwards nor steps of odd length, as those between the fields of records.
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def check_collected(name: str, values: Any) -> None:
    """Refuse a frame whose rows are yet to be computed, as a `LazyFrame` of polars."""
    if hasattr(values, "collect") and hasattr(values, "lazy"):
        raise TypeError(f"`{name}` must be data in memory, got {type(values).__name__}; pass `{name}.collect()`")


def check_kind(inputs: Any, name: str = "inputs") -> None:
    """Refuse, with the cure, what holds data but not as rows that can be taken by number."""
    check_collected(name, inputs)
    for is_kind, cure in _CURES:
        if is_kind(inputs):
            raise TypeError(f"`{name}` must be {_KINDS}, got {type(inputs).__name__}; {cure}")


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
    """The tensor, flags as 0 and 1, if it has no NaN or infinity: the least and the greatest tell, without a copy."""
    if tensor.is_floating_point() and tensor.numel() and not all(math.isfinite(float(end)) for end in tensor.aminmax()):
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return tensor.long() if tensor.dtype == torch.bool else tensor


def is_dataset(inputs: Any) -> bool:
    """Whether rows are read one by one: a torch `Dataset`, or what has its two methods and is no sequence or array."""
    check_kind(inputs)
    if isinstance(inputs, (Tensor, Sequence, Mapping, type)) or hasattr(inputs, "__array__"):
        return False
    return isinstance(inputs, Dataset) or (hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"))


def listed(names: Iterable[Any]) -> str:
    """The first of these names, for messages."""
    return ", ".join(map(str, names))[:120]


def is_structured(values: Any) -> bool:
    """Whether these are censored times as scikit-survival gives them: an array with named fields."""
    return getattr(getattr(values, "dtype", None), "names", None) is not None


def times_and_events(name: str, values: Any, needs_event: bool = True) -> Vector:
    """Censored times `[row, 2]` (time, and 1 for an event or 0) from an array of two fields, flags and numbers."""
    array = np.asarray(values)
    kinds = {array.dtype[field].kind: field for field in array.dtype.names or ()}
    times, events = next((kinds[kind] for kind in "fiu" if kind in kinds), None), kinds.get("b")
    fits = len(array.dtype.names or ()) == 2 and times is not None and events is not None and array.ndim == 1
    form = "one row of a flag (event) and a number (time) each, as sksurv.util.Surv.from_arrays gives them"
    require(fits, name, form, f"fields {array.dtype}" if array.ndim == 1 else f"shape {array.shape}")
    pairs = np.stack([array[times].astype(np.float64), array[events].astype(np.float64)], axis=-1)
    return checked_events(name, pairs, needs_event)


def checked_events(name: str, pairs: Vector, needs_event: bool = True) -> Vector:
    """Times and events `[row, 2]`, if times are finite and there is an event, where one is needed."""
    refuse(~np.isfinite(pairs[:, 0]), name, "finite times", pairs[:, 0])
    refuse((pairs[:, 1] != 0) & (pairs[:, 1] != 1), name, "events that are 0 or 1 (false or true)", pairs[:, 1])
    has_event = bool(pairs[:, 1].any()) or not needs_event
    require(has_event, name, "times of which at least one is an event's", f"{len(pairs)} censored ones",
            "without an event nothing says how long times are")  # fmt: skip
    return pairs


def refuse(wrong: Any, name: str, must: str, values: Any) -> None:
    """Raise `ValueError` with the first of the values that are wrong, if any is."""
    if bool(wrong.any()):
        require(False, name, must, values[wrong].reshape(-1)[0].item())


def has_classes(distribution: Distribution) -> bool:
    """Whether the prediction is over classes: its probabilities have one axis more than its batch, and are no labels'."""
    if getattr(distribution, "kind", "classes") != "classes":
        return False
    probabilities: Tensor | None = getattr(distribution, "probs", None)
    return probabilities is not None and probabilities.dim() > len(distribution.batch_shape)


def checked_target(distribution: Distribution, target: Any) -> Tensor:
    """The targets where the distribution is, one for each prediction and at least one; class numbers for classes."""
    device = distribution.device if hasattr(distribution, "device") else distribution.mean.device
    checked = as_tensor("target", target).to(device)
    shape = tuple(distribution.batch_shape + distribution.event_shape)
    require(tuple(checked.shape) == shape, "target", f"of the prediction's shape {shape}", tuple(checked.shape))
    require(checked.numel() > 0, "target", "at least one", tuple(checked.shape))
    refuse(~checked.isfinite(), "target", "finite", checked)
    if not has_classes(distribution):
        return checked
    probabilities: Tensor = distribution.probs  # type: ignore[attr-defined]
    refuse(probabilities.isnan(), "distribution", "without NaN", probabilities)
    wrong = (checked < 0) | (checked >= probabilities.shape[-1]) | (checked != checked.long())
    refuse(wrong, "target", f"class numbers from 0 to {probabilities.shape[-1] - 1}", checked)
    return checked.long()


def probabilities_and_labels(metric: str, distribution: Distribution, target: Any) -> tuple[Tensor, Tensor]:
    """Probabilities `[case, class]` and labels `[case]`, on the CPU."""
    if not has_classes(distribution):
        raise TypeError(f"`{metric}` needs a prediction over classes, got {type(distribution).__name__}")
    labels = checked_target(distribution, target)
    probabilities: Tensor = distribution.probs.detach()  # type: ignore[attr-defined]
    return probabilities.reshape(-1, probabilities.shape[-1]).cpu(), labels.flatten().cpu()


def vector(name: str, values: Any) -> Vector:
    """One finite number per case, at least one."""
    array: Vector = as_tensor(name, values).double().numpy()
    require(array.ndim == 1 and array.size > 0, name, "one number per case, at least one", array.shape)
    refuse(~np.isfinite(array), name, "finite", array)
    return array


def paired(**values: Any) -> list[Vector]:
    """Two vectors over the same cases."""
    first, second = values
    arrays = [vector(name, value) for name, value in values.items()]
    require(len(arrays[0]) == len(arrays[1]), second, f"as many as `{first}`, {len(arrays[0])}", len(arrays[1]))
    return arrays


def confidence_and_correct(confidence: Any, correct: Any) -> list[Vector]:
    """Probabilities of being right, and whether each case was (0 or 1), from the least sure to the surest."""
    sure, right = paired(confidence=confidence, correct=correct)
    refuse((sure < 0) | (sure > 1 + _ROUNDING), "confidence", "between 0 and 1", sure)
    refuse((right != 0) & (right != 1), "correct", "true or false (1 or 0)", right)
    order = np.argsort(sure)
    return [sure[order], right[order]]

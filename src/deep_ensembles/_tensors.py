"""Numbers and targets that users pass, checked and as tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require


def as_tensor(name: str, values: Any) -> Tensor:
    """Numbers of any kind as a tensor on the CPU, without a copy where that is possible; the tensor is only read."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must be numbers, got {array.dtype} in {type(values).__name__}")
    if array.dtype.byteorder == ">" or (array.dtype.kind == "u" and array.dtype.itemsize > 1) or array.dtype.itemsize > 8:
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def refuse(wrong: Any, name: str, must: str, values: Any) -> None:
    """Raise `ValueError` with the first of the values that are wrong, if any is."""
    if bool(wrong.any()):
        require(False, name, must, values[wrong].reshape(-1)[0].item())


def has_classes(distribution: Distribution) -> bool:
    """Whether the prediction is over classes: its probabilities have one axis more than its batch."""
    probabilities: Tensor | None = getattr(distribution, "probs", None)
    return probabilities is not None and probabilities.dim() > len(distribution.batch_shape)


def checked_target(distribution: Distribution, target: Any) -> Tensor:
    """The targets where the distribution is, one for each prediction and at least one; class numbers for classes."""
    checked = as_tensor("target", target).to(distribution.mean.device)
    shape = tuple(distribution.batch_shape + distribution.event_shape)
    require(tuple(checked.shape) == shape, "target", f"of the prediction's shape {shape}", tuple(checked.shape))
    require(checked.numel() > 0, "target", "at least one", tuple(checked.shape))
    refuse(~checked.isfinite(), "target", "finite", checked)
    return _checked_labels(distribution, checked) if has_classes(distribution) else checked


def _checked_labels(distribution: Distribution, target: Tensor) -> Tensor:
    probabilities: Tensor = distribution.probs  # type: ignore[attr-defined]
    refuse(probabilities.isnan(), "distribution", "without NaN", probabilities)
    wrong = (target < 0) | (target >= probabilities.shape[-1]) | (target != target.long())
    refuse(wrong, "target", f"class numbers from 0 to {probabilities.shape[-1] - 1}", target)
    return target.long()

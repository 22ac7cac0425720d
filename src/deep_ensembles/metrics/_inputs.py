"""What users hand to metrics, checked and made one kind: tensors beside a distribution, NumPy vectors elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require
from deep_ensembles._tensors import as_tensor, checked_target, has_classes, refuse

Vector = NDArray[np.float64]
# Averaged probabilities exceed 1 by rounding, in half precision by this much.
_ROUNDING = 1e-3


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

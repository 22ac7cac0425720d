"""What is kept of each row: predictions and targets, batch by batch, as vectors of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._checks import require
from deep_ensembles._tensors import checked_target, refuse
from deep_ensembles.heads import Delta
from deep_ensembles.mixture import Mixture, precise
from deep_ensembles.recalibration import Prediction, Recalibrated
from deep_ensembles.scoring import brier, crps, log_score

Vector = NDArray[np.float64]
Rows: TypeAlias = dict[str, Vector]
# Facts of rows under the ensemble, under one member and under a constant; empty where it was not asked.
Sources: TypeAlias = tuple[Rows, Rows, Rows]
_BATCH_ROWS = 16384
_WIDTH_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


class Batch(NamedTuple):
    """Predictions for some rows, what happened, and on request what one member alone predicts."""

    prediction: Prediction
    target: Any
    single: Prediction | None = None


@dataclass(frozen=True, eq=False)
class Facts:
    """Vectors by name, one number per row; of widths one per batch, their sum.

    Arguments:
        sources: what predictions of the ensemble, of one member and of a constant were worth.
        n_classes: 0 for numbers.
        n_members: of the ensemble.
    """

    sources: Sources
    n_classes: int
    n_members: int

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.sources[0]["actual"])


def width_levels(coverage: float) -> list[float]:
    """The levels at which the width of intervals is measured."""
    return sorted({*_WIDTH_LEVELS, coverage})


def inside(levels: Any, coverage: float) -> Any:
    """Which targets, at these levels of their distributions, lie in the central interval."""
    return (levels >= (1 - coverage) / 2) & (levels <= (1 + coverage) / 2)


def collect(batches: Batch | tuple[Any, ...] | Iterable[Any], constant: Distribution | None, coverage: float) -> Facts:
    """The facts of all rows; a prediction is forgotten when its own are known."""
    parts: list[Sources] = []
    n_classes = n_members = 0
    for prediction, target, single in _small(batches):
        n_members = prediction.n_members
        if isinstance(prediction, Mixture) and prediction.is_discrete:
            n_classes = prediction.probs.shape[-1]
        same = None if constant is None else _repeated(constant, len(target), n_classes)
        ensemble, member, known = (_scored(each, target, coverage) for each in (prediction, single, same))
        parts.append((ensemble | _told(prediction, target), member, known))
    require(bool(parts), "batches", "at least one row", "none")
    first, second, third = (_joined(each) for each in zip(*parts, strict=True))
    return Facts((first, second, third), n_classes, n_members)


def _small(batches: Any) -> Iterator[Batch]:
    """Batches of bounded size, on the CPU in double precision."""
    several = [batches] if isinstance(batches, tuple) and isinstance(batches[0], Distribution) else batches
    for batch in several:
        given = Batch(*batch)
        shape = tuple(given.prediction.batch_shape + given.prediction.event_shape)
        cure = "take one target at a time with `one_target`"
        require(len(shape) == 1, "prediction", "of one number or class per row", f"shape {shape}", cure)
        target = _known_target(given.prediction, given.target) if shape[0] else given.target
        for start in range(0, shape[0], _BATCH_ROWS):
            chosen = slice(start, start + _BATCH_ROWS)
            single = None if given.single is None else _in_double(given.single[chosen])
            yield Batch(_in_double(given.prediction[chosen]), target[chosen], single)


def _known_target(prediction: Prediction, target: Any) -> Tensor:
    mixture = prediction.mixture if isinstance(prediction, Recalibrated) else prediction
    known = checked_target(mixture, target).detach().cpu()
    return known if mixture.is_discrete else known.double()


def _in_double(prediction: Prediction) -> Prediction:
    if isinstance(prediction, Recalibrated):
        return Recalibrated(precise(prediction.mixture), prediction.before, prediction.after)
    return precise(prediction)


def _repeated(constant: Distribution, n_rows: int, n_classes: int) -> Mixture:
    """The constant prediction of so many rows."""
    if n_classes:
        right = isinstance(constant, Categorical) and constant.probs.shape == (n_classes,)
        require(right, "constant", f"one Categorical of {n_classes} classes", constant)
        shares: Tensor = constant.probs.detach().cpu().double()  # type: ignore[attr-defined]
        return Mixture(Categorical(probs=shares.expand(1, n_rows, n_classes)))
    require(isinstance(constant, Normal) and not constant.batch_shape, "constant", "one Normal for numbers", constant)
    return _in_double(Mixture(constant.expand((1, n_rows))))  # type: ignore[return-value]


def _scored(prediction: Prediction | None, target: Tensor, coverage: float) -> Rows:
    """What predictions are worth; nothing where there are none."""
    if prediction is None:
        return {}
    if isinstance(prediction, Mixture) and prediction.is_discrete:
        return _scored_classes(prediction, target)
    found = {
        "mean": prediction.mean,
        "std": prediction.stddev,
        "distance": (prediction.mean - target).abs(),
        "level": prediction.cdf(target).clamp(0, 1),
        "crps": crps(prediction, target),
    }
    if not isinstance(getattr(prediction, "components", None), Delta):
        found["nll"] = log_score(prediction, target)
    for level in width_levels(coverage):
        low, high = (prediction.icdf(torch.tensor((1 + sign * level) / 2, dtype=torch.float64)) for sign in (-1, 1))
        found[f"width {level}"] = (high - low).sum()[None]
        if level == coverage:
            found |= {"inside": inside(found["level"], level), "low": low, "high": high}
    return _vectors(found)


def _scored_classes(prediction: Mixture, target: Tensor) -> Rows:
    confidence, predicted = prediction.probs.max(-1)
    named = prediction.probs.argsort(dim=-1, descending=True, stable=True)
    found = {
        "confidence": confidence.clamp_max(1.0),
        "predicted": predicted,
        "correct": predicted == target,
        "place": (named == target[:, None]).double().argmax(-1),
        "nll": log_score(prediction, target),
        "brier": brier(prediction, target),
    }
    return _vectors(found)


def _told(prediction: Prediction, target: Tensor) -> Rows:
    """What else is told of the ensemble's rows."""
    parts = {"actual": target, "aleatoric": prediction.aleatoric, "epistemic": prediction.epistemic}
    if isinstance(prediction, Mixture) and prediction.is_discrete:
        truth = prediction.probs.gather(-1, target[:, None])[:, 0]
        parts |= {"truth": truth, "entropy": prediction.entropy(), "disagreement": prediction.disagreement}
    else:
        parts |= {name: parts[name].clamp_min(0).sqrt() for name in ("aleatoric", "epistemic")}
    return _vectors(parts)


def _vectors(found: dict[str, Tensor]) -> Rows:
    for name, tensor in found.items():
        refuse(tensor.isnan(), "prediction", f"without NaN (`{name}`)", tensor)
    return {name: tensor.detach().double().numpy() for name, tensor in found.items()}


def _joined(parts: tuple[Rows, ...]) -> Rows:
    """One vector per name; none where a batch lacks it. The parts are given up one by one, so as not to be held twice."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in names}

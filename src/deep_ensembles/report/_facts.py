"""What is kept of each row: predictions and targets, batch by batch, as vectors of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require
from deep_ensembles.heads import Delta
from deep_ensembles.metrics._inputs import checked_target, refuse
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Prediction, Recalibrated
from deep_ensembles.recalibration._base import precise
from deep_ensembles.scoring import brier, crps, log_score

Vector = NDArray[np.float64]
_BATCH_ROWS = 16384


class Batch(NamedTuple):
    """Predictions for some rows, what happened, and on request what one member alone predicts."""

    prediction: Prediction
    target: Any
    single: Prediction | None = None


@dataclass(frozen=True, eq=False)
class Facts:
    """Vectors by name, one number per row, of the ensemble and of one member alone.

    Arguments:
        ensemble, single: what the predictions were worth; `single` is empty where it was not asked.
        widths, single_widths: the mean width of the central interval at each of `interval_levels`.
        n_classes: 0 for numbers.
        n_members: of the ensemble.
    """

    ensemble: dict[str, Vector]
    single: dict[str, Vector]
    widths: Vector
    single_widths: Vector
    n_classes: int
    n_members: int

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.ensemble.values())))


def collect(batches: Batch | tuple[Any, ...] | Iterable[Any], interval_levels: Sequence[float], coverage: float) -> Facts:
    """The facts of all rows; a prediction is forgotten when its own are known."""
    parts = []
    n_classes = n_members = 0
    for batch in _small(batches):
        n_members = batch.prediction.n_members
        if isinstance(batch.prediction, Mixture) and batch.prediction.is_discrete:
            n_classes = batch.prediction.probs.shape[-1]
        parts.append(_of_batch(batch, interval_levels, coverage))
    require(bool(parts), "batches", "at least one row", "none")
    ensemble, single, wide, narrow = (_joined([part[i] for part in parts]) for i in range(4))
    means = [np.array([values.mean() for values in each.values()]) for each in (wide, narrow)]
    return Facts(ensemble, single, means[0], means[1], n_classes, n_members)


def _of_batch(batch: Batch, interval_levels: Sequence[float], coverage: float) -> tuple[dict[str, Vector], ...]:
    """Facts under the ensemble and under one member; widths of intervals under both."""
    own, target = _in_double(batch.prediction), batch.target
    other = None if batch.single is None else _in_double(batch.single)
    if isinstance(own, Mixture) and own.is_discrete:
        return _of_classes(own, target), {} if other is None else _basic_classes(other, target), {}, {}
    facts, widths = _basic_numbers(own, target) | _more_numbers(own, target, coverage), _widths(own, interval_levels)
    if other is None:
        return facts, {}, widths, {}
    return facts, _basic_numbers(other, target), widths, _widths(other, interval_levels)


def _small(batches: Any) -> Iterator[Batch]:
    """Batches of bounded size."""
    several = [batches] if isinstance(batches, tuple) and isinstance(batches[0], Distribution) else batches
    for batch in several:
        given = Batch(*batch)
        shape = tuple(given.prediction.batch_shape + given.prediction.event_shape)
        cure = "take one target at a time with `one_target`"
        require(len(shape) == 1, "prediction", "of one number or class per row", f"shape {shape}", cure)
        target = _known_target(given.prediction, given.target) if shape[0] else given.target
        for start in range(0, shape[0], _BATCH_ROWS):
            chosen = slice(start, start + _BATCH_ROWS)
            single = None if given.single is None else given.single[chosen]
            yield Batch(given.prediction[chosen], target[chosen], single)


def _known_target(prediction: Prediction, target: Any) -> Tensor:
    mixture = prediction.mixture if isinstance(prediction, Recalibrated) else prediction
    known = checked_target(mixture, target).detach().cpu()
    return known if mixture.is_discrete else known.double()


def _in_double(prediction: Prediction) -> Prediction:
    if isinstance(prediction, Recalibrated):
        return Recalibrated(precise(prediction.mixture), prediction.before, prediction.after)
    return precise(prediction)


def _basic_numbers(prediction: Prediction, target: Tensor) -> dict[str, Vector]:
    found = {
        "mean": prediction.mean,
        "std": prediction.stddev,
        "level": prediction.cdf(target).clamp(0, 1),
        "crps": crps(prediction, target),
    }
    if not isinstance(getattr(prediction, "components", None), Delta):
        found["nll"] = log_score(prediction, target)
    return _vectors(found)


def _more_numbers(prediction: Prediction, target: Tensor, coverage: float) -> dict[str, Vector]:
    low, high = (prediction.icdf(torch.tensor((1 + sign * coverage) / 2)) for sign in (-1, 1))
    parts = {"aleatoric": prediction.aleatoric.sqrt(), "epistemic": prediction.epistemic.clamp_min(0).sqrt()}
    return _vectors({"actual": target, **parts, "low": low, "high": high})


def _widths(prediction: Prediction, levels: Sequence[float]) -> dict[str, Vector]:
    ends = [[prediction.icdf(torch.tensor((1 + sign * level) / 2)) for sign in (-1, 1)] for level in levels]
    return _vectors({str(level): high - low for level, (low, high) in zip(levels, ends, strict=True)})


def _basic_classes(prediction: Prediction, target: Tensor) -> dict[str, Vector]:
    assert isinstance(prediction, Mixture)
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


def _of_classes(prediction: Mixture, target: Tensor) -> dict[str, Vector]:
    truth = prediction.probs.gather(-1, target[:, None])[:, 0]
    parts = {"entropy": prediction.entropy(), "aleatoric": prediction.aleatoric, "epistemic": prediction.epistemic}
    more = {"actual": target, "truth": truth, "disagreement": prediction.disagreement}
    return _basic_classes(prediction, target) | _vectors(more | parts)


def _vectors(found: dict[str, Tensor]) -> dict[str, Vector]:
    for name, tensor in found.items():
        refuse(tensor.isnan(), "prediction", f"without NaN (`{name}`)", tensor)
    return {name: tensor.detach().double().numpy() for name, tensor in found.items()}


def _joined(parts: list[dict[str, Vector]]) -> dict[str, Vector]:
    """One vector per name; none where a batch lacks it."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if all(name in part for part in parts)}

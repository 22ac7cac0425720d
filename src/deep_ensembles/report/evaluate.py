"""Predictions and what happened, batch by batch → an `Evaluation`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._checks import check_number, require
from deep_ensembles._tensors import checked_target, refuse
from deep_ensembles.distributions import indexed
from deep_ensembles.mixture import Mixture, precise
from deep_ensembles.recalibration import Prediction, Recalibrated
from deep_ensembles.report.classes import class_details, class_fields, class_values
from deep_ensembles.report.evaluation import Evaluation, Unseen
from deep_ensembles.report.numbers import number_details, number_fields, number_values
from deep_ensembles.report.rows import Columns, Rows, Sources
from deep_ensembles.report.words import lead_verdict

_BATCH_ROWS = 16384


class Batch(NamedTuple):
    """Predictions for some rows, what happened, and on request what one member alone predicts."""

    prediction: Prediction
    target: Any
    single: Prediction | None = None


def evaluate(
    batches: Batch | tuple[Prediction, Any] | Iterable[Batch | tuple[Prediction, Any]],
    *,
    constant: Distribution | None = None,
    coverage: float = 0.9,
    labels: Sequence[Any] | None = None,
    columns: Columns | None = None,
    unseen: Sequence[Unseen] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """How good predictions of one number or class per row were.

    Batches are asked for one after another and forgotten; of each row a few dozen numbers are kept.

    Arguments:
        batches: `(prediction, target)` or `Batch(prediction, target, single)`, one or several; `single` is what one
            member alone predicts.
        constant: the same prediction for every row, to compare with, made from training targets alone: torch's `Normal`
            of their mean and standard deviation, or `Categorical` of the classes' shares.
        coverage: the share of rows that intervals should hold.
        labels: the names of the classes; their numbers by default.
        columns: the data, by column, to show of rows worth a look.
        unseen: columns with values that training did not see, from `unseen_values`; None if that is not known.
        about: facts about model and data that the reader should know, by name.

    Example:
        >>> import torch
        >>> two = Mixture(torch.distributions.Normal(torch.tensor([[0.0, 2.0]]), torch.ones(1, 2)))
        >>> evaluate((two, [1.0, 2.0])).score("MAE").ensemble
        0.5
    """
    check_number("coverage", coverage, low=0, high=1, above=True, below=True)
    sources, n_classes, n_members = _collect(batches, constant, coverage)
    names = [str(label) for label in (range(n_classes) if labels is None else labels)] if n_classes else []
    require(len(names) == n_classes, "labels", f"{n_classes} names, one per class", len(names))
    task = class_fields(sources, names, columns) if names else number_fields(sources, coverage, columns)
    about = {str(name): str(value) for name, value in (about or {}).items()}
    n_rows = len(sources.ensemble["actual"])
    return _compared_with_constant(Evaluation(n_rows=n_rows, n_members=n_members, about=about, unseen=unseen, **task))


def _compared_with_constant(evaluation: Evaluation) -> Evaluation:
    """With a verdict on whether predictions are better than a constant; if they are not, the summary says so too."""
    for score in evaluation.scores:
        if score.name in ("NLL", "CRPS") and score.lead is not None and score.lead_error is not None:
            verdict = lead_verdict(score.name, score.lead, score.lead_error)
            is_better = score.lead < -2 * score.lead_error
            summary = evaluation.summary if is_better else f"{evaluation.summary} {verdict}"
            return replace(evaluation, verdicts={**evaluation.verdicts, "constant": verdict}, summary=summary)
    return evaluation


def _collect(batches: Any, constant: Distribution | None, coverage: float) -> tuple[Sources, int, int]:
    """The values of all rows, the number of classes (0 for numbers) and of members; predictions are not kept."""
    parts: list[Sources] = []
    n_classes = n_members = 0
    for prediction, target, single in _small_batches(batches):
        n_members, n_classes = prediction.n_members, prediction.probs.shape[-1] if prediction.is_discrete else 0
        details = _vectors((class_details if n_classes else number_details)(prediction, target))
        repeated = None if constant is None else _repeated(constant, len(target), n_classes)
        ensemble, member, same = (_values(source, target, coverage) for source in (prediction, single, repeated))
        parts.append(Sources(ensemble | details, member, same))
    require(bool(parts), "batches", "at least one row", "none")
    return Sources(*map(_joined, zip(*parts, strict=True))), n_classes, n_members


def _values(prediction: Any, target: Tensor, coverage: float) -> Rows:
    if prediction is None:
        return {}
    is_class = prediction.is_discrete
    return _vectors(class_values(prediction, target) if is_class else number_values(prediction, target, coverage))


def _vectors(tensors: Mapping[str, Tensor]) -> Rows:
    """Tensors of one number per row as NumPy arrays; NaN is refused."""
    for name, tensor in tensors.items():
        refuse(tensor.isnan(), "prediction", f"without NaN (`{name}`)", tensor)
    return {name: tensor.detach().double().numpy() for name, tensor in tensors.items()}


def _joined(parts: tuple[Rows, ...]) -> Rows:
    """One vector per name that all parts have. Parts are emptied one by one, so that nothing is held twice."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in names}


def _small_batches(batches: Any) -> Iterator[tuple[Any, Tensor, Any]]:
    """Batches of bounded size, on the CPU in double precision."""
    several = [batches] if isinstance(batches, tuple) and isinstance(batches[0], Distribution) else batches
    for prediction, target, single in (Batch(*batch) for batch in several):
        shape = tuple(prediction.batch_shape + prediction.event_shape)
        cure = "take one target at a time with `target(i)`"
        require(len(shape) == 1, "prediction", "of one number or class per row", f"shape {shape}", cure)
        mixture = prediction.mixture if isinstance(prediction, Recalibrated) else prediction
        checked = checked_target(mixture, target).detach().cpu() if shape[0] else target
        for start in range(0, shape[0], _BATCH_ROWS):
            rows = slice(start, start + _BATCH_ROWS)
            actual = checked[rows] if mixture.is_discrete else checked[rows].double()
            yield _in_double(prediction[rows]), actual, None if single is None else _in_double(single[rows])


def _in_double(prediction: Prediction) -> Prediction:
    if isinstance(prediction, Recalibrated):
        return Recalibrated(precise(prediction.mixture), prediction.before, prediction.after)
    return precise(prediction)


def _repeated(constant: Distribution, n_rows: int, n_classes: int) -> Mixture:
    """The constant prediction for so many rows."""
    if n_classes:
        is_fitting = isinstance(constant, Categorical) and constant.probs.shape == (n_classes,)
        require(is_fitting, "constant", f"one Categorical of {n_classes} classes", constant)
        shares: Tensor = constant.probs.detach().cpu().double()  # type: ignore[attr-defined]
        return Mixture(Categorical(probs=shares.expand(1, n_rows, n_classes)))
    require(isinstance(constant, Normal) and not constant.batch_shape, "constant", "one Normal for numbers", constant)
    return precise(Mixture(constant.expand((1, n_rows))))


def beside_targets(
    predictions: Iterable[Prediction], targets: Any, singles: Iterable[Prediction] | None = None, *, which: int = 0
) -> Iterator[Batch]:
    """Batches for `evaluate`: predictions for consecutive rows, their targets, and what one member alone predicts.

    Arguments:
        predictions: as `Ensemble.batches` gives them.
        targets: one for each row.
        singles: the same of one member, as `ensemble.subset(1).batches` gives them.
        which: the number of the target, where several are predicted.

    Example:
        >>> import torch
        >>> rows = Mixture(torch.distributions.Normal(torch.zeros(2, 4), torch.ones(2, 4)))
        >>> [batch.target for batch in beside_targets([rows[:3], rows[3:]], [5, 6, 7, 8])]
        [[5, 6, 7], [8]]
    """
    start = 0
    for prediction, single in zip(predictions, repeat(None) if singles is None else singles, strict=False):
        stop = start + prediction.batch_shape[0]
        yield Batch(_select(prediction, which), targets[start:stop], None if single is None else _select(single, which))
        start = stop


def _select(prediction: Prediction, which: int) -> Prediction:
    return prediction.target(which) if isinstance(prediction, Mixture) and prediction.event_shape else prediction


def first_member(mixture: Mixture) -> Mixture:
    """What the first member of a mixture predicts alone.

    Example:
        >>> import torch
        >>> first_member(Mixture(torch.distributions.Normal(torch.tensor([[1.0], [3.0]]), torch.ones(2, 1)))).mean
        tensor([1.])
    """
    return Mixture(indexed(mixture.components, slice(0, 1)))

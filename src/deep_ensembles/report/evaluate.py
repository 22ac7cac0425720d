"""Predictions and what happened, batch by batch → an `Evaluation`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from deep_ensembles._checks import check_number, require
from deep_ensembles._tensors import checked_target, has_classes, is_structured, refuse, times_and_events
from deep_ensembles.distributions import Delta, Ordered, family, indexed, is_whole, rebuilt, scaling_of
from deep_ensembles.mixture import Mixture, precise
from deep_ensembles.recalibration import Prediction, Recalibrated
from deep_ensembles.report import classes, numbers, times
from deep_ensembles.report.evaluation import Evaluation, Unseen
from deep_ensembles.report.rows import Columns, RowFacts, Rows, Sources, Subject, over_time, recalled
from deep_ensembles.report.segments import drifts, grouped, segments
from deep_ensembles.report.summary import summarized
from deep_ensembles.report.words import lead_verdict
from deep_ensembles.scoring import log_score

# For each task what is kept of every row (`row_values`), of the ensemble's alone (`row_details`), and made of all rows.
_TASKS: dict[str, Any] = {"classes": classes, "numbers": numbers, "times": times}
_BATCH_ROWS = 16384


class Batch(NamedTuple):
    """Predictions for some rows, what happened, and on request what one member alone predicts.

    Arguments:
        prediction: of one number, count or class per row, or of several targets or labels, with `which`.
        target: what happened; censored times as scikit-survival gives them, an array of a flag (event) and a number (time).
        single: what one member alone predicts.
        point: which point prediction is scored, "mean", "median" or "mode", as the head says; by default the mean of numbers
            where there is one, the median of classes with an order, the mode of others.
        which: the number of the target or label to look at, where there are several.
        moments: of censored times, when Brier scores are taken; by default as the events of the first batch suggest.
    """

    prediction: Prediction
    target: Any
    single: Prediction | None = None
    point: str | None = None
    which: int | None = None
    moments: tuple[float, ...] = ()


def evaluate(batches: Batch | tuple[Prediction, Any] | Iterable[Batch | tuple[Prediction, Any]], *,
             constant: Distribution | None = None, coverage: float = 0.9, labels: Sequence[Any] | None = None,
             columns: Columns | None = None, unseen: Sequence[Unseen] | None = None, about: Mapping[str, Any] | None = None,
             facts: RowFacts | None = None) -> Evaluation:  # fmt: skip
    """How good predictions of one number or class per row were.

    Batches are asked for one after another and forgotten; of each row a few dozen numbers are kept.

    Arguments:
        batches: `(prediction, target)` or `Batch(prediction, target, single, …)`, one or several.
        constant: the same prediction for every row, to compare with, made from training targets alone: torch's `Normal`
            of their mean and standard deviation, another distribution of numbers fitted to them, or `Categorical` of the
            classes' shares. The likelihood of a `Normal` is not compared with that of counts or of positive or bounded
            numbers.
        coverage: the share of rows that intervals should hold.
        labels: the names of the classes; their numbers by default.
        columns: the data, by column, to show of rows worth a look.
        unseen: columns with values that training did not see, from `unseen_values`; None if that is not known.
        about: facts about model and data that the reader should know, by name.
        facts: groups of rows, their times and numbers; without, rows are grouped by `columns` and counted from 0.

    Example:
        >>> import torch
        >>> two = Mixture(torch.distributions.Normal(torch.tensor([[0.0, 2.0]]), torch.ones(1, 2)))
        >>> evaluate((two, [1.0, 2.0])).score("MAE").ensemble
        0.5
    """
    check_number("coverage", coverage, low=0, high=1, above=True, below=True)
    sources, subject = _collect(batches, constant, coverage)
    facts, n_rows = facts or RowFacts(), len(sources.ensemble["actual"])
    numbered: Any = np.arange(n_rows) if facts.numbers is None else facts.numbers  # as people count them
    sources.ensemble["row"] = numbered
    if labels is not None and subject.labels:
        names, n_classes = tuple(map(str, labels)), len(subject.labels)
        require(len(names) == n_classes, "labels", f"{n_classes} names, one per class", len(names))
        subject = subject._replace(labels=names)
    fields = _TASKS[subject.task].report_fields(sources, subject, columns)
    fields |= _several_fields(sources, subject, fields)
    about = {str(name): str(value) for name, value in (about or {}).items()} | fields.pop("about", {})
    fields |= {"n_rows": n_rows, "n_members": subject.n_members, "about": about, "unseen": unseen}
    fields |= {"coverage": None if subject.labels else coverage, "labels": subject.labels, "summary": ""}
    evaluation = Evaluation(task=subject.task, **fields)
    return summarized(_located(evaluation, sources.ensemble, subject, facts, columns))


def _located(evaluation: Evaluation, rows: Rows, subject: Subject, facts: RowFacts, columns: Columns | None) -> Evaluation:
    """With where and when errors are larger, and what has changed since training."""
    is_class, fields = bool(subject.labels), dict[str, Any](target=facts.target, unit=facts.unit)
    verdicts, curves = dict(evaluation.verdicts), dict(evaluation.curves)
    if evaluation.leads:
        verdicts["constant"] = lead_verdict(evaluation.leads, evaluation.n_rows)
    made = (grouped(str(name), values) for name, values in (columns or {}).items())
    groups = facts.groups or [group for group in made if group is not None]
    fields["drifts"] = changed = drifts(groups)
    why = facts.no_drift if all(group.trained is None for group in groups) else "these rows are too few, or all alike"
    unknown = f"Whether columns have changed since training cannot be judged: {why}."
    verdicts["drift"] = unknown if changed is None else changed.verdict(evaluation.n_rows)
    if evaluation.task != "times":
        error = 1 - rows["correct"] if is_class else rows["distance"]
        fields["segments"] = found = segments(groups, error, rows["confidence" if is_class else "inside"])
        verdicts |= {} if found is None else {"segments": found.verdict(is_class)}
        values = error if is_class else rows[subject.point] - rows["actual"]
        if facts.times is not None and (told := over_time(facts.times, values, is_class, facts.time)):
            curves["time"], verdicts["time"] = told
    fields["notes"] = {**evaluation.notes, "counted": "from 0" if facts.numbers is None else "from 1"}
    return replace(evaluation, verdicts=verdicts, curves=curves, **fields)


def _collect(batches: Any, constant: Distribution | None, coverage: float) -> tuple[Sources, Subject]:
    """The values of all rows, and what they are of; predictions are not kept."""
    parts: list[Sources] = []
    for whole in _small_batches(batches):
        batch = _one_target(whole)
        prediction, target = batch.prediction, batch.target
        subject = _subject(batch, constant, coverage)
        task = _TASKS[subject.task]
        repeated = None if constant is None else _repeated(constant, prediction)
        ensemble, member, same = ({} if source is None else _vectors(task.row_values(source, target, subject))
                                  for source in (prediction, batch.single, repeated))  # fmt: skip
        ensemble |= _vectors(task.row_details(prediction, target))
        if repeated is not None and not subject.labels and not _is_match(repeated, prediction):
            same.pop("nll", None)
        if batch.which is not None and whole.prediction.event_shape:
            subject = subject._replace(several="labels" if whole.prediction.kind == "labels" else "targets")
            ensemble |= _vectors(_several_values(whole.prediction, whole.target))
            member |= {} if whole.single is None else _vectors(_several_values(whole.single, whole.target))
        parts.append(Sources(ensemble, member, same))
    require(bool(parts), "batches", "at least one row", "none")
    return Sources(*map(_joined, zip(*parts, strict=True))), subject


def _one_target(batch: Batch) -> Batch:
    """The batch of the target to look at, where there are several."""
    if batch.which is None or not batch.prediction.event_shape:
        return batch
    prediction, single = (_select(source, batch.which) for source in (batch.prediction, batch.single))
    target = batch.target[:, batch.which]
    return batch._replace(prediction=prediction, single=single, target=target.long() if prediction.is_discrete else target)


def _subject(batch: Batch, constant: Distribution | None, coverage: float) -> Subject:
    mixture, point = _mixture(batch.prediction), batch.point
    if mixture.is_discrete:
        point = "median" if isinstance(mixture.components, Ordered) and point in (None, "median") else "mode"
        return Subject("classes", point, mixture.n_members, coverage, tuple(map(str, range(mixture.probs.shape[-1]))))
    name = "" if constant is None else family(constant)
    least = getattr(mixture.support, "lower_bound", -1.0)
    positive = bool((torch.as_tensor(least) >= 0).all()) and mixture.kind != "counts"
    is_time = batch.target.dim() > 1
    point = "median" if is_time or point == "median" or not _has_mean(mixture) else "mean"
    kind = "times" if is_time else mixture.kind
    return Subject(kind, point, mixture.n_members, coverage, (), positive, name, moments=batch.moments)


def _mixture(prediction: Any) -> Any:
    """The mixture itself, also of a prediction that is recalibrated."""
    return getattr(prediction, "mixture", prediction)


def _has_mean(mixture: Mixture) -> bool:
    try:
        return bool(mixture.mean.isfinite().all())
    except (TypeError, ValueError):
        return False


def _is_match(constant: Mixture, prediction: Prediction) -> bool:
    """Whether likelihoods can be compared: of the same family, or both of any number."""
    kinds = [constant.components, _mixture(prediction).components]
    same = family(kinds[0]) == family(kinds[1])
    return same or all(scaling_of(kind) in ("location-scale", None) and not is_whole(kind) for kind in kinds)


def _vectors(tensors: Mapping[str, Tensor]) -> Rows:
    """Tensors of one number per row as NumPy arrays; NaN is refused."""
    for name, tensor in tensors.items():
        refuse(tensor.isnan(), "prediction", f"without NaN (`{name}`)", tensor)
    return {name: tensor.detach().double().numpy() for name, tensor in tensors.items()}


def _joined(parts: tuple[Rows, ...]) -> Rows:
    """One vector per name that all parts have. Parts are emptied one by one, so that nothing is held twice."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in names}


def _small_batches(batches: Any) -> Iterator[Batch]:
    """Batches of bounded size, on the CPU in double precision."""
    several = [batches] if isinstance(batches, tuple) and isinstance(batches[0], Distribution) else batches
    moments: tuple[float, ...] = ()
    for batch in (Batch(*batch) for batch in several):
        prediction, single = batch.prediction, batch.single
        shape, event = tuple(prediction.batch_shape + prediction.event_shape), len(prediction.event_shape)
        cure = "take one target at a time with `target(i)`"
        fits = len(prediction.batch_shape) == 1 and (not event or batch.which is not None)
        require(fits, "prediction", "of one number or class per row", f"shape {shape}", cure)
        mixture = _mixture(prediction)
        if is_structured(batch.target) and shape[0]:
            checked = _checked_times(mixture, batch.target)
            moments = moments or batch.moments or times.brier_moments(checked.numpy())
        else:
            checked = checked_target(mixture, batch.target).detach().cpu() if shape[0] else batch.target
        for start in range(0, shape[0], _BATCH_ROWS):
            rows = slice(start, start + _BATCH_ROWS)
            actual = checked[rows] if mixture.is_discrete else checked[rows].double()
            member = None if single is None else _in_double(single[rows])
            yield batch._replace(prediction=_in_double(prediction[rows]), target=actual, single=member, moments=moments)


def _checked_times(mixture: Mixture, target: Any) -> Tensor:
    """Times and whether they were events', `[row, 2]`, for predictions that have a density."""
    is_density = mixture.kind == "numbers" and not isinstance(mixture.components, Delta)
    require(is_density, "prediction", "of a number with a density, for censored times", family(mixture.components))
    pairs = torch.from_numpy(times_and_events("target", target, needs_event=False))
    checked_target(mixture, pairs[:, 0])
    return pairs


def _in_double(prediction: Prediction) -> Prediction:
    if isinstance(prediction, Recalibrated):
        return Recalibrated(precise(prediction.mixture), prediction.before, prediction.after)
    return precise(prediction) if isinstance(prediction, Mixture) else prediction


def _repeated(constant: Distribution, prediction: Any) -> Mixture:
    """The constant prediction for as many rows."""
    n_rows, is_class = prediction.batch_shape[0], prediction.is_discrete
    if is_class:
        n_classes = prediction.probs.shape[-1]
        is_fitting = isinstance(constant, Categorical) and constant.probs.shape == (n_classes,)
        require(is_fitting, "constant", f"one Categorical of {n_classes} classes", constant)
        shares: Tensor = constant.probs.detach().cpu().double()  # type: ignore[attr-defined]
        kind = type(prediction.components) if isinstance(prediction.components, Ordered) else Categorical
        return Mixture(kind(probs=shares.expand(1, n_rows, n_classes)))
    is_number = isinstance(constant, Distribution) and not has_classes(constant)
    is_one = is_number and not constant.batch_shape and not constant.event_shape
    require(is_one, "constant", "one Normal, or one other distribution of a number", constant)
    return precise(Mixture(rebuilt(constant, lambda parameter: parameter.expand(1, n_rows, *parameter.shape))))


def _several_values(prediction: Any, target: Tensor) -> dict[str, Tensor]:
    """What predictions of all targets were worth, row by row; hits of each label only as sums, once per batch."""
    values = {"joint": log_score(prediction, target)}
    if prediction.kind != "labels":
        return values
    guess, truth = prediction.mode, target > 0.5
    values |= {"subset": (guess == truth).all(-1), "squares": (prediction.probs - target).square().mean(-1)}
    values |= {"label rows": truth.sum(0), "label guesses": guess.sum(0), "label hits": (guess & truth).sum(0)}
    return values | {"batches": target.new_ones(1)}


def _several_fields(sources: Sources, subject: Subject, task: dict[str, Any]) -> dict[str, Any]:
    """The scores and curves of an `Evaluation` with those of all targets at once added."""
    if not subject.several:
        return {}
    meaning = f"mean negative log-likelihood of all {subject.several} of a row together, in nats"
    scores: list[Any] = [*task["scores"], sources.mean_score("joint", f"NLL of all {subject.several}", meaning)]
    if subject.several == "targets":
        return {"scores": scores}
    meaning = "share of rows whose labels are all right, each being there if that is more probable than not"
    scores.append(sources.mean_score("subset", "All labels right", meaning, "higher", share=True))
    meaning = "mean squared distance of the labels' probabilities from the truth, over all labels"
    scores.append(sources.mean_score("squares", "Brier score of all labels", meaning))
    rows = sources.ensemble
    shape = len(rows["batches"]), -1
    counts = (rows[f"label {name}"].reshape(shape).sum(0).astype(np.int64) for name in ("rows", "guesses", "hits"))
    return {"scores": scores, "curves": {**task["curves"], "labels": recalled(*counts)}}


def beside_targets(predictions: Iterable[Prediction], targets: Any, singles: Iterable[Prediction] | None = None, *,
                   which: int = 0, point: str | None = None) -> Iterator[Batch]:  # fmt: skip
    """Batches for `evaluate`: predictions for consecutive rows, their targets, and what one member alone predicts.

    Arguments:
        predictions: as `Ensemble.batches` gives them.
        targets: one for each row, or all of them where there are several.
        singles: the same of one member, as `ensemble.subset(1).batches` gives them.
        which: the number of the target, where several are predicted.
        point: which point prediction is scored, as the head says.

    Example:
        >>> import torch
        >>> rows = Mixture(torch.distributions.Normal(torch.zeros(2, 4), torch.ones(2, 4)))
        >>> [batch.target for batch in beside_targets([rows[:3], rows[3:]], [5, 6, 7, 8])]
        [[5, 6, 7], [8]]
    """
    start, moments = 0, times.brier_moments(times_and_events("targets", targets)) if is_structured(targets) else ()
    for prediction, single in zip(predictions, repeat(None) if singles is None else singles, strict=False):
        stop = start + prediction.batch_shape[0]
        batch = Batch(prediction, targets[start:stop], single, point, which, moments)
        # Where only the target to look at is given, nothing is known of the others.
        one = batch._replace(prediction=_select(prediction, which), single=_select(single, which))
        yield batch if np.ndim(targets) > 1 else one
        start = stop


def _select(prediction: Any, which: int) -> Any:
    return prediction.target(which) if isinstance(prediction, Mixture) and prediction.event_shape else prediction


def first_member(mixture: Mixture) -> Mixture:
    """What the first member of a mixture predicts alone.

    Example:
        >>> import torch
        >>> first_member(Mixture(torch.distributions.Normal(torch.tensor([[1.0], [3.0]]), torch.ones(2, 1)))).mean
        tensor([1.])
    """
    return Mixture(indexed(mixture.components, slice(0, 1)))

"""Predictions and what happened → an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from torch.distributions import Distribution, Independent

from deep_ensembles._checks import check_number, require
from deep_ensembles._distributions import indexed, rebuilt
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report._facts import Batch, collect
from deep_ensembles.report.classes import of_classes
from deep_ensembles.report.evaluation import Evaluation, Findings, Outside
from deep_ensembles.report.examples import Columns
from deep_ensembles.report.numbers import of_numbers
from deep_ensembles.report.wording import lead_verdict


def evaluate(
    batches: Batch | tuple[Prediction, Any] | Iterable[Batch | tuple[Prediction, Any]],
    *,
    constant: Distribution | None = None,
    coverage: float = 0.9,
    labels: Sequence[Any] | None = None,
    columns: Columns | None = None,
    outside: Sequence[Outside] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """How good predictions of one number or class per row were.

    Batches are asked for one after another and forgotten; of each row a few dozen numbers are kept.

    Arguments:
        batches: `(prediction, target)` or `Batch(prediction, target, single)`, one or several; `single` is what one
            member alone predicts.
        constant: what someone predicts who knows only the training targets, to compare with: torch's `Normal` of their
            mean and standard deviation, or `Categorical` of the classes' shares.
        coverage: the share of rows that intervals should hold.
        labels: the names of the classes; their numbers by default.
        columns: the data, by column, to show of rows worth a look.
        outside: columns that left the range of training, from `outside_range`; None if that is not known.
        about: facts about model and data that the reader should know, by name.

    Example:
        >>> import torch
        >>> two = Mixture(torch.distributions.Normal(torch.tensor([[0.0, 2.0]]), torch.ones(1, 2)))
        >>> evaluate((two, [1.0, 2.0])).score("MAE").ensemble
        0.5
    """
    check_number("coverage", coverage, low=0, high=1, above=True, below=True)
    facts = collect(batches, constant, coverage)
    named = [str(label) for label in (range(facts.n_classes) if labels is None else labels)] if facts.n_classes else []
    require(len(named) == facts.n_classes, "labels", f"{facts.n_classes} names, one per class", len(named))
    found = of_classes(facts, named, columns) if named else of_numbers(facts, coverage, columns)
    return Evaluation(
        task="classes" if named else "numbers",
        n_rows=facts.n_rows,
        n_members=facts.n_members,
        coverage=None if named else coverage,
        about={str(name): str(value) for name, value in (about or {}).items()},
        labels=tuple(named),
        outside=outside,
        **_with_lead(found)._asdict(),
    )


def _with_lead(found: Findings) -> Findings:
    """The findings with a word on whether predictions are better than a constant; if not, the summary says so too."""
    for score in found.scores:
        if score.name in ("NLL", "CRPS") and score.lead is not None and score.lead_error is not None:
            said = lead_verdict(score.name, score.lead, score.lead_error)
            summary = found.summary if score.lead < -2 * score.lead_error else f"{found.summary} {said}"
            return found._replace(verdicts={**found.verdicts, "constant": said}, summary=summary)
    return found


def beside_targets(
    predictions: Iterable[Prediction], targets: Any, singles: Iterable[Prediction] | None = None, *, which: int = 0
) -> Iterator[Batch]:
    """Predictions for consecutive rows, each with its targets and what one member alone predicts.

    Arguments:
        predictions: as `Ensemble.batches` gives them.
        targets: one for each row.
        singles: the same of one member, as `ensemble.subset(1).batches` gives them.
        which: of several predicted targets.

    Example:
        >>> import torch
        >>> rows = Mixture(torch.distributions.Normal(torch.zeros(2, 4), torch.ones(2, 4)))
        >>> [batch.target for batch in beside_targets([rows[:3], rows[3:]], [5, 6, 7, 8])]
        [[5, 6, 7], [8]]
    """
    start = 0
    for own, single in zip(predictions, repeat(None) if singles is None else singles, strict=False):
        stop = start + own.batch_shape[0]
        yield Batch(_chosen(own, which), targets[start:stop], None if single is None else _chosen(single, which))
        start = stop


def _chosen(prediction: Prediction, which: int) -> Prediction:
    return one_target(prediction, which) if isinstance(prediction, Mixture) and prediction.event_shape else prediction


def first_member(mixture: Mixture) -> Mixture:
    """What the first member of a mixture predicts alone.

    Example:
        >>> import torch
        >>> first_member(Mixture(torch.distributions.Normal(torch.tensor([[1.0], [3.0]]), torch.ones(2, 1)))).mean
        tensor([1.])
    """
    return Mixture(indexed(mixture.components, slice(0, 1)))


def one_target(mixture: Mixture, target: int) -> Mixture:
    """What a mixture of several targets predicts for one of them.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> both = Mixture(Independent(Normal(torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1, 2)), 1))
        >>> one_target(both, 1).mean
        tensor([2.])
    """
    require(isinstance(mixture.components, Independent), "mixture", "of several targets", mixture)
    inner: Any = mixture.components
    return Mixture(rebuilt(inner.base_dist, lambda parameter: parameter[..., target]), mixture.weights)

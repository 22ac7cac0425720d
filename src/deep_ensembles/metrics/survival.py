"""Times that are only known to exceed a value: whether their order, likelihood and probabilities are right."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number, require
from deep_ensembles._tensors import Vector, as_tensor, has_classes, paired, refuse, vector
from deep_ensembles.mixture import mixture_of
from deep_ensembles.scoring import censored

_N_TIMES = 100


def concordance_index(distribution: Any, time: Any, event: Any) -> float:
    r"""The share of comparable pairs of cases whose order is predicted right; Harrell's C. 1 is perfect, 0.5 is chance.

    A pair is comparable where the earlier time is an event's; of equal times, where one of the two is an event's. Equal
    predictions count one half.

    References:
        Harrell, Lee, Mark (1996).

    Arguments:
        distribution: a prediction of one time per case, ordered by its median; or one number per case, its risk, higher
            where the event should come earlier (minus a predicted time, say).
        time: when the event was, or the last time at which there had been none.
        event: whether it was an event.

    Shape:
        distribution with batch `[case]`, or risks `[case]`; time and event `[case]` → a number.

    Example:
        >>> concordance_index([3.0, 2.0, 1.0], time=[1.0, 2.0, 3.0], event=[True, False, True])
        1.0
    """
    times, events = _checked(distribution, time, event)
    if isinstance(distribution, Distribution):
        middle = mixture_of(distribution).icdf(torch.tensor(0.5, dtype=torch.float64)).detach().cpu()
        refuse(middle.isnan(), "distribution", "without NaN", middle)
        risks = -middle.double().numpy()
    else:
        risks = paired(distribution=distribution, time=time)[0]
    order = np.lexsort((~events, times))  # at equal times events come first
    times, events, ranks = times[order], events[order], np.unique(risks[order], return_inverse=True)[1]
    last = np.where(events, np.arange(len(times)), -1)
    start = np.maximum.accumulate(last)[np.searchsorted(times, times[events], side="right") - 1] + 1
    comparable = int((len(times) - start).sum())
    require(comparable > 0, "event", "true for a time that another exceeds", "no such pair")
    lower, not_higher = (_count_below(ranks, start, ranks[events] + step).sum() for step in (0, 1))
    return float((lower + not_higher) / (2 * comparable))


def _count_below(ranks: NDArray[np.int64], start: NDArray[np.int64], limit: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many ranks from a place on are below a limit, of many places: one pass per bit, as in a wavelet matrix."""
    low, high, below = start, np.full_like(start, len(ranks)), np.zeros_like(start)
    for bit in reversed(range(len(ranks).bit_length())):
        is_one = (ranks >> bit) & 1
        zeros = np.concatenate([[0], np.cumsum(1 - is_one)])
        takes_zeros = (limit >> bit) & 1 == 1
        below = below + np.where(takes_zeros, zeros[high] - zeros[low], 0)
        low, high = (np.where(takes_zeros, zeros[-1] + end - zeros[end], zeros[end]) for end in (low, high))
        ranks = ranks[np.argsort(is_one, kind="stable")]
    return below


def censored_negative_log_likelihood(distribution: Distribution, time: Any, event: Any) -> float:
    r"""The mean of the scoring rule `censored(log_score)`: $-\log p(t)$ of events, $-\log P(Y > t)$ of the others, in nats.

    References:
        Rindt, Hu, Steinsaltz, Sejdinovic (2022).

    Arguments:
        distribution: a prediction of one time per case.
        time: when the event was, or the last time at which there had been none.
        event: whether it was an event.

    Shape:
        distribution with batch `[case]`; time and event `[case]` → a number.

    Example:
        >>> year = torch.distributions.Exponential(torch.ones(2))
        >>> censored_negative_log_likelihood(year, time=[1.0, 3.0], event=[True, False])
        2.0
    """
    times, events = _checked(distribution, time, event)
    target = torch.from_numpy(np.stack([times, events], axis=-1))
    mixture = mixture_of(distribution)
    scores = censored()(mixture, target.to(mixture.device))
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return float(scores.double().mean())


def censored_brier_score(distribution: Distribution, time: Any, event: Any, at: float) -> float:
    r"""Mean squared error of the probability $S(t)$ to exceed the time t = `at`, with weights that make up for censoring.

    $N^{-1}\sum_n S_n(t)^2\,1\{t_n \le t,\ \text{event}\}/G(t_n^-) + (1 - S_n(t))^2\,1\{t_n > t\}/G(t)$, where G is the
    Kaplan–Meier estimate, from these cases, of the chance not to be censored before.

    References:
        Graf, Schmoor, Sauerbrei, Schumacher (1999).

    Arguments:
        distribution: a prediction of one time per case.
        time: when the event was, or the last time at which there had been none.
        event: whether it was an event.
        at: the time to look at, which some case must exceed.

    Shape:
        distribution with batch `[case]`; time and event `[case]` → a number.

    Example:
        >>> year = torch.distributions.Exponential(torch.ones(2))
        >>> round(censored_brier_score(year, time=[1.0, 3.0], event=[True, False], at=0.0), 2)
        0.0
    """
    return float(_brier_scores(distribution, time, event, [at])[0])


def integrated_brier_score(distribution: Distribution, time: Any, event: Any, times: Any = None) -> float:
    r"""The mean of the `censored_brier_score` over times, $\frac{1}{t_K - t_1}\int_{t_1}^{t_K} \mathrm{BS}(t)\,dt$.

    References:
        Graf, Schmoor, Sauerbrei, Schumacher (1999).

    Arguments:
        distribution: a prediction of one time per case.
        time: when the event was, or the last time at which there had been none.
        event: whether it was an event.
        times: where to look, at least two, increasing; by default 100 evenly spaced from the 5 % to the 95 % quantile of the
            events' times. Between them the score is taken to be straight.

    Shape:
        distribution with batch `[case]`; time and event `[case]` → a number.

    Example:
        >>> year = torch.distributions.Exponential(torch.ones(3))
        >>> round(integrated_brier_score(year, time=[1.0, 2.0, 3.0], event=[True, True, False], times=[0.5, 1.5]), 2)
        0.29
    """
    if times is None:
        observed, events = _checked(distribution, time, event)
        require(bool(events.any()), "event", "true at least once", "none")
        first, last = np.quantile(observed[events], [0.05, 0.95])
        times = np.linspace(first, last, _N_TIMES)
    grid = vector("times", times)
    require(len(grid) > 1 and bool((np.diff(grid) > 0).all()), "times", "at least two, increasing", grid[:3].tolist())
    scores = _brier_scores(distribution, time, event, grid.tolist())
    return float(np.sum((scores[1:] + scores[:-1]) / 2 * np.diff(grid)) / (grid[-1] - grid[0]))


def _brier_scores(distribution: Distribution, time: Any, event: Any, at: list[float]) -> Vector:
    times, events = _checked(distribution, time, event)
    for moment in at:
        check_number("at", moment)
        require(moment < times.max(), "at", f"below the last time, {times.max():g}", moment)
    scores = []
    for moment, weights in zip(at, brier_weights(times, events, at), strict=True):
        above = survival(distribution, torch.full(distribution.batch_shape, float(moment), dtype=torch.float64))
        scores.append(np.mean((above - (times > moment)) ** 2 * weights))
    return np.array(scores)


def brier_weights(times: Vector, events: NDArray[np.bool_], at: Sequence[float]) -> Iterator[Vector]:
    """The weights of cases that make up for censoring, at one time after another; 0 for cases censored before."""
    distinct, free = kaplan_meier(times, events, of_censoring=True)
    free = np.concatenate([[1.0], free])
    weights = events / free[np.searchsorted(distinct, times)]  # of being watched until just before
    for moment in at:
        yield np.where(times <= moment, weights, 1 / free[np.searchsorted(distinct, moment, side="right")])


def survival(distribution: Distribution, time: Tensor) -> Vector:
    """P(Y > time) of every case."""
    mixture = mixture_of(distribution)
    above = mixture.tails(time.to(mixture.device))[1]
    refuse(above.isnan(), "distribution", "without NaN", above)
    return above.detach().cpu().double().numpy()


def kaplan_meier(time: Vector, event: Any, of_censoring: bool = False) -> tuple[Vector, Vector]:
    """Distinct times, and the estimated chance to exceed each; of censoring instead of events on request.

    At equal times events come before censoring, so that a case with an event is not at risk of being censored then.
    """
    distinct, place = np.unique(time, return_inverse=True)
    ends, losses = (np.bincount(place, weights=flags, minlength=len(distinct)) for flags in (event, ~event))
    at_risk = len(time) - np.concatenate([[0.0], np.cumsum(ends + losses)[:-1]])
    if of_censoring:
        at_risk, ends = at_risk - ends, losses
    return distinct, np.cumprod(1 - ends / np.maximum(at_risk, 1))


def _checked(distribution: Any, time: Any, event: Any) -> tuple[Vector, NDArray[np.bool_]]:
    """Times and whether they were events', one for each case of the prediction."""
    if isinstance(distribution, Distribution):
        if has_classes(distribution):
            raise TypeError(f"times need a prediction of numbers, got {type(distribution).__name__} over classes")
        shape = tuple(distribution.batch_shape + distribution.event_shape)
        require(len(shape) == 1, "distribution", "of one number per case", f"shape {shape}", "take one with `target(i)`")
        require(as_tensor("time", time).shape == shape or shape == (0,), "time", f"of shape {shape}",
                tuple(as_tensor("time", time).shape))  # fmt: skip
    times, events = paired(time=time, event=event)
    refuse((events != 0) & (events != 1), "event", "true or false (1 or 0)", events)
    return times, events == 1

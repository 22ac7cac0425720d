"""Every metric: the same for any order and kind of input, best for the truth, and a refusal where there is no answer."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Distribution, LogNormal, Normal

from deep_ensembles import metrics
from deep_ensembles.metrics import concordance_index, interval_coverage, probability_integral_transform
from deep_ensembles.mixture import Mixture

METRICS = [pytest.param(value, id=name) for name in metrics.__all__ if inspect.isfunction(value := getattr(metrics, name))]
N_CASES, N_CLASSES, N_MEMBERS = 300, 10, 3
EXTRA = {"wanted": 0.6, "at": 1.0}
# A value to hit, where neither more nor less is better.
AIMS = {interval_coverage: 0.9, concordance_index: 1.0}
# One value per case, in the order of the cases.
PER_CASE = [probability_integral_transform]
Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Kind:
    """What a metric takes first, made from an array of cases; and pairs of such an array with the second input."""

    build: Callable[[np.ndarray], Any]
    perfect: Pair
    usual: Pair
    worst: Pair
    same_length: bool = True
    observe: Callable[[np.ndarray], np.ndarray] = np.copy


def classes(logits: np.ndarray) -> Distribution:
    return Categorical(logits=torch.from_numpy(logits[:, 0].copy()), validate_args=False)


def classes_mixture(logits: np.ndarray) -> Distribution:
    return Mixture(Categorical(logits=torch.from_numpy(logits.swapaxes(0, 1).copy()), validate_args=False))


def normal(free: np.ndarray) -> Distribution:
    moments = torch.from_numpy(free[:, 0].copy())
    return Normal(moments[..., 0], moments[..., 1].exp(), validate_args=False)


def normal_mixture(free: np.ndarray) -> Distribution:
    moments = torch.from_numpy(free.swapaxes(0, 1).copy())
    return Mixture(Normal(moments[..., 0], moments[..., 1].exp(), validate_args=False))


def drawn(build: Callable[[np.ndarray], Distribution], free: np.ndarray) -> np.ndarray:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build(free).sample().numpy()


def class_kind(build: Callable[[np.ndarray], Distribution]) -> Kind:
    """Rounded, so that some cases tie; the perfect is sure of the truth, the worst rules it out."""
    logits = free_parameters(N_CASES, N_CLASSES).round()
    target = drawn(build, logits)
    truth, other = (np.eye(N_CLASSES)[labels, None].repeat(N_MEMBERS, 1) for labels in (target, (target + 1) % N_CLASSES))
    return Kind(build, (50 * truth, target), (logits, target), (50 * (other - truth), target))


def number_kind(build: Callable[[np.ndarray], Distribution]) -> Kind:
    """The perfect is narrow at the truth, the worst narrow elsewhere."""
    free = free_parameters(N_CASES, 2)
    target = drawn(build, free)
    sharp = np.stack([target, np.full(N_CASES, -3.0)], -1)[:, None].repeat(N_MEMBERS, 1)
    return Kind(build, (sharp, target), (free, target), (sharp + np.array([9.0, 0.0]), target))


def free_parameters(n_cases: int, n_parameters: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_cases, N_MEMBERS, n_parameters))


def times(free: np.ndarray) -> Distribution:
    moments = torch.from_numpy(free[:, 0].copy())
    return LogNormal(moments[..., 0], moments[..., 1].exp(), validate_args=False)


def times_mixture(free: np.ndarray) -> Distribution:
    moments = torch.from_numpy(free.swapaxes(0, 1).copy())
    return Mixture(LogNormal(moments[..., 0], moments[..., 1].exp(), validate_args=False))


def censored_sometimes(latent: np.ndarray) -> np.ndarray:
    """Times as they are observed, `[case, 2]`: until the event, or until the watching ends."""
    end = np.random.default_rng(5).exponential(3.0, size=len(latent))
    return np.stack([np.minimum(latent, end), latent <= end], axis=-1)


def time_kind(build: Callable[[np.ndarray], Distribution]) -> Kind:
    """The perfect is narrow at the truth, the worst narrow far off and in the opposite order."""
    free = free_parameters(N_CASES, 2)
    latent = drawn(build, free)
    observed = censored_sometimes(latent)
    sharp, wrong = (
        np.stack([middle, np.full(N_CASES, -3.0)], -1)[:, None].repeat(N_MEMBERS, 1)
        for middle in (np.log(latent), 9 - np.log(latent))
    )
    return Kind(build, (sharp, observed), (free, observed), (wrong, observed), observe=censored_sometimes)


def vector_kinds() -> dict[tuple[str, str], Kind]:
    """Rounded, so that cases tie."""
    random = np.random.default_rng(0)
    low, high = random.uniform(0, 0.4, N_CASES).round(2), random.uniform(0.6, 1, N_CASES - 50).round(2)
    near, far = random.normal(0, 1, N_CASES).round(1), random.normal(1, 1, N_CASES - 50).round(1)
    sure = random.uniform(0, 1, N_CASES).round(1)
    right = (random.uniform(size=N_CASES) < sure).astype(float)
    loss = random.exponential(size=N_CASES).round(1)
    return {
        ("known", "unknown"): Kind(np.copy, (low, high), (near, far), (1 - low, 1 - high), same_length=False),
        ("confidence", "correct"): Kind(np.copy, (right, right), (sure, right), (1 - right, right)),
        ("uncertainty", "loss"): Kind(np.copy, (loss, loss), (random.normal(size=N_CASES).round(1), loss), (-loss, loss)),
    }


VECTORS = vector_kinds()
TIMES = {"times": time_kind(times), "times_mixture": time_kind(times_mixture)}
DISTRIBUTIONS = {
    "classes": class_kind(classes),
    "classes_mixture": class_kind(classes_mixture),
    "normal": number_kind(normal),
    "normal_mixture": number_kind(normal_mixture),
}


def completed(metric: Callable) -> Callable:
    """The metric with whatever else it must be told."""
    names = inspect.signature(metric).parameters
    whole = partial(metric, **{name: value for name, value in EXTRA.items() if name in names})
    return partial(of_pairs, whole) if "event" in names else whole


def of_pairs(metric: Callable, distribution: Any, target: Any) -> Any:
    """A metric of times and events for targets `[case, 2]`."""
    if isinstance(target, list):
        return metric(distribution, *([pair[part] for pair in target] for part in (0, 1)))
    return metric(distribution, target[..., 0], target[..., 1])


def accepts(metric: Callable, kind: Kind) -> bool:
    try:
        metric(kind.build(kind.usual[0]), kind.usual[1])
    except TypeError:
        return False
    return True


def kinds_of(metric: Callable) -> dict[str, Kind]:
    first, second = list(inspect.signature(metric).parameters)[:2]
    if (first, second) == ("distribution", "time"):
        return TIMES
    if (first, second) != ("distribution", "target"):
        return {first: VECTORS[first, second]}
    return {name: kind for name, kind in DISTRIBUTIONS.items() if accepts(metric, kind)}


def accepted() -> list:
    """Every metric with every kind of input that it takes."""
    return [
        pytest.param(each.values[0], kind, id=f"{each.id}-{name}")
        for each in METRICS
        for name, kind in kinds_of(each.values[0]).items()
    ]


def fields(result: Any) -> dict[str, Any]:
    """The parts of a result by name."""
    if dataclasses.is_dataclass(result):
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return result._asdict() if isinstance(result, tuple) else {"": result}


def is_ranked(metric: Callable, kind: Kind) -> bool:
    """Whether all parts are numbers of which more, or less, is better; a found threshold is not."""
    result = metric(kind.build(kind.usual[0]), kind.usual[1])
    return not isinstance(result, tuple) and all(isinstance(value, float) for value in fields(result).values())


every_metric = pytest.mark.parametrize("metric", METRICS)
every_pair = pytest.mark.parametrize(("metric", "kind"), accepted())
every_ranked = pytest.mark.parametrize(
    ("metric", "kind"), [each for each in accepted() if is_ranked(completed(each.values[0]), each.values[1])]
)


def evaluated(metric: Callable, kind: Kind, pair: Pair) -> dict[str, Any]:
    return fields(completed(metric)(kind.build(pair[0]), pair[1]))


def differentiable(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(float)).requires_grad_()


def in_order(results: dict[str, Any], metric: Callable) -> dict[str, Any]:
    return {name: np.sort(values) for name, values in results.items()} if metric in PER_CASE else results


def assert_same(results: dict[str, Any], expected: dict[str, Any]) -> None:
    assert results.keys() == expected.keys()
    for name, value in results.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-14, err_msg=name)


@every_metric
def test_measures_something(metric):
    assert kinds_of(metric)


@every_pair
def test_result_is_numbers_or_frozen_curves(metric, kind):
    result = completed(metric)(kind.build(kind.usual[0]), kind.usual[1])
    assert all(isinstance(value, (float, np.ndarray)) for value in fields(result).values())
    if dataclasses.is_dataclass(result):
        assert type(result).__dataclass_params__.frozen


@every_pair
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_of_cases_does_not_matter(metric, kind, seed):
    if kind.same_length:
        order = np.random.default_rng(seed).permutation(N_CASES)
        shuffled = tuple(each[order] for each in kind.usual)
    else:
        shuffled = tuple(np.random.default_rng(seed).permutation(each) for each in kind.usual)
    results = (in_order(evaluated(metric, kind, pair), metric) for pair in (shuffled, kind.usual))
    assert_same(*results)


@every_pair
@pytest.mark.parametrize("convert", [torch.from_numpy, np.ndarray.tolist, differentiable])
def test_arrays_tensors_and_lists_are_the_same(metric, kind, convert):
    first, second = kind.usual
    built = convert(first) if kind.build is np.copy else kind.build(first)
    assert_same(fields(completed(metric)(built, convert(second))), evaluated(metric, kind, kind.usual))


@every_pair
def test_inputs_are_left_alone(metric, kind):
    pair = tuple(each.copy() for each in kind.usual)
    completed(metric)(pair[0] if kind.build is np.copy else kind.build(pair[0]), pair[1])
    assert all(np.array_equal(each, before) for each, before in zip(pair, kind.usual, strict=True))


@every_pair
def test_refuses_nothing(metric, kind):
    with pytest.raises(ValueError, match=r"must be .*at least one.*, got"):
        completed(metric)(kind.build(kind.usual[0][:0]), kind.usual[1][:0])


@every_pair
@pytest.mark.parametrize("rows", [np.s_[:-1], np.s_[:1], np.s_[:, None]], ids=["shorter", "one", "column"])
def test_refuses_what_does_not_match(metric, kind, rows):
    first, second = kind.usual
    if not kind.same_length and second[rows].ndim == 1:
        assert evaluated(metric, kind, (first, second[rows])) != evaluated(metric, kind, kind.usual)
        return
    with pytest.raises(ValueError, match=r"must be .*, got"):
        completed(metric)(kind.build(first), second[rows])


@every_pair
@pytest.mark.parametrize("which", [0, 1])
def test_refuses_nan(metric, kind, which):
    pair = [each.astype(float) for each in kind.usual]
    pair[which][7] = np.nan
    with pytest.raises(ValueError, match=r"must be (finite|without NaN), got nan"):
        completed(metric)(kind.build(pair[0]), pair[1])


@every_ranked
def test_usual_lies_between_perfect_and_worst(metric, kind):
    perfect, usual, worst = (evaluated(metric, kind, pair) for pair in (kind.perfect, kind.usual, kind.worst))
    for name, value in usual.items():
        low, high = sorted((perfect[name], worst[name]))
        assert low < value < high, name


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        each
        for each in accepted()
        if each.values[1] in (DISTRIBUTIONS | TIMES).values() and is_ranked(completed(each.values[0]), each.values[1])
    ],
)
def test_the_truth_is_best(metric, kind, seed):
    """With many cases drawn from it, the true distribution comes nearer to the perfect value than another one."""
    n_parameters = kind.usual[0].shape[-1]
    truth = free_parameters(20_000, n_parameters)
    target = kind.observe(drawn(kind.build, truth))
    other = truth + 0.7 * (free_parameters(20_000, n_parameters, seed) - 1)
    metric, aim = completed(metric), AIMS.get(metric, completed(metric)(kind.build(kind.perfect[0]), kind.perfect[1]))
    true_error, other_error = (abs(metric(kind.build(free), target) - aim) for free in (truth, other))
    assert true_error < other_error

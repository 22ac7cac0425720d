"""The head and the bounds of a table's model: read from text, checked against the target, suggested by its look."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles import Point, StudentT, crps
from deep_ensembles._checks import check_number, require
from deep_ensembles.columns import TableError, skewness
from deep_ensembles.mixture import mixture_of
from deep_ensembles.recalibration import Prediction
from deep_ensembles.settings import known_objects
from deep_ensembles.training.prepare import support_in_words

_HEAD_FORM = "a name with arguments as in logit_normal:low=0,high=100"
_BOUNDS = ((1.0, 0.5), (100.0, 80.0))  # of shares and percentages, and what some value must exceed
_FEW_LEVELS, _FEW_ROWS, _LARGEST_COUNT, _LARGEST_MEAN = 3, 20, 10_000, 50.0
_BOUNDS_FORM = "LOW,HIGH, of which one may be empty, as in '0,100' or '0,'"
_NODES = 64
_NEGLIGIBLE = 1e-9  # the probability outside that no score shows


@cache
def heads() -> Mapping[str, Any]:
    """The heads that one column can have, by their names in small letters."""
    known = {name.removeprefix("heads."): head for name, head in known_objects().items() if name.startswith("heads.")}
    # A point has no spread to learn.
    return {re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower(): head for name, head in known.items()
            if head.kind in ("numbers", "counts", "classes") and head is not Point}  # fmt: skip


def head_named(text: str) -> Any:
    """The head that a text names, with its arguments; the items of a list have commas between them too.

    Example:
        >>> head_named("gaussian_mixture:k=5").k, head_named("quantiles:levels=0.1,0.5,0.9").levels
        (5, (0.1, 0.5, 0.9))
    """
    if not isinstance(text, str):
        raise TableError(f"`head` must be {_HEAD_FORM}, got {text!r}")
    name, _, rest = (part.strip() for part in text.partition(":"))
    if name not in heads():
        near = get_close_matches(name.lower().replace("-", "_"), heads(), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise TableError(f"`head` must be one of {', '.join(heads())}, got {name!r}{meant}")
    known = {field.name: field.default for field in fields(heads()[name])}
    values = {}
    for argument, parts in _arguments(rest).items():
        if argument not in known:
            raise TableError(f"the head {name} has no argument {argument!r}; it has {', '.join(known) or 'none'}")
        values[argument] = _value(argument, parts, known[argument])
    try:
        head = heads()[name](**values)
    except ValueError as error:
        raise TableError(f"the head {name}: {error}") from error
    if isinstance(head, StudentT) and head.point == "median":
        raise TableError("a table of predictions has means, which a Student-t has above 1 degree of freedom; "
                         "give more, as in student_t:min_degrees_of_freedom=2.1")  # fmt: skip
    return head


def name_of(head: Any) -> str:
    """The name of a head that `head_named` knows, without its arguments."""
    return next(name for name, kind in heads().items() if kind is type(head))


def _arguments(text: str) -> dict[str, list[str]]:
    """Arguments and their values, of which a list has several."""
    values: dict[str, list[str]] = {}
    for item in filter(None, re.split(r",(?=[^,=]*=)", text.strip(", "))):
        argument, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise TableError(f"`head` must be {_HEAD_FORM}, got {item!r}")
        if argument in values:
            raise TableError(f"`head` names the argument {argument!r} twice")
        values[argument] = [part.strip() for part in value.split(",")]
    return values


def _value(argument: str, parts: list[str], default: Any) -> Any:
    if is_dataclass(default):  # a head within a head, by its name alone
        return head_named(parts[0])
    if isinstance(default, tuple):
        return tuple(_number(argument, part) for part in parts)
    if len(parts) > 1:
        raise TableError(f"`{argument}` must be one value, got {', '.join(parts)}")
    return None if parts[0].lower() == "none" else _number(argument, parts[0])


def _number(argument: str, text: str) -> int | float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError as error:
        raise TableError(f"`{argument}` must be a number, got {text!r}") from error


def check_targets(head: Any, name: str, y: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Refuse a target outside what the head can predict, naming its row (numbers from 0) and value."""
    if head.kind == "classes" or head.support.check(values := torch.from_numpy(y)).all():
        return
    place = int((~head.support.check(values)).nonzero()[0])
    bounded = getattr(head, "high", None) is not None
    cure = "give wider bounds, as in logit_normal:low=-1,high=101" if bounded else "leave such rows out"
    needed = f"{support_in_words(head.support)} for the head {name_of(head)}"
    raise TableError(f"`{name}` must be {needed}, but is {y[place]:g} in row {rows[place] + 1}; {cure}, "
                     "or take another head: `normal` takes any number")  # fmt: skip


def suggested_head(y: NDArray[Any], levels: NDArray[Any] | None = None) -> tuple[str, str] | None:
    """The head that a target looks made for, and why; None where the default is apt or little is known.

    Arguments:
        y: values of the target.
        levels: what whole numbers mean that are taken for classes.
    """
    values = np.asarray(y, dtype=np.float64) if levels is None else np.asarray(levels, dtype=np.float64)[y]
    if len(values) < _FEW_ROWS:
        return None
    may_count = values.min() >= 0 and (values == np.floor(values)).all() and not _is_full(values)
    counts = _suggested_for_counts(values) if may_count else None
    if levels is not None:
        return _suggested_for_levels(values, counts)
    return counts or _suggested_for_numbers(values)


def suggested_bounds(y: NDArray[Any]) -> tuple[str, str] | None:
    """The bounds that numbers look made for, some of which lie on one, so that heads with bounds refuse them; and why.

    Example:
        >>> suggested_bounds(np.append(np.linspace(0.1, 0.9, 30), 1.0))
        ('0,1', 'all values are from 0 to 1, some of them on a bound')
    """
    low, high = float(y.min()), float(y.max())
    if len(y) < _FEW_ROWS or low < 0 or len(np.unique(y)) < _FEW_ROWS:
        return None
    end = 100 if high == 100 else 1
    if (low < high / 2 or _is_full(y)) and (high == end or (low == 0 and 0.5 < high < 1)):
        return f"0,{end}", f"all values are from 0 to {end}, some of them on a bound"
    if low == 0 and skewness(y) > 1:
        return "0,", f"all values are 0 or more and skewed to the right, {(y == 0).mean():.0%} of them 0"
    return None


def _is_full(values: NDArray[Any]) -> bool:
    """Whether several values are 100 and none is more, as in per cent and points, which are no counts."""
    return bool(values.max() == 100 and (values == 100).sum() >= max(2, len(values) / 100))


def _suggested_for_levels(values: NDArray[np.float64], counts: tuple[str, str] | None) -> tuple[str, str] | None:
    """Of few whole numbers: counts if they start at 0 and thin out, else classes whose order may matter."""
    shown, shares = np.unique(values, return_counts=True)
    if len(shown) < _FEW_LEVELS:
        return None
    if counts is not None and shown[0] == 0 and len(shown) > _FEW_LEVELS and shares[-1] * 4 < shares.max():
        return counts[0], f"{counts[1]}, if they are counts and no names of classes"
    return "ordinal", f"it has {len(shown)} different whole numbers, if these have an order as grades do"


def _suggested_for_counts(values: NDArray[np.float64]) -> tuple[str, str] | None:
    # Large whole numbers (prices, years) are hardly counts, and large counts are as good as numbers.
    if not 0 < values.max() < _LARGEST_COUNT or values.mean() > _LARGEST_MEAN:
        return None
    mean, variance, zeros = values.mean(), values.var(), (values == 0).mean()
    if variance < 1.5 * mean:
        return "poisson", "it has whole numbers ≥ 0 whose variance is about their mean"
    size = mean**2 / (variance - mean)
    if zeros > (size / (size + mean)) ** size + 0.05:
        return "zero_inflated", f"it has whole numbers ≥ 0, {zeros:.0%} of them 0"
    return "negative_binomial", "it has whole numbers ≥ 0 that vary more than a Poisson's"


def _suggested_for_numbers(values: NDArray[np.float64]) -> tuple[str, str] | None:
    for high, reached in _BOUNDS:
        if values.min() > 0 and reached < values.max() < high:
            return f"logit_normal:low=0,high={high:g}", f"all values are between 0 and {high:g}"
    scaled = values / (np.abs(values).max() or 1.0)
    if scaled.min() > 0 and skewness(scaled) > 1:
        name = "log_normal" if skewness(np.log(scaled)) > -0.5 else "gamma"
        may_count = values.max() < _LARGEST_COUNT and (values == np.floor(values)).all()
        counts = "; negative_binomial, if they are counts" * bool(may_count)
        return name, f"all values are above 0 and skewed to the right{counts}"
    return None


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value that a number can have; infinite where there is none.

    As a function it moves what is predicted outside to the nearest bound; see `Bounded`.

    Example:
        >>> Bounds.named("0,"), Bounds.named("-1, 1")
        (Bounds(low=0.0, high=inf), Bounds(low=-1.0, high=1.0))
    """

    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if value not in (-np.inf, np.inf):
                check_number(name, value)
        require(self.low < self.high, "bounds", "a lower one below a higher one", f"{self.low:g}, {self.high:g}")

    @classmethod
    def named(cls, text: Any) -> "Bounds":
        """The bounds that a text names."""
        parts = text.split(",") if isinstance(text, str) else []
        try:
            low, high = (float(part) if part.strip() else np.nan for part in parts)
        except ValueError as error:
            raise TableError(f"`bounds` must be {_BOUNDS_FORM}, got {text!r}") from error
        require(not np.isnan([low, high]).all(), "bounds", _BOUNDS_FORM, text)
        return cls(float(np.nan_to_num(low, nan=-np.inf)), float(np.nan_to_num(high, nan=np.inf)))

    def __call__(self, prediction: Distribution) -> Any:
        return Bounded(mixture_of(prediction), self)

    def check(self, head: Any, name: str, y: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Refuse a target outside, naming its row (numbers from 0) and value; and bounds that the head cannot have."""
        if head.kind == "classes":
            raise TableError(f"`bounds` are for numbers, but `{name}` has classes; leave them out")
        ends = [end for end in (self.low, self.high) if np.isfinite(end)]
        require(head.kind != "counts" or all(end == round(end) for end in ends), "bounds", "whole numbers for counts", ends)
        outside = (y < self.low) | (y > self.high)
        if outside.any():
            place = int(np.argmax(outside))
            raise TableError(f"`{name}` must be within the bounds '{self}', but is {y[place]:g} in row {rows[place] + 1}; "
                             "give wider bounds, correct it, or leave it empty to leave the row out")  # fmt: skip

    def __str__(self) -> str:
        return ",".join(f"{end:g}" if np.isfinite(end) else "" for end in (self.low, self.high))


class Bounded(Distribution):
    r"""A prediction whose values outside the bounds are moved to the nearest one, $\min(\max(Y, l), h)$.

    Quantiles are moved inside, and so is the mean of the prediction. For a target inside the bounds, no squared error and
    no CRPS grows by that, and no interval that held the target loses it, so that recalibrated intervals, conformal ones
    too, keep what they promise. Deviations and their parts are of the prediction before.

    What was outside makes the bounds points of positive probability, where no density exists. `log_prob` is therefore the
    density of the prediction before: it can be compared with that of a model without bounds, and the probability outside
    counts as lost. Counts have probabilities everywhere, and what was outside is added to that of the bound. Heads such as
    `LogitNormal`, `LogNormal` and `Gamma` have densities with nothing outside.

    Arguments:
        prediction: of one number or count per row.
        bounds: those that values have.

    Example:
        >>> narrow = Bounds(0.0)(torch.distributions.Normal(torch.tensor([-1.0, 3.0]), torch.ones(2)))
        >>> narrow.mean, narrow.icdf(torch.tensor(0.95)).round(decimals=2)
        (tensor([0., 3.]), tensor([0.6400, 4.6400]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    is_discrete = False

    def __init__(self, prediction: Prediction, bounds: Bounds) -> None:
        self.prediction, self.bounds = prediction, bounds
        self.mixture = getattr(prediction, "mixture", prediction)
        self.n_members, self.device, self.kind = prediction.n_members, prediction.device, prediction.kind
        super().__init__(prediction.batch_shape, prediction.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return f"Bounded({self.prediction!r}, {self.bounds})"

    def __getattr__(self, name: str) -> Any:
        """Parts of the variance, information and disagreement: the prediction's own."""
        if name in ("aleatoric", "epistemic", "mutual_information", "disagreement", "moment_matched"):
            return getattr(self.prediction, name)
        raise AttributeError(f"Bounded has no attribute {name!r}")

    @property
    def support(self) -> constraints.Constraint:
        """What lies between the bounds."""
        return constraints.interval(self.bounds.low, self.bounds.high)

    def __getitem__(self, rows: Any) -> "Bounded":
        """The prediction for some rows."""
        return Bounded(self.prediction[rows], self.bounds)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Bounded":
        """The same prediction for a larger batch shape."""
        return Bounded(self.prediction.expand(batch_shape), self.bounds)

    def _inside(self, values: Tensor) -> Tensor:
        return values.clamp(self.bounds.low, self.bounds.high)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles."""
        return self._inside(self.prediction.icdf(value))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Draws of the prediction, moved inside."""
        return self._inside(self.prediction.sample(sample_shape))

    @property
    def mean(self) -> Tensor:
        """The mean of the prediction, moved inside."""
        return self._inside(self.prediction.mean)

    @property
    def variance(self) -> Tensor:
        """Variance of the prediction before."""
        return self.prediction.variance

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the density of the prediction before; of counts of the probability, exact on the bounds too."""
        logs, value = self.prediction.log_prob(value), torch.as_tensor(value)
        if self.kind == "counts":
            logs = torch.where(value == self.bounds.low, self.prediction.tails(value)[0].log(), logs)
            logs = torch.where(value == self.bounds.high, self.prediction.tails(value - 1)[1].log(), logs)
        return logs

    def entropy(self) -> Tensor:
        """Entropy of the prediction before, in nats."""
        return self.prediction.entropy()

    def cdf(self, value: Tensor) -> Tensor:
        """Distribution function."""
        return self.tails(value)[0]

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y ≤ value) and P(Y > value). A number on a bound stands for all levels of what was outside, and has the one of
        them that is nearest to a half, so that it is inside the central intervals that reach it."""
        value, (low, high) = torch.as_tensor(value), (self.bounds.low, self.bounds.high)
        lower, upper = self.prediction.tails(value)
        passed = value >= high if self.kind == "counts" else value > high
        if self.kind != "counts":
            on_a_bound = (value == low) & (lower > 0.5) | (value == high) & (lower < 0.5)
            lower, upper = (torch.where(on_a_bound, 0.5, tail) for tail in (lower, upper))
        lower, upper = torch.where(value < low, 0.0, lower), torch.where(value < low, 1.0, upper)
        return torch.where(passed, 1.0, lower), torch.where(passed, 0.0, upper)

    def crps(self, target: Tensor) -> Tensor:
        r"""The continuous ranked probability score: the prediction's less $\int_{-\infty}^l F^2 + \int_h^\infty (1 - F)^2$.

        The integrals are good to a thousandth of the spread. Of counts the score is the prediction's own, which is larger.
        """
        score = crps(self.prediction, target)
        if self.kind == "counts":
            return score
        for side, bound in enumerate((self.bounds.low, self.bounds.high)):
            if np.isfinite(bound):
                score = score - self._squared_outside(bound, side)
        return score.clamp_min(0.0)

    def _squared_outside(self, bound: float, side: int) -> Tensor:
        r"""$\int F^2$ below a bound, or $\int (1 - F)^2$ above it, in $u = t/(t + s)$ with t the distance from the bound."""
        edge = torch.tensor(bound, dtype=torch.float64)
        outside = self.prediction.tails(edge)[side]
        if not bool((outside > _NEGLIGIBLE).any()):
            return torch.zeros_like(outside)
        nodes, weights = (torch.from_numpy(part).reshape(-1, 1) for part in np.polynomial.legendre.leggauss(_NODES))
        shares, weights = (nodes + 1) / 2, weights / 2
        middle = self.prediction.icdf(torch.tensor(0.5))
        spread = self.prediction.icdf(torch.tensor(0.75)) - self.prediction.icdf(torch.tensor(0.25))
        scale = spread + (middle - edge).abs()
        points = edge + (2 * side - 1) * scale * shares / (1 - shares)
        return (self.prediction.tails(points)[side].square() * weights * scale / (1 - shares).square()).sum(0)

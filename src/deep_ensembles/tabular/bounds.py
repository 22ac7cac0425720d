"""Bounds that a user knows of a number: predictions stay inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles._checks import check_number, require
from deep_ensembles.columns import TableError
from deep_ensembles.mixture import mixture_of
from deep_ensembles.recalibration import Prediction
from deep_ensembles.scoring import crps

_FORM = "LOW,HIGH, of which one may be empty, as in '0,100' or '0,'"
_NODES = 64
_NEGLIGIBLE = 1e-9  # the probability outside that no score shows


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
    def named(cls, text: Any) -> Bounds:
        """The bounds that a text names."""
        parts = text.split(",") if isinstance(text, str) else []
        try:
            low, high = (float(part) if part.strip() else np.nan for part in parts)
        except ValueError as error:
            raise TableError(f"`bounds` must be {_FORM}, got {text!r}") from error
        require(not np.isnan([low, high]).all(), "bounds", _FORM, text)
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

    def __getitem__(self, rows: Any) -> Bounded:
        """The prediction for some rows."""
        return Bounded(self.prediction[rows], self.bounds)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Bounded:
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
        if self.kind == "counts":
            passed, on_a_bound = value >= high, torch.zeros_like(value, dtype=torch.bool)
        else:
            passed = value > high
            on_a_bound = (value == low) & (lower > 0.5) | (value == high) & (lower < 0.5)
        zero, half, one = (lower.new_tensor(level) for level in (0.0, 0.5, 1.0))
        lower, upper = (torch.where(on_a_bound, half, tail) for tail in (lower, upper))
        lower, upper = torch.where(value < low, zero, lower), torch.where(value < low, one, upper)
        return torch.where(passed, one, lower), torch.where(passed, zero, upper)

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
        nodes, weights = (torch.from_numpy(part).reshape(-1, 1) for part in leggauss(_NODES))
        shares, weights = (nodes + 1) / 2, weights / 2
        middle = self.prediction.icdf(torch.tensor(0.5))
        spread = self.prediction.icdf(torch.tensor(0.75)) - self.prediction.icdf(torch.tensor(0.25))
        scale = spread + (middle - edge).abs()
        points = edge + (2 * side - 1) * scale * shares / (1 - shares)
        return (self.prediction.tails(points)[side].square() * weights * scale / (1 - shares).square()).sum(0)

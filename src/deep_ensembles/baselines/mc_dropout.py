"""Monte Carlo dropout: one network, asked many times with dropout left on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from typing_extensions import Self

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles._random import Purpose, RandomState, run_seeds, stream
from deep_ensembles._splits import hold_out
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.estimators import store_arguments
from deep_ensembles.execution import Execution
from deep_ensembles.fitting import cross_validate
from deep_ensembles.heads import Point
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.scoring import log_score, squared_error

RATES = (0.005, 0.01, 0.05, 0.1)
# Candidates for the noise's standard deviation τ^-½, in standard deviations of the target.
DEVIATIONS = np.geomspace(0.01, 1.5, 40)


@dataclass(frozen=True)
class DropoutModel:
    """A network trained with dropout, and the noise around its draws.

    Arguments:
        ensemble: one member, trained on squared error.
        rate: its dropout rate.
        deviation: the noise's standard deviation τ^-½, in the units of the target.
        n_samples: how many draws a prediction takes.
    """

    ensemble: Ensemble
    rate: float
    deviation: float
    n_samples: int

    def __call__(self, inputs: Any) -> Mixture:
        """The mixture of normals around the draws."""
        return _around(self.ensemble.sampled(inputs, self.n_samples, self.ensemble.seeds[0]).components.mean, self.deviation)


def fit_dropout(
    inputs: np.ndarray,
    targets: np.ndarray,
    row_sets: Sequence[np.ndarray],
    *,
    rates: Sequence[float] = RATES,
    hidden_sizes: Sequence[int] = (50,),
    n_samples: int = 100,
    validation_fraction: float = 0.2,
    random_state: RandomState = None,
    **settings: Any,
) -> list[DropoutModel]:
    r"""One model per set of rows (say, per split); all sets train as one stack.

    Dropout rate and precision τ are those of the best predictive log-likelihood,
    $\log T^{-1}\sum_t \mathcal{N}(y; \mu_t, \tau^{-1})$, on rows held out from the set; then the network is trained anew on
    all rows of the set.

    References:
        Gal & Ghahramani (2016), section 5.2.

    Arguments:
        rates: the dropout rates to choose from.
        settings: any setting of `fit_ensemble`.
    """
    require(len(rates) > 0, "rates", "at least one dropout rate", rates)
    for rate in rates:
        check_number("rates", rate, low=0, high=1, below=True)
    common = {"head": Point(), "scoring_rule": squared_error, "n_members": 1, "random_state": random_state, **settings}
    build = {rate: partial(mlp, inputs.shape[1], 1, tuple(hidden_sizes), dropout=rate) for rate in rates}
    seeds = run_seeds(random_state, len(row_sets))
    check_number("validation_fraction", validation_fraction, low=0, above=True, high=1, below=True)
    pairs = zip(row_sets, seeds, strict=True)
    parts = [hold_out(rows, validation_fraction, stream(seed, Purpose.VALIDATION)) for rows, seed in pairs]

    def trained_with(rate: float, cv: Any, name: str) -> list[Ensemble]:
        point = settings.get("checkpoint")
        own = {} if point is None else {"checkpoint": point.numbered(f"{name}-{rate}")}
        return cross_validate(build[rate], inputs, targets, cv=cv, **(common | own)).ensembles

    best: list[tuple[float, float, float]] = [(np.inf, 0.0, 0.0)] * len(row_sets)  # held-out score, rate, deviation
    for rate in rates:
        trained = trained_with(rate, parts, "tried")
        for i, (ensemble, (fitted, held_out)) in enumerate(zip(trained, parts, strict=True)):
            means = ensemble.sampled(inputs[held_out], n_samples, seeds[i]).components.mean
            score, deviation = _best_deviation(means, targets[held_out], float(np.std(targets[fitted])))
            best[i] = min(best[i], (score, rate, deviation))

    kept = {}
    for rate in sorted({rate for _, rate, _ in best}):
        folds = [(rows, rows[:1]) for rows, choice in zip(row_sets, best, strict=True) if choice[1] == rate]
        kept[rate] = iter(trained_with(rate, folds, "kept"))
    return [DropoutModel(next(kept[rate]), rate, deviation, n_samples) for _, rate, deviation in best]


class MCDropout(RegressorMixin, BaseEstimator):
    """Monte Carlo dropout with the estimators' face.

    Arguments:
        rates: the dropout rates to choose from on held-out rows; one for no choice.
        hidden_sizes: one size per hidden layer.
        n_samples: how many draws a prediction takes.
        validation_fraction: the share of rows held out to choose rate and noise.
        max_epochs, batch_size, learning_rate, weight_decay: see `Recipe`.
        execution: where networks are trained, as for `fit_ensemble`.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MCDropout(rates=(0.1,), max_epochs=10, random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape
        ((442,), (442,))
    """

    def __init__(
        self,
        *,
        rates: Sequence[float] = RATES,
        hidden_sizes: Sequence[int] = (50,),
        n_samples: int = 100,
        validation_fraction: float = 0.2,
        max_epochs: int = 100,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        random_state: RandomState = None,
        device: str | torch.device = "auto",
        execution: Execution | None = None,
        verbose: int = 0,
    ) -> None:
        store_arguments(self, locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # every row of a prediction has other draws
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows `X` (n, features) and numbers `y` (n,)."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=(np.float64, np.float32))
        require(len(y) > 1, "X", "at least 2 rows, to hold some out", "1 sample")
        check_integer("n_samples", self.n_samples, low=1)
        (self.model_,) = fit_dropout(X, y.astype(np.float64), [np.arange(len(y))], **self.get_params())
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """The mixture of normals around the draws, in the units of the target."""
        check_is_fitted(self)
        return self.model_(validate_data(self, X, reset=False, dtype=(np.float64, np.float32)))

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of the mixture, and on request its standard deviation."""
        prediction = self.predict_distribution(X)
        return (prediction.mean.numpy(), prediction.stddev.numpy()) if return_std else prediction.mean.numpy()


def _around(draws: Tensor, deviation: float) -> Mixture:
    return Mixture(torch.distributions.Normal(draws, torch.full_like(draws, deviation), validate_args=False))


def _best_deviation(draws: Tensor, targets: np.ndarray, unit: float) -> tuple[float, float]:
    """The least held-out score over candidate noises, and the noise that has it."""
    target, candidates = torch.as_tensor(targets), [(unit or 1.0) * factor for factor in DEVIATIONS.tolist()]
    return min((float(log_score(_around(draws, deviation), target).mean()), deviation) for deviation in candidates)

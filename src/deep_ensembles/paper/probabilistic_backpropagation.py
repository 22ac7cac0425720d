"""Probabilistic backpropagation: a distribution over the weights, updated one example at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from typing_extensions import Self

from deep_ensembles._checks import check_integer, require
from deep_ensembles._random import Purpose, RandomState, run_seeds, stream
from deep_ensembles._terminal import progress
from deep_ensembles.distributions import rescaled
from deep_ensembles.estimators import store_arguments
from deep_ensembles.mixture import Mixture, concatenated
from deep_ensembles.paper import _pbp
from deep_ensembles.training.data import Moments, Standardization

_BLOCK_STEPS = 256
_BATCH_ELEMENTS = 4_000_000


@dataclass(frozen=True)
class Posterior:
    """What training leaves: normal weights and a gamma-distributed noise precision, of one or more runs.

    Calling it gives the predictive distribution of inputs `[row, input]`, one normal component per run, so that the
    posterior of one run (`posterior[i]`) predicts a single normal distribution.

    Shape:
        hidden `[run, 2, input + 1, hidden]` and output `[run, 2, hidden + 1]`: means and variances, biases last;
        noise `[run, 2]`: shape and rate; history `[epoch, run]`: mean log-evidence of the epoch's examples.
    """

    hidden: Tensor
    output: Tensor
    noise: Tensor
    standardization: Standardization
    history: Tensor

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, run: int) -> "Posterior":
        """The posterior of one run."""
        one = [range(len(self))[run]]
        weights = (self.hidden[one], self.output[one], self.noise[one])
        return Posterior(*weights, self.standardization.select(one), self.history[:, one])

    def __call__(self, inputs: Any) -> Mixture:
        size = max(1, _BATCH_ELEMENTS // (len(self) * self.hidden.shape[-1]))
        return concatenated([self._predict(batch) for batch in torch.as_tensor(inputs).double().split(size)])

    def _predict(self, inputs: Tensor) -> Mixture:
        features = _pbp.features(self.standardization.inputs(inputs.unsqueeze(0), torch.float64), self.hidden.shape[-1])
        hidden = _pbp.rectified(_pbp.Moments(*(features @ self.hidden).unbind(1))).moments
        weights = _pbp.Moments(*self.output.unsqueeze(1).unbind(2))
        mean, variance = (moment.squeeze(-1) for moment in _pbp.output_moments(weights, _pbp.activations(hidden)))
        variance = variance + (self.noise[:, 1] / (self.noise[:, 0] - 1)).unsqueeze(1)
        units = self.standardization.tensors()
        shift, scale = (units[name].unsqueeze(1) for name in ("target_shift", "target_scale"))
        return Mixture(rescaled(torch.distributions.Normal(mean, variance.sqrt(), validate_args=False), shift, scale))


def fit_runs(
    inputs: Any,
    targets: Any,
    rows_per_run: Sequence[np.ndarray],
    seeds: Sequence[int],
    *,
    n_hidden: int = 50,
    n_epochs: int = 40,
    verbose: int = 0,
) -> Posterior:
    """Train many runs at once: an update touches one example, so a single run's tensors are too small to be fast.

    Each run has its own order and standardisation, and ends where it would alone.

    Arguments:
        inputs: `[row, input]`, as a tensor or array.
        targets: `[row]`, likewise.
        rows_per_run: the numbers of the rows that each run may see, as many for each.
        seeds: one per run.
        n_hidden, n_epochs, verbose: as for `ProbabilisticBackpropagation`.

    Example:
        >>> x = torch.linspace(-1, 1, 60).unsqueeze(1)
        >>> halves = [np.arange(0, 60, 2), np.arange(1, 60, 2)]
        >>> posterior = fit_runs(x, x[:, 0] ** 2, halves, [0, 1], n_hidden=5, n_epochs=2)
        >>> len(posterior), posterior[0](x).batch_shape
        (2, torch.Size([60]))
    """
    require(len(rows_per_run) == len(seeds) > 0, "seeds", f"one per run ({len(rows_per_run)})", len(seeds))
    sizes = sorted({len(rows) for rows in rows_per_run})
    require(len(sizes) == 1 and sizes[0] > 0, "rows_per_run", "at least one row each, as many for each", sizes)
    inputs, targets = (torch.as_tensor(values).double() for values in (inputs, targets))
    units = Standardization.stack([_units(inputs[rows], targets[rows]) for rows in rows_per_run])
    history = []
    with torch.inference_mode(), progress("training", n_epochs, "epochs", verbose=verbose) as update:
        state = _pbp.Filter(_initial_means(seeds, inputs.shape[1], n_hidden))
        for epoch in range(n_epochs):
            shuffles = [stream(seed, Purpose.ORDER, epoch) for seed in seeds]
            order = [shuffle.permutation(rows) for shuffle, rows in zip(shuffles, rows_per_run, strict=True)]
            history.append(_epoch(state, inputs, targets, torch.from_numpy(np.stack(order, axis=1)), units))
            state.refine_prior()
            update(advance=1, note=f"members {len(seeds)}  score {-float(history[-1].mean()):.4f}")
    return Posterior(state.hidden, state.output, state.noise, units, torch.stack(history))


def _units(inputs: Tensor, targets: Tensor) -> Standardization:
    x, y = Moments.of(inputs), Moments.of(targets)
    return Standardization(x.mean, x.scale(), None, y.mean, y.scale())


def _initial_means(seeds: Sequence[int], n_inputs: int, n_hidden: int) -> tuple[Tensor, Tensor]:
    """Random means of both layers, N(0, 1 / fan-in), which tell the hidden units apart."""

    def layer(*shape: int) -> Tensor:
        draws = [stream(seed, Purpose.INITIALISATION, len(shape)).standard_normal(shape) for seed in seeds]
        return torch.from_numpy(np.stack(draws)) / shape[0] ** 0.5

    return layer(n_inputs + 1, n_hidden), layer(n_hidden + 1)


def _epoch(state: _pbp.Filter, inputs: Tensor, targets: Tensor, order: Tensor, units: Standardization) -> Tensor:
    """Show every run its rows in its order `[step, run]`; the mean log-evidence of each run."""
    evidence = torch.zeros(order.shape[1], dtype=torch.float64)
    for block in order.split(_BLOCK_STEPS):
        x = units.inputs(inputs[block].transpose(0, 1), torch.float64).transpose(0, 1)
        y = units.targets(targets[block].T, torch.float64).T.unsqueeze(-1)
        evidence += state.update(_pbp.features(x.unsqueeze(2), state.hidden.shape[-1]), y)
    return evidence / len(order)


class ProbabilisticBackpropagation(RegressorMixin, BaseEstimator):
    r"""A network of one hidden layer of rectifiers, with a normal distribution over every weight.

    Each example's evidence $\log Z = \log \mathcal N(y\,|\,m, v + \beta/(\alpha - 1))$ is propagated forward as means and
    variances and moves a weight's distribution by its derivatives,
    $m' = m + v\,\partial_m \log Z$ and $v' = v - v^2\,[(\partial_m \log Z)^2 - 2\,\partial_v \log Z]$;
    the precisions of noise and weights have gamma distributions, matched by moments.

    References:
        Hernández-Lobato & Adams (2015).

    Arguments:
        n_hidden: the number of hidden units.
        n_epochs: how often every row is seen.
        random_state: an integer for a result that can be repeated.
        verbose: 1 for a progress bar on a terminal, 2 to keep it.

    Attributes:
        posterior_: the fitted `Posterior`.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = ProbabilisticBackpropagation(n_hidden=10, n_epochs=5, random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape, model.predict_distribution(X)
        ((442,), (442,), Mixture(1 × Normal, batch=[442], event=[]))
    """

    posterior_: Posterior

    def __init__(
        self, n_hidden: int = 50, *, n_epochs: int = 40, random_state: RandomState = None, verbose: int = 0
    ) -> None:
        store_arguments(self, locals())

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows `X` (n, features) and numbers `y` (n,)."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        check_integer("n_hidden", self.n_hidden, low=1)
        check_integer("n_epochs", self.n_epochs, low=1)
        settings = {"n_hidden": self.n_hidden, "n_epochs": self.n_epochs, "verbose": self.verbose}
        rows, seeds = [np.arange(len(X))], run_seeds(self.random_state, 1)
        self.posterior_ = fit_runs(np.array(X), np.array(y, dtype=np.float64), rows, seeds, **settings)
        return self

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The predictive mean, and on request the standard deviation; (n,)."""
        prediction = self.predict_distribution(X)
        return (prediction.mean.numpy(), prediction.stddev.numpy()) if return_std else prediction.mean.numpy()

    def predict_distribution(self, X: Any) -> Mixture:
        """The predictive normal distribution, noise included, in the units of the target, as a mixture of one."""
        check_is_fitted(self)
        return self.posterior_(np.array(validate_data(self, X, reset=False, dtype=np.float64)))

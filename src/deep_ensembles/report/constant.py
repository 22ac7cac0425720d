"""What one would predict without any inputs, to compare a regression with: the same for every row."""

import numpy as np
import torch
from torch.distributions import Distribution, Normal

from deep_ensembles import Ensemble, Mixture, censored
from deep_ensembles._splits import evenly_spaced
from deep_ensembles._tensors import is_structured, times_and_events
from deep_ensembles.distributions import Delta, indexed, log_density, marginal, rescaled

_CONSTANT_ROWS = 10_000  # are enough for a few parameters


def constant_prediction(ensemble: Ensemble, constant: list[float] | None, target: int) -> Distribution | None:
    """The distribution of the training targets, or of one of them, in its units; None where nothing is known of it.

    Arguments:
        constant: raw outputs as `fitted_constant` finds them; without, a normal with the mean and deviation of targets.
    """
    if constant is not None:
        same = _in_units(ensemble, torch.tensor(constant, dtype=torch.float64))
        return indexed(marginal(same), (0, target)) if same.event_shape else indexed(same, 0)
    shift, scale = ensemble.standardization.target_shift, ensemble.standardization.target_scale
    has_mean = getattr(ensemble.head, "scaling", "location-scale") == "location-scale"
    if shift is None or scale is None or not has_mean:
        return None
    mean, deviation = (unit.cpu().reshape(ensemble.n_members, -1)[:, target] for unit in (shift, scale))
    return Mixture(Normal(mean, deviation)).moment_matched()


def fitted_constant(ensemble: Ensemble, y: np.ndarray, sample_weight: np.ndarray | None) -> list[float] | None:
    """The raw outputs, the same for every row, that make the training targets most probable.

    None for points, and for normals unless targets are censored. They are what a report compares a model with: a
    prediction of the same family that knows no inputs.
    """
    raw = torch.linspace(-0.1, 0.1, ensemble.n_outputs, dtype=torch.float64).requires_grad_()
    same = marginal(ensemble.head(raw[None].detach()))
    if isinstance(same, Delta) or (isinstance(same, Normal) and not is_structured(y)):
        return None
    rows = evenly_spaced(np.arange(len(y)), _CONSTANT_ROWS)
    targets = torch.from_numpy((times_and_events("y", y) if is_structured(y) else y.astype(np.float64))[rows])
    weights = torch.ones(len(rows)) if sample_weight is None else torch.from_numpy(sample_weight[rows])
    optimizer = torch.optim.LBFGS([raw], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        constant = _in_units(ensemble, raw)
        scores = censored()(constant, targets) if is_structured(y) else -log_density(constant, targets)
        value = (scores * weights).sum() / weights.sum()
        value.backward()
        return value

    optimizer.step(loss)
    return raw.tolist() if bool(raw.isfinite().all()) else None


def _in_units(ensemble: Ensemble, raw: torch.Tensor) -> Distribution:
    """The first member's prediction of one row for raw outputs, in the units of the targets."""
    units = (ensemble.standardization.target_shift, ensemble.standardization.target_scale)
    shift, scale = (None if unit is None else unit[:1].cpu().double() for unit in units)
    same: Distribution = ensemble.head(raw[None])
    return same if shift is None or scale is None else rescaled(same, shift, scale)

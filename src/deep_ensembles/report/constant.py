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
    from scipy.optimize import minimize  # late, as it takes half a second; torch's optimisers take three times that

    start = torch.linspace(-0.1, 0.1, ensemble.n_outputs, dtype=torch.float64)
    same = marginal(ensemble.head(start[None]))
    if isinstance(same, Delta) or (isinstance(same, Normal) and not is_structured(y)):
        return None
    rows = evenly_spaced(np.arange(len(y)), _CONSTANT_ROWS)
    targets = torch.from_numpy((times_and_events("y", y) if is_structured(y) else y.astype(np.float64))[rows])
    weights = torch.ones(len(rows)) if sample_weight is None else torch.from_numpy(sample_weight[rows])

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        raw = torch.from_numpy(values).requires_grad_()
        constant = _in_units(ensemble, raw)
        scores = censored()(constant, targets) if is_structured(y) else -log_density(constant, targets)
        mean = (scores * weights).sum() / weights.sum()
        return mean.item(), torch.autograd.grad(mean, raw)[0].numpy()

    raw = minimize(loss, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    return raw.tolist() if np.isfinite(raw).all() else None


def _in_units(ensemble: Ensemble, raw: torch.Tensor) -> Distribution:
    """The first member's prediction of one row for raw outputs, in the units of the targets."""
    units = (ensemble.standardization.target_shift, ensemble.standardization.target_scale)
    shift, scale = (None if unit is None else unit[:1].cpu().double() for unit in units)
    same: Distribution = ensemble.head(raw[None])
    return same if shift is None or scale is None else rescaled(same, shift, scale)

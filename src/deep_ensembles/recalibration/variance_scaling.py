"""One factor for all standard deviations."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number
from deep_ensembles.distributions import marginal, rescaled, scaling_of
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration._base import as_mixture, best_factor, held_out


@dataclass(frozen=True)
class VarianceScaling:
    r"""Every deviation from the predicted mean stretched (the median if there is none), $y \mapsto \mu_* + s\,(y - \mu_*)$.

    The scales of the members and the spread of their means are multiplied alike, so that the mixture keeps its mean and
    its shape, and has variance $s^2\sigma_*^2$.

    Arguments:
        factor: s, more than 0; above 1 for a model that was too sure.

    Shape:
        batch `[*batch]`, event `[]` or `[target]` → a `Mixture` of the same.

    Example:
        >>> import torch
        >>> two = Mixture(torch.distributions.Normal(torch.tensor([[0.0], [2.0]]), torch.ones(2, 1)))
        >>> wider = VarianceScaling(2.0)(two)
        >>> wider.mean, wider.variance, wider.epistemic
        (tensor([1.]), tensor([8.]), tensor([4.]))
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, low=0, above=True)

    def __call__(self, distribution: Distribution) -> Mixture:
        mixture = _stretchable(distribution)
        mean = _centre(mixture)
        return Mixture(rescaled(mixture.components, (1 - self.factor) * mean, mean.new_tensor(self.factor)), mixture.weights)


def variance_scaling(distribution: Distribution, target: Any) -> VarianceScaling:
    r"""The factor of least negative log-likelihood of held-out rows; $\sqrt{\overline{z^2}}$ for a single Gaussian.

    With $z = (y - \mu_*) / \sigma_*$; for a mixture that is where the search starts. Several targets share the factor.

    References:
        Levi, Gispan, Giladi, Fetaya (2022); Laves, Ihler, Fast, Kahrs, Ortmaier (2020).

    Arguments:
        distribution: predictions of numbers for rows that the model was not trained on.
        target: what happened.

    Shape:
        distribution with batch `[row]` and event `[*event]`, target `[row, *event]`, at least 2 rows.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
        >>> round(variance_scaling(sure, [3.0, -3.0]).factor, 4)
        3.0
    """
    mixture, truth = held_out(_stretchable(distribution), target)
    start = float(((truth - _centre(mixture)).square() / mixture.variance).mean().sqrt())
    return VarianceScaling(best_factor(VarianceScaling, mixture, truth, start if 1e-150 < start < 1e150 else 1.0))


def is_stretchable(mixture: Mixture) -> bool:
    """Whether members stay what they are when they are moved and stretched, wherever that leads."""
    kind = marginal(mixture.components)
    return scaling_of(kind) == "location-scale" and not hasattr(kind.support, "lower_bound")


def _stretchable(distribution: Distribution) -> Mixture:
    mixture = as_mixture("variance_scaling", distribution, "numbers", "counts")
    if not is_stretchable(mixture):
        cure = "take one target with `target(i)` and use `isotonic`" if mixture.event_shape else "use `isotonic`"
        raise TypeError(f"`variance_scaling` needs members with a location and a scale, got {mixture!r}, "
                        f"which would leave the values that it may take; {cure}")  # fmt: skip
    return mixture


def _centre(mixture: Mixture) -> Tensor:
    """The mean, or where a member has none the median."""
    if bool(marginal(mixture.components).mean.isfinite().all()):
        return mixture.mean
    return mixture.icdf(torch.tensor(0.5))

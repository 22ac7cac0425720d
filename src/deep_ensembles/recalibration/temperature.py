"""One temperature for all class probabilities."""

from dataclasses import dataclass
from typing import Any

from torch.distributions import Distribution

from deep_ensembles._checks import check_number
from deep_ensembles.distributions import rebuilt
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration._base import as_mixture, best_factor, held_out


@dataclass(frozen=True)
class Temperature:
    r"""The logits of every member divided by one number, $p_{mk} \propto \exp(r_{mk} / T)$, then averaged.

    Members keep their most probable class, and what they disagree about remains visible. Where they disagree, the most
    probable class of their average may change. Several labels at once share the temperature; classes with an order keep it.

    Arguments:
        temperature: T, more than 0; above 1 for a model that was too sure.

    Shape:
        batch `[*batch]`, event `[]` or `[label]` → a `Mixture` of the same.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Categorical(torch.tensor([[0.9, 0.1]]))
        >>> Temperature(2.0)(sure).probs
        tensor([[0.7500, 0.2500]])
    """

    temperature: float

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0, above=True)

    def __call__(self, distribution: Distribution) -> Mixture:
        mixture = as_mixture("temperature", distribution, "classes", "labels")
        return Mixture(rebuilt(mixture.components, lambda logits: logits / self.temperature), mixture.weights)


def temperature(distribution: Distribution, target: Any) -> Temperature:
    r"""The temperature of least negative log-likelihood of held-out rows, between 0.01 and 100.

    The likelihood is that of the average, not of each member: an ensemble is less sure than its members, so that members
    which are calibrated one by one would make it too unsure.

    References:
        Guo, Pleiss, Sun, Weinberger (2017); Rahaman & Thiery (2021) for ensembles.

    Arguments:
        distribution: predictions over classes or labels for rows that the model was not trained on.
        target: the true classes, or 0 and 1 for each label.

    Shape:
        distribution with batch `[row]` and event `[*event]`, target `[row, *event]`, at least 2 rows.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Categorical(torch.tensor([[0.9, 0.1]]).expand(4, 2))
        >>> round(temperature(sure, [0, 0, 0, 1]).temperature, 4)
        2.0
    """
    mixture, truth = held_out(as_mixture("temperature", distribution, "classes", "labels"), target)
    return Temperature(best_factor(Temperature, mixture, truth))

"""Families of torch with every method that a prediction needs: distribution function, quantiles, entropy."""

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from deep_ensembles.distributions._integrals import cross_entropies
from deep_ensembles.distributions._quantiles import quantiles
from deep_ensembles.distributions._structure import alone
from deep_ensembles.distributions._tails import tails


class Exact(Distribution):
    """What torch leaves out of some families of one number, exact in the tails too."""

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y ≤ value)."""
        return tails(self, torch.as_tensor(value))[0]

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile; of counts the least whole number that reaches the level."""
        like = self.mean
        return quantiles(alone(self), like.new_ones(1), torch.as_tensor(value, dtype=like.dtype, device=like.device))

    def entropy(self) -> Tensor:
        """Entropy in nats."""
        try:
            return super().entropy()
        except NotImplementedError:
            return cross_entropies(alone(self), self.mean.new_ones(1))[0]


class StudentT(Exact, td.StudentT):
    """Student's t with a location and a scale."""


class Laplace(Exact, td.Laplace):
    """The double exponential distribution."""


class LogNormal(Exact, td.LogNormal):
    """A number whose logarithm is normal."""


class Gamma(Exact, td.Gamma):
    """The gamma distribution."""


class Poisson(Exact, td.Poisson):
    """Counts whose variance is their mean."""


class NegativeBinomial(Exact, td.NegativeBinomial):
    """Counts that vary more than a Poisson's."""


class NormalMixture(Exact, td.MixtureSameFamily):
    """A mixture of normals with weights of its own for every row."""


class Ordered(Exact, td.Categorical):
    """Probabilities of classes that have an order."""

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(class ≤ value) and P(class > value)."""
        reached = torch.arange(self.probs.shape[-1], device=value.device) <= value.unsqueeze(-1)
        zero = torch.zeros_like(self.probs)
        return torch.where(reached, self.probs, zero).sum(-1), torch.where(reached, zero, self.probs).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean class number."""
        return (self.probs * torch.arange(self.probs.shape[-1]).to(self.probs)).sum(-1)

    @property
    def variance(self) -> Tensor:
        """The variance of the class number."""
        distances = torch.arange(self.probs.shape[-1]).to(self.probs) - self.mean.unsqueeze(-1)
        return (self.probs * distances.square()).sum(-1)

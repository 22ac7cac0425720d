"""Counts with more zeros than their family has."""

from dataclasses import dataclass, replace

from torch import Tensor
from torch.distributions import Distribution, Independent

from deep_ensembles._checks import require
from deep_ensembles.distributions import ZeroInflated as Family
from deep_ensembles.heads._base import Counts, limited
from deep_ensembles.heads.negative_binomial import NegativeBinomial
from deep_ensembles.heads.poisson import Poisson


@dataclass(frozen=True)
class ZeroInflated(Counts):
    r"""Zero with probability $\pi = \mathrm{sigmoid}(r_1)$, else a count of another head's distribution.

    Arguments:
        of: `NegativeBinomial()`, `Poisson()`, or another head of counts.

    Shape:
        raw `[..., batch, target + raw of the other head]` → batch `[..., batch]`; event `[]` or `[target]`.

    Example:
        >>> import torch
        >>> ZeroInflated(Poisson())(torch.tensor([[0.0, 1.0]])).mean
        tensor([1.3591])
    """

    of: Poisson | NegativeBinomial = NegativeBinomial()  # noqa: RUF009

    def __post_init__(self) -> None:
        require(getattr(self.of, "kind", None) == "counts", "of", "a head of counts such as `Poisson()`", self.of)

    def starting_at(self, mean: float) -> "ZeroInflated":
        """The same with the offset of the other head."""
        return replace(self, of=self.of.starting_at(mean))

    def raw_size(self, n_targets: int) -> int:
        return n_targets + self.of.raw_size(n_targets)

    def __call__(self, raw: Tensor) -> Distribution:
        n_targets = raw.shape[-1] // self.raw_size(1)
        zeros, counts = limited(raw[..., :n_targets], 100.0), self.of(raw[..., n_targets:])
        if isinstance(counts, Independent):
            return Independent(Family(zeros, counts.base_dist), 1, validate_args=False)
        return Family(zeros.squeeze(-1), counts)

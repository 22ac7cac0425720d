"""A bell with heavier tails than the normal's, for targets with outliers."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional as F

from deep_ensembles._checks import check_number
from deep_ensembles.distributions import StudentT as Family
from deep_ensembles.heads._base import Numbers, PointPrediction, for_targets, limited, positive, split_raw

MOST_DEGREES = 1000.0


@dataclass(frozen=True)
class StudentT(Numbers):
    r"""Student's t with location $r_1$, scale $\sqrt{\mathrm{softplus}(r_2) + \text{floor}}$ and learned degrees of freedom.

    $\nu = \text{least} + \mathrm{softplus}(r_3)$ (at most 1000, which is nearly a normal), or fixed. The variance is
    finite for ν > 2: with `min_degrees_of_freedom` at 2 or less standard deviations may be infinite, and at 1 or less, where
    there may be no mean, the point prediction is the median.

    References:
        Lange, Little, Taylor (1989); the heavier tails of Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.

    Arguments:
        degrees_of_freedom: a number to fix ν, None to learn it.
        min_degrees_of_freedom: ν that is learned stays above it.
        min_variance: the floor under the squared scale, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 3 · target]`, 2 · target with fixed ν → batch `[..., batch]`; event `[]` or `[target]`.

    Example:
        >>> import torch
        >>> StudentT(degrees_of_freedom=4.0)(torch.tensor([[0.0, 0.5413]]))
        StudentT(df: tensor([4.]), loc: tensor([0.]), scale: tensor([1.0000]))
    """

    degrees_of_freedom: float | None = None
    min_degrees_of_freedom: float = 2.1
    min_variance: float = 1e-6

    def __post_init__(self) -> None:
        if self.degrees_of_freedom is not None:
            check_number("degrees_of_freedom", self.degrees_of_freedom, low=0, above=True)
        super().__post_init__()

    @property
    def point(self) -> PointPrediction:  # type: ignore[override]
        least = self.min_degrees_of_freedom if self.degrees_of_freedom is None else self.degrees_of_freedom
        return "mean" if least > 1 else "median"

    def raw_size(self, n_targets: int) -> int:
        return (3 if self.degrees_of_freedom is None else 2) * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        loc, spread, *tail = split_raw(self, raw)
        scale = (F.softplus(spread) + self.min_variance).sqrt()
        return for_targets(Family, self.degrees(tail[0] if tail else loc), limited(loc), scale)

    def degrees(self, raw: Tensor) -> Tensor:
        """Degrees of freedom by their raw output, or as many as are fixed, shaped like it."""
        if self.degrees_of_freedom is not None:
            return torch.full_like(raw, self.degrees_of_freedom)
        return positive(raw, self.min_degrees_of_freedom, MOST_DEGREES)

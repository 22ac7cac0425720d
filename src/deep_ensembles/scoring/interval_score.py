"""The interval score."""

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number
from deep_ensembles.scoring.pinball import pinball


def interval_score(distribution: Distribution, target: Tensor, coverage: float = 0.9) -> Tensor:
    r"""Width of the central interval $[l, u]$ plus a fine for missing it, $(u - l) + \frac2\alpha((l - y)_+ + (y - u)_+)$.

    With α = 1 - `coverage`, in the target's units; averaged over targets. Another coverage:
    `functools.partial(interval_score, coverage=0.5)`.

    References:
        Winkler (1972); Gneiting & Raftery (2007), section 6.2.

    Arguments:
        coverage: the probability between both ends, as much being left below as above.

    Example:
        >>> import torch
        >>> interval_score(torch.distributions.Uniform(torch.zeros(1), torch.ones(1)), torch.tensor([0.5]), coverage=0.5)
        tensor([0.5000])
    """
    check_number("coverage", coverage, low=0, high=1, above=True, below=True)
    missed = 1 - coverage
    return pinball(distribution, target, levels=(missed / 2, 1 - missed / 2)) * (4 / missed)

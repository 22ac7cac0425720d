"""The negative log-likelihood with its gradient evened out between certain and uncertain samples."""

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.scoring._base import over_targets, require_numbers
from deep_ensembles.scoring.log_score import log_score


def beta_nll(distribution: Distribution, target: Tensor, beta: float = 0.5) -> Tensor:
    r"""Log-likelihood weighted by the predicted variance, $\lfloor\sigma^{2\beta}\rfloor\,(-\log p(y))$.

    $\lfloor\cdot\rfloor$ stops the gradient, so for each input the optimum is the log score's; samples that the network
    has given up on (large variance) keep pulling at the mean. β = 0 is the log score. Made for training: as a
    metric use `log_score`. Several targets share the mean of their variances. Another β:
    `functools.partial(beta_nll, beta=1.0)`.

    References:
        Seitzer, Tavakoli, Antic, Martius (2022).

    Example:
        >>> import torch
        >>> beta_nll(torch.distributions.Normal(torch.zeros(1), torch.full((1,), 2.0)), torch.zeros(1))
        tensor([3.2242])
    """
    require_numbers("beta_nll", distribution)
    variance = over_targets(distribution, distribution.variance.detach())
    return variance.pow(beta) * log_score(distribution, target)

"""What scores over splits say: their mean and spread, and whether a difference is more than chance."""

from collections.abc import Sequence

import numpy as np


def over_splits(values: Sequence[float | None]) -> dict[str, float | int]:
    """Mean, standard deviation and standard error over splits.

    Splits share training rows, so the standard error is that of the paper's literature, not one to test with.

    Example:
        >>> over_splits([1.0, 2.0, 3.0])
        {'mean': 2.0, 'sd': 1.0, 'se': 0.5773502691896258, 'splits': 3}
    """
    numbers = np.array(values, dtype=np.float64)
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else float("nan")
    return {"mean": float(numbers.mean()), "sd": sd, "se": sd / len(numbers) ** 0.5, "splits": len(numbers)}


def paired(ours: Sequence[float | None], other: Sequence[float | None], test_share: float) -> dict[str, float | int]:
    r"""The difference on the same splits, and whether it is more than chance.

    The variance of the mean is $\left(\frac1n + \frac{n_\text{test}}{n_\text{train}}\right) s^2$, as splits that share
    rows are not independent.

    References:
        Nadeau & Bengio (2003).

    Arguments:
        ours, other: scores per split, in the same order.
        test_share: test rows per training row.

    Example:
        >>> paired([1.0, 2.0, 3.0], [1.5, 2.5, 4.0], 0.1)["mean"]
        -0.6666666666666666
    """
    from scipy.special import stdtr  # late, as it takes a third of a second

    both = min(len(ours), len(other))
    difference = np.array(ours[:both], dtype=np.float64) - np.array(other[:both], dtype=np.float64)
    numbers = over_splits(difference.tolist())
    spread = numbers["sd"] * (1 / both + test_share) ** 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value = float(2 * stdtr(both - 1, -abs(np.float64(numbers["mean"]) / spread))) if both > 1 else float("nan")
    return {**numbers, "corrected_se": spread, "p_value": p_value, "lower_on": int((difference < 0).sum())}

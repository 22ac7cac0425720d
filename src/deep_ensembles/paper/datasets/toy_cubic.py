"""The toy problem of Figure 1: a cubic seen through noise."""

import numpy as np

from deep_ensembles._checks import check_integer
from deep_ensembles.paper.datasets._dataset import Card, Dataset


def toy_cubic(random_state: int = 0, n_rows: int = 20) -> Dataset:
    r"""Points of a cubic with noise.

    $x \sim U(-4, 4)$, $y = x^3 + \epsilon$, $\epsilon \sim N(0, 3^2)$

    All rows are training rows of the one split; the truth to compare with is the cubic itself.

    References:
        Hernández-Lobato & Adams (2015), section 5.1; Lakshminarayanan, Pritzel & Blundell (2017), section 3.2

    Arguments:
        random_state: the same number gives the same points.
        n_rows: how many points.

    Shape:
        inputs `[n_rows, 1]`, targets `[n_rows]`

    Example:
        >>> points = toy_cubic()
        >>> points.inputs.shape, bool(abs(points.inputs).max() <= 4)
        ((20, 1), True)
    """
    check_integer("random_state", random_state, low=0)
    check_integer("n_rows", n_rows, low=1)
    generator = np.random.default_rng(random_state)
    inputs = generator.uniform(-4, 4, size=(n_rows, 1))
    targets = inputs[:, 0] ** 3 + generator.normal(0, 3, size=n_rows)
    return Dataset(TOY_CARD.name, inputs, targets, [(np.arange(n_rows), np.arange(0))])


TOY_CARD = Card(
    *("toy_cubic", 20, 1, 1, lambda home: toy_cubic(), "20 points of y = x³ + noise, x in [-4, 4]"),
    *("Hernández-Lobato & Adams (2015), made on the spot", "none needed"),
    hidden_units=100,  # the paper names none; this is Hernández-Lobato & Adams's
)

"""A training step of the default network beside its bare matrix products: 5 members of 128-128 units, batches of 64."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side
from deep_ensembles import Cosine, StudentT, fit_ensemble, periodic_mlp

_STEPS, _EPOCHS, _MEMBERS, _ROWS, _COLUMNS, _WAVES, _OUTPUTS = 1600, 16, 5, 64, 10, 16, 3


def default_step() -> list[Line]:
    """1600 steps of each, on one thread, so that preparing counts little; the products are those of both passes."""
    X, y = (torch.from_numpy(array) for array in regression(_STEPS // _EPOCHS * _ROWS, _COLUMNS))
    build = partial(periodic_mlp, _COLUMNS, StudentT().raw_size(1))

    def steps() -> None:
        fit_ensemble(build, X, y, head=StudentT(), max_epochs=_EPOCHS, batch_size=_ROWS, random_state=0, clip_norm=1.0,
                     averaging=10.0, schedule=Cosine(), drop_last=True)  # fmt: skip

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ours, other = side_by_side(steps, _products, repeats=7)
    finally:
        torch.set_num_threads(threads)
    return [Line("default_step", ours, other, ours / other, 2.0, at_most=True)]


def _products() -> None:
    sizes = [_COLUMNS * (1 + _OUTPUTS), 128, 128, StudentT().raw_size(1)]
    layers = [(torch.randn(_MEMBERS, _ROWS, a), torch.randn(_MEMBERS, a, b), torch.randn(_MEMBERS, _ROWS, b))
              for a, b in pairwise(sizes)]  # fmt: skip
    waves = (torch.randn(_MEMBERS * _COLUMNS, _ROWS, _WAVES), torch.randn(_MEMBERS * _COLUMNS, _WAVES, _OUTPUTS),
             torch.randn(_MEMBERS * _COLUMNS, _ROWS, _OUTPUTS))  # fmt: skip
    with torch.inference_mode():
        for _ in range(_STEPS):
            for number, (x, weight, gradient) in enumerate([waves, *layers]):
                torch.bmm(x, weight)
                torch.bmm(x.mT, gradient)
                if number:  # what is before the waves has nothing to learn
                    torch.bmm(gradient, weight.mT)

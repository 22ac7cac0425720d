"""A training step with a Student-t head beside one with a normal head: 5 members of 128-128 hidden units, batches of 64."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side
from deep_ensembles import Normal, StudentT, fit_ensemble, mlp


def student_t_step() -> list[Line]:
    """200 steps of each."""
    X, y = regression(6400, 10)

    def steps(head: Any) -> None:
        build = partial(mlp, 10, head.raw_size(1), (128, 128))
        fit_ensemble(build, torch.from_numpy(X), torch.from_numpy(y), head=head, max_epochs=2, batch_size=64, random_state=0)

    ours, other = side_by_side(lambda: steps(StudentT()), lambda: steps(Normal()), repeats=9)
    return [Line("student_t_step", ours, other, ours / other, 1.5, at_most=True)]

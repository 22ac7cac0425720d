"""Draws docs/adversaries.png: the toy cubic and one table, trained with each adversary.

python -m benchmarks.adversaries docs/adversaries.png
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes

from deep_ensembles import (
    FastGradientSign,
    ProjectedGradient,
    RandomSign,
    VirtualAdversarial,
    cross_validate,
    fit_ensemble,
    mlp,
)
from deep_ensembles.paper.datasets import toy_cubic
from deep_ensembles.paper.figures import save_figure
from deep_ensembles.report.charts import Band, Figure, Line, Panel, Points, Role, Row

GRID = np.linspace(-6, 6, 241)
UNLABELLED = np.linspace(-6, 6, 60)
ADVERSARIES: dict[str, tuple[type, Role]] = {
    "FastGradientSign": (FastGradientSign, "ours"),
    "ProjectedGradient": (ProjectedGradient, "third"),
    "VirtualAdversarial": (VirtualAdversarial, "other"),
    "RandomSign, the control": (RandomSign, "muted"),
}
EPSILONS = (0.01, 0.03, 0.1, 0.3)
TOY_EPSILON = 0.03


def main() -> None:
    torch.set_num_threads(1)
    toy = [_toy(None), *(_toy(name) for name in list(ADVERSARIES)[:3])]
    title = "y = x³ + N(0, 3²), 20 points: mean ± 3 standard deviations of 5 members"
    rows = [Row(toy, height=3.6, title=title), Row([_table()], height=3.6)]
    print(save_figure(Figure(rows, "Adversaries"), Path(sys.argv[1])))


def _toy(name: str | None) -> Panel:
    points = toy_cubic()
    settings = {"max_epochs": 600, "learning_rate": 0.01, "random_state": 0, "batch_size": 20}
    if name is not None:
        settings["perturbation"] = ADVERSARIES[name][0](TOY_EPSILON)
    if name == "VirtualAdversarial":
        settings["unlabelled"] = UNLABELLED[:, None]
    ensemble = fit_ensemble(partial(mlp, 1, 2, (100,)), points.inputs, points.targets, **settings)
    prediction = ensemble(GRID[:, None])
    mean, reach = prediction.mean.numpy(), 3 * prediction.stddev.numpy()
    layers = [
        Band(GRID, mean - reach, mean + reach, "mean ± 3 std", "muted"),
        Line(GRID, mean, "predicted mean", "muted"),
        Line(GRID, GRID**3, "truth, x³", "truth"),
        Points(points.inputs[:, 0], points.targets, "data", "data"),
    ]
    if name == "VirtualAdversarial":
        layers.append(Points(UNLABELLED, np.full_like(UNLABELLED, -195), "rows without target", "other", marker="|"))
    return Panel(layers, name or "none", "x", "y", (-6, 6), (-200, 200), legend=name in (None, "VirtualAdversarial"))


def _table() -> Panel:
    """Held-out NLL over ten folds, against ε."""
    places = np.arange(len(EPSILONS))
    layers = [Line(places, np.full(len(places), _nll(None)), "none", "data", dashed=True)]
    for name, (kind, role) in ADVERSARIES.items():
        scores = [_nll(kind(epsilon)) for epsilon in EPSILONS]
        print(f"{name:24s}", *(f"{score:.3f}" for score in scores))
        layers.append(Line(places, scores, name, role, markers=True))
    return Panel(
        layers, "diabetes (442 rows, 10 inputs), 5 members, 60 epochs",
        "ε, in shares of each input's range; for VirtualAdversarial the length of the step", "held-out NLL, 10 folds",
        x_ticks=[f"{epsilon:g}" for epsilon in EPSILONS],
    )  # fmt: skip


def _nll(perturbation: object) -> float:
    X, y = load_diabetes(return_X_y=True)
    build = partial(mlp, 10, 2, (50,))
    folds = cross_validate(build, X, y, cv=10, perturbation=perturbation, max_epochs=60, random_state=0)
    return -folds.distribution.log_prob(torch.from_numpy(y)).mean().item()


if __name__ == "__main__":
    main()

"""Figure 1: a cubic seen through noise, and four ways to say how sure one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deep_ensembles import __version__
from deep_ensembles._statistics import over_splits, paired
from deep_ensembles.datasets import card
from deep_ensembles.datasets.toy_cubic import toy_cubic
from deep_ensembles.experiments._experiment import Claim, Experiment, Outcome, Selection, Summary
from deep_ensembles.experiments._regression import mixture_of
from deep_ensembles.fitting import cross_validate
from deep_ensembles.heads import Point
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.panels import Band, Figure, Line, Panel, Points, Row
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.records import Cell, Record
from deep_ensembles.scoring import log_score, squared_error
from deep_ensembles.tables import Table

MEMBERS, EPSILON, DEVIATIONS = 5, 0.01, 3
DRAWS = {"smoke": 2, "laptop": 20, "paper": 20}  # data sets drawn; the figure shows the first
LEARNING_RATE, EPOCHS = 0.1, 40  # as the paper and Hernández-Lobato & Adams (2015) have them
GRID = np.linspace(-6, 6, 241)
TRAININGS = {"mse": {"MSE-5": 5}, "ml": {"ML-1": 1}, "ml-at": {"ML-1+AT": 1, "ML-5+AT": 5}}
PANELS = {
    "MSE-5": "5 networks, squared error:\ntheir empirical variance",
    "ML-1": "1 network that learns its variance\n(NLL)",
    "ML-1+AT": "… with adversarial training",
    "ML-5+AT": "… and an ensemble of 5",
}
NOISE = 3.0
WHERE = {"near": np.abs(GRID) <= 4, "far": np.abs(GRID) > 4}


def cells(selection: Selection) -> list[Cell]:
    """One cell per way to train."""
    common = {"version": __version__, "seed": selection.seed, "draws": DRAWS[selection.scale]}
    settings = {**common, "epochs": EPOCHS, "learning_rate": LEARNING_RATE, "hidden_units": card("toy_cubic").hidden_units}
    wanted = [name for name, gives in TRAININGS.items() if any(method in gives for method in selection.methods)]
    return [Cell(name, {**settings, "training": name}) for name in wanted]


def run(cell: Cell, out: Path) -> Outcome:
    """Train on every drawn data set (all as one stack) and predict a grid that reaches beyond the data."""
    config = cell.config
    drawn = [toy_cubic(config["seed"] + i) for i in range(config["draws"])]
    inputs, targets = (np.concatenate([getattr(each, part) for each in drawn]) for part in ("inputs", "targets"))
    n_rows = len(drawn[0].targets)
    folds = [(np.arange(i * n_rows, (i + 1) * n_rows), np.array([i * n_rows])) for i in range(len(drawn))]
    points = config["training"] == "mse"
    way: dict[str, Any] = {"head": Point(), "scoring_rule": squared_error} if points else {}
    if config["training"] == "ml-at":
        way["perturbation"] = FastGradientSign(EPSILON)
    build = partial(mlp, 1, 1 if points else 2, (config["hidden_units"],))
    common = {"n_members": MEMBERS, "random_state": config["seed"], "max_epochs": config["epochs"]}
    trained = cross_validate(build, inputs, targets, cv=folds, learning_rate=config["learning_rate"], **common, **way)
    predictions = [ensemble.mixture(GRID[:, None]).components for ensemble in trained.ensembles]
    arrays = {
        "x": GRID,
        "split": np.repeat(np.arange(len(drawn)), len(GRID)),
        "mean": np.concatenate([each.mean.double().numpy() for each in predictions], axis=1),
        "std": np.concatenate([each.stddev.double().numpy() for each in predictions], axis=1),
        "inputs": inputs[:, 0],
        "targets": targets,
    }
    methods = {name: {"scores": _scores(arrays, members)} for name, members in TRAININGS[config["training"]].items()}
    return Outcome({"methods": methods}, arrays)


def _scores(arrays: Mapping[str, np.ndarray], members: int) -> dict[str, list[float]]:
    """Of every drawn data set, near to the data and far from it: expected NLL under the truth, and what the band holds.

    The expectation over y ~ N(x³, 3²) of a Gaussian's NLL has a closed form, so that no test points are drawn.
    """
    found: dict[str, list[float]] = {}
    truth = torch.from_numpy(GRID**3)
    for split in range(int(arrays["split"].max()) + 1):
        prediction = mixture_of(arrays, members, np.flatnonzero(arrays["split"] == split))
        mean, variance = prediction.mean, prediction.variance
        nll = log_score(prediction.moment_matched(), truth) + NOISE**2 / (2 * variance)
        inside = (truth - mean).abs() <= DEVIATIONS * variance.sqrt()
        for place, rows in WHERE.items():
            found.setdefault(f"nll_{place}", []).append(float(nll[rows].mean()))
            found.setdefault(f"truth_inside_{place}", []).append(float(inside[rows].double().mean()))
            found.setdefault(f"std_{place}", []).append(float(variance[rows].sqrt().mean()))
    return found


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """The four panels, and the two statements the paper draws from them, over all drawn data sets."""
    scores = {method: found["scores"] for record in records for method, found in record.result["methods"].items()}
    shown = [method for method in PANELS if method in scores and method in selection.methods]
    rows = [
        {"dataset": "toy_cubic", "method": method, "metric": metric, **over_splits(values), "paper": None}
        for method in shown
        for metric, values in scores[method].items()
    ]
    columns = ["", "NLL near", "NLL far", "truth inside, near", "truth inside, far", "std near", "std far"]
    metrics = ("nll_near", "nll_far", "truth_inside_near", "truth_inside_far", "std_near", "std_far")
    lines = [[method, *(_number(metric, float(np.mean(scores[method][metric]))) for metric in metrics)] for method in shown]
    note = f"Means over {len(next(iter(scores.values()))['nll_near'])} drawn data sets; near: |x| ≤ 4, far: 4 < |x| ≤ 6."
    table = Table("Toy regression: y = x³ + N(0, 3²), 20 points", columns, lines, note)
    figures = {"toy_regression": _figure(records, shown)} if shown else {}
    return Summary(rows, _claims(scores), [table], figures=figures)


def _number(metric: str, value: float) -> str:
    return f"{value:.0%}" if metric.startswith("truth") else f"{value:.2f}"


def _claims(scores: Mapping[str, Mapping[str, list[float]]]) -> list[Claim]:
    statements = [
        ("Learning the variance with NLL is better than the spread of MSE networks", "ML-1", "MSE-5", "nll_near"),
        ("An ensemble is better than one network, far from the data", "ML-5+AT", "ML-1+AT", "nll_far"),
        ("An ensemble is less sure of itself far from the data than one network", "ML-1+AT", "ML-5+AT", "std_far"),
    ]
    claims = []
    for statement, lower, higher, metric in statements:
        if lower in scores and higher in scores:
            gap = paired(scores[lower][metric], scores[higher][metric], 0.0)
            low, high = (float(np.mean(scores[method][metric])) for method in (lower, higher))
            numbers = (
                f"{metric}: {lower} {low:.2f}, {higher} {high:.2f}; lower on {gap['lower_on']} of {gap['splits']} draws"
            )
            claims.append(Claim(statement, "section 3.2", "toy_cubic", gap["mean"] < 0, numbers))
    return claims


def _figure(records: Sequence[Record], shown: Sequence[str]) -> Figure:
    arrays = {method: (record.arrays(), TRAININGS[record.cell.config["training"]][method])
              for record in records for method in record.result["methods"]}  # fmt: skip
    return Figure(
        [Row([_panel(method, *arrays[method]) for method in shown], height=4.2)],
        "A cubic seen through noise: mean ± 3 standard deviations",
        description="Four panels: data, truth, predicted mean and a band of three standard deviations for each method.",
    )


def _panel(method: str, arrays: Mapping[str, np.ndarray], members: int) -> Panel:
    first = arrays["split"] == 0
    prediction: Mixture = mixture_of(arrays, members, np.flatnonzero(first))
    mean, reach = prediction.mean.numpy(), DEVIATIONS * prediction.stddev.numpy()
    n_rows = len(arrays["inputs"]) // (int(arrays["split"].max()) + 1)
    return Panel(
        [
            Band(GRID, mean - reach, mean + reach, "mean ± 3 std", "muted"),
            Line(GRID, mean, "predicted mean", "muted"),
            Line(GRID, GRID**3, "truth, x³", "truth"),
            Points(arrays["inputs"][:n_rows], arrays["targets"][:n_rows], "data", "data"),
        ],
        PANELS[method],
        "x",
        "y",
        (-6, 6),
        (-200, 200),
        legend=method == next(iter(PANELS)),
    )


EXPERIMENT = Experiment(
    name="toy_regression",
    makes="Figure 1: four panels on the toy cubic",
    takes={"smoke": "seconds", "laptop": "seconds", "paper": "seconds"},
    datasets=("toy_cubic",),
    methods=tuple(PANELS),
    cells=cells,
    run=run,
    summarise=summarise,
)

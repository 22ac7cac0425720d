"""Figure 1: a cubic seen through noise, and four ways to say how sure one is."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deep_ensembles import __version__, log_score
from deep_ensembles._terminal import Listing
from deep_ensembles.paper.datasets import card, toy_cubic
from deep_ensembles.paper.experiments import _regression
from deep_ensembles.paper.experiments._experiment import Cell, Claim, Experiment, Outcome, Record, Selection, Summary
from deep_ensembles.report.charts import Band, Figure, Line, Panel, Points, Row
from deep_ensembles.report.splits import paired

MEMBERS, DEVIATIONS = 5, 3
DRAWS = {"smoke": 2, "laptop": 20, "paper": 20}  # data sets drawn; the figure shows the first
LEARNING_RATE, EPOCHS = 0.1, 40  # as the paper and Hernández-Lobato & Adams (2015) have them
GRID = np.linspace(-6, 6, 241)
PANELS = {  # the methods, and what the figure calls them
    "MSE-5": "5 networks, squared error:\ntheir empirical variance",
    "ML-1": "1 network that learns its variance\n(NLL)",
    "ML-1+AT": "… with adversarial training",
    "ML-5+AT": "… and an ensemble of 5",
}
# statement, the method that is lower, the one that is higher, in which metric
STATEMENTS = (
    ("Learning the variance with NLL is better than the spread of MSE networks", "ML-1", "MSE-5", "nll_near"),
    ("An ensemble is better than one network, far from the data", "ML-5+AT", "ML-1+AT", "nll_far"),
    ("An ensemble is less sure of itself far from the data than one network", "ML-1+AT", "ML-5+AT", "std_far"),
)
NOISE = 3.0
WHERE = {"near": np.abs(GRID) <= 4, "far": np.abs(GRID) > 4}


def cells(selection: Selection) -> list[Cell]:
    """One cell per way to train."""
    about = {"version": __version__, "seed": selection.seed, "draws": DRAWS[selection.scale]}
    settings = {"epochs": EPOCHS, "learning_rate": LEARNING_RATE, "hidden_units": card("toy_cubic").hidden_units}
    return [Cell(name, {**about, **settings, "training": name}) for name in _regression.trainings(selection.methods)]


def run(cell: Cell, root: Path) -> Outcome:
    """Train on every drawn data set (all as one stack) and predict a grid that reaches beyond the data."""
    config = cell.config
    drawn = [toy_cubic(config["seed"] + i) for i in range(config["draws"])]
    inputs, targets = (np.concatenate([getattr(dataset, part) for dataset in drawn]) for part in ("inputs", "targets"))
    folds = [(rows, rows[:1]) for rows in np.arange(len(targets)).reshape(len(drawn), -1)]
    how = {"n_members": MEMBERS, "learning_rate": config["learning_rate"]}
    trained = _regression.train_networks(inputs, targets, folds, config, **how)
    predictions = _regression.component_arrays([ensemble.mixture(GRID[:, None]) for ensemble in trained.ensembles])
    arrays = {**predictions, "x": GRID, "inputs": inputs[:, 0], "targets": targets}
    methods = [name for name in PANELS if _regression.METHODS[name].training == config["training"]]
    return {"methods": {name: {"scores": _scores(arrays, _regression.METHODS[name].members)} for name in methods}}, arrays


def _scores(arrays: Mapping[str, np.ndarray], members: int) -> dict[str, list[float]]:
    """Near to the data and far from it: expected NLL under the truth, how often the band holds it, and its width.

    The expectation over y ~ N(x³, 3²) of a Gaussian's NLL has a closed form, so that no test points are drawn.
    """
    curves: dict[str, list[torch.Tensor]] = {"nll": [], "truth_inside": [], "std": []}
    truth = torch.from_numpy(GRID**3)
    for prediction, _ in _regression.mixtures(arrays, members):
        std = prediction.variance.sqrt()
        curves["nll"].append(log_score(prediction.moment_matched(), truth) + NOISE**2 / (2 * prediction.variance))
        curves["truth_inside"].append(((truth - prediction.mean).abs() <= DEVIATIONS * std).double())
        curves["std"].append(std)
    return {
        f"{metric}_{place}": [float(curve[rows].mean()) for curve in of_metric]
        for metric, of_metric in curves.items()
        for place, rows in WHERE.items()
    }


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """The four panels, and what the paper concludes from them, over all drawn data sets."""
    scores = {method: result["scores"] for record in records for method, result in record.result["methods"].items()}
    shown = [method for method in PANELS if method in scores and method in selection.methods]
    rows = _regression.score_rows({("toy_cubic", method): scores[method] for method in shown}, lambda *key: {"paper": None})
    columns = ["", "NLL near", "NLL far", "truth inside, near", "truth inside, far", "std near", "std far"]
    metrics = ("nll_near", "nll_far", "truth_inside_near", "truth_inside_far", "std_near", "std_far")
    lines = [[method, *(_number(metric, np.mean(scores[method][metric])) for metric in metrics)] for method in shown]
    note = f"Means over {DRAWS[selection.scale]} drawn data sets; near: |x| ≤ 4, far: 4 < |x| ≤ 6."
    listing = Listing("Toy regression: y = x³ + N(0, 3²), 20 points", columns, lines, note)
    arrays = {record.cell.config["training"]: record.arrays() for record in records}
    panels = [_panel(method, arrays[_regression.METHODS[method].training]) for method in shown]
    title = "A cubic seen through noise: mean ± 3 standard deviations"
    figures = {"toy_regression": Figure([Row(panels, height=4.2)], title)}
    return Summary(rows, list(_claims(scores)), [listing], figures=figures)


def _number(metric: str, value: Any) -> str:
    return f"{value:.0%}" if metric.startswith("truth") else f"{value:.2f}"


def _claims(scores: Mapping[str, Mapping[str, list[float]]]) -> Iterator[Claim]:
    for statement, lower, higher, metric in STATEMENTS:
        if lower in scores and higher in scores:
            gap = paired(scores[lower][metric], scores[higher][metric], 0.0)
            low, high = (np.mean(scores[method][metric]) for method in (lower, higher))
            draws = f"lower on {gap['lower_on']} of {gap['splits']} draws"
            numbers = f"{metric}: {lower} {low:.2f}, {higher} {high:.2f}; {draws}"
            yield Claim(statement, "section 3.2", "toy_cubic", gap["mean"] < 0, numbers)


def _panel(method: str, arrays: Mapping[str, np.ndarray]) -> Panel:
    prediction, _ = next(_regression.mixtures(arrays, _regression.METHODS[method].members))  # of the first data set drawn
    mean, reach = prediction.mean.numpy(), DEVIATIONS * prediction.stddev.numpy()
    n_rows = card("toy_cubic").rows
    return Panel(
        [
            Band(GRID, mean - reach, mean + reach, "mean ± 3 std", "muted"),
            Line(GRID, mean, "predicted mean", "muted"),
            Line(GRID, GRID**3, "truth, x³", "truth"),
            Points(arrays["inputs"][:n_rows], arrays["targets"][:n_rows], "data", "data"),
        ],
        *(PANELS[method], "x", "y", (-6, 6), (-200, 200)),
        legend=method == next(iter(PANELS)),
    )


TOY_REGRESSION = Experiment(
    name="toy_regression",
    makes="Figure 1: four panels on the toy cubic",
    takes={"smoke": "seconds", "laptop": "seconds", "paper": "seconds"},
    datasets=("toy_cubic",),
    methods=tuple(PANELS),
    cells=cells,
    run=run,
    summarise=summarise,
)

"""Figure "year" of the appendix: does a z % interval hold z %? Learned variance against the spread of MSE networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from deep_ensembles._statistics import over_splits
from deep_ensembles.experiments._experiment import Claim, Experiment, Selection, Summary
from deep_ensembles.experiments._regression import TRAININGS, mixture_of, regression_cell, run_regression, trainings
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.panels import Figure, Line, Panel, Row
from deep_ensembles.records import Cell, Record
from deep_ensembles.tables import Table

LEVELS = tuple(z / 100 for z in range(10, 100, 10))
PAPER = "year-prediction-msd"
DATASETS = (PAPER, "protein")
METHODS = {"ML-5": "learned variance (ML-5)", "MSE-5": "empirical variance (MSE-5)"}
SMOKE = {"epochs": 2, "splits": 1, "rows": 500}
# What the paper says in words of its right panel: the 80 % interval holds 20 %.
PAPER_OBSERVED = {(PAPER, "MSE-5", 0.8): 0.2}


def cells(selection: Selection) -> list[Cell]:
    """One cell per data set and way to train."""
    settings = SMOKE if selection.scale == "smoke" else {}
    return [
        regression_cell(dataset, training, selection.seed, **settings)
        for dataset in selection.datasets
        for training in trainings(selection.methods)
    ]


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Observed against expected fractions, split by split."""
    observed = {
        (record.cell.config["dataset"], method): _observed(record.arrays(), members)
        for record in records
        for method, members in TRAININGS[record.cell.config["training"]].items()
        if method in selection.methods
    }
    rows = [
        {
            "dataset": dataset,
            "method": method,
            "metric": f"coverage_{round(100 * level)}",
            **over_splits([found[level] for found in splits]),
            "paper": PAPER_OBSERVED.get((dataset, method, level)),
        }
        for (dataset, method), splits in observed.items()
        for level in LEVELS
    ]
    means = {
        key: [float(np.mean([found[level] for found in splits])) for level in LEVELS] for key, splits in observed.items()
    }
    columns = ["", *(f"{level:.0%}" for level in LEVELS)]
    tables = [
        Table(f"{dataset}: observed fraction in a z % interval", columns, [
            [METHODS[method], *(f"{value:.1%}" for value in means[dataset, method])]
            for method in METHODS if (dataset, method) in means
        ])
        for dataset in selection.datasets
    ]  # fmt: skip
    figures = {"regression_calibration": _figure(means, selection.datasets)}
    notes = [] if PAPER in selection.datasets else [f"The paper's figure shows {PAPER}, which is not at hand."]
    return Summary(rows, _claims(means), tables, figures=figures, notes=notes)


def _observed(arrays: Mapping[str, np.ndarray], members: int) -> list[dict[float, float]]:
    """Per split, the fraction of test rows inside the Gaussian interval of each level, as in the paper."""
    found = []
    for split in range(int(arrays["split"].max()) + 1):
        rows = np.flatnonzero(arrays["split"] == split)
        gaussian = mixture_of(arrays, members, rows).moment_matched()
        target = torch.from_numpy(arrays["target"][rows])
        found.append({level: interval_coverage(gaussian, target, level) for level in LEVELS})
    return found


def _claims(means: Mapping[tuple[str, str], Sequence[float]]) -> list[Claim]:
    claims, place = [], LEVELS.index(0.8)
    for (dataset, method), observed in means.items():
        gaps = np.array(observed) - LEVELS
        numbers = f"at 80 %: {observed[place]:.1%}; largest gap {gaps[np.abs(gaps).argmax()]:+.1%}"
        if method == "ML-5":
            statement = "The learned variance is well calibrated: every observed fraction is within 10 % of the expected"
            claims.append(Claim(statement, "appendix A.2", dataset, bool((np.abs(gaps) <= 0.1).all()), numbers))
        else:
            statement = "The empirical variance of MSE networks underestimates: its 80 % interval holds less than 40 %"
            claims.append(Claim(statement, "appendix A.2", dataset, observed[place] < 0.4, numbers))
    return claims


def _figure(means: Mapping[tuple[str, str], Sequence[float]], datasets: Sequence[str]) -> Figure:
    rows = []
    for dataset in datasets:
        panels = [
            Panel(
                [
                    Line([0, 1], [0, 1], "ideal", "truth", dashed=True),
                    Line(LEVELS, means[dataset, method], METHODS[method], "data", markers=True),
                ],
                METHODS[method],
                "expected fraction",
                "observed fraction",
                (0, 1),
                (0, 1),
                square=True,
            )
            for method in METHODS
            if (dataset, method) in means
        ]
        rows.append(Row(panels, f"{dataset}: test rows inside a z % interval", 4.8))
    return Figure(rows, width=9.5, description="Expected against observed fraction for learned and empirical variance.")


EXPERIMENT = Experiment(
    name="regression_calibration",
    makes='appendix figure "year": calibration of learned and of empirical variance',
    takes={"smoke": "seconds", "laptop": "a minute (protein); some minutes (year)", "paper": "the same as laptop"},
    datasets=DATASETS,
    methods=tuple(METHODS),
    cells=cells,
    run=run_regression,
    summarise=summarise,
    choose=lambda here: here[:1],
)

"""Figure "year" of the appendix: does a z % interval hold z %? Learned variance against the spread of MSE networks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from deep_ensembles import metrics
from deep_ensembles._terminal import Listing
from deep_ensembles.paper.experiments._experiment import Claim, Experiment, Record, Selection, Summary
from deep_ensembles.paper.experiments._regression import METHODS, mixtures, regression_cells, run_regression, score_rows
from deep_ensembles.report.charts import Figure, Line, Panel, Row

LEVELS = tuple(z / 100 for z in range(10, 100, 10))
METRICS = [f"coverage_{round(100 * level)}" for level in LEVELS]
PAPER = "year-prediction-msd"
LABELS = {"ML-5": "learned variance (ML-5)", "MSE-5": "empirical variance (MSE-5)"}
SMOKE = {"epochs": 2, "splits": 1, "rows": 500}
# What the paper says in words of its right panel: the 80 % interval holds 20 %.
PAPER_OBSERVED = {("coverage_80", PAPER, "MSE-5"): 0.2}


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Observed against expected fractions, split by split."""
    observed = {
        (record.cell.config["dataset"], method): _observed(record.arrays(), METHODS[method].members)
        for record in records
        for method in selection.methods
        if METHODS[method].training == record.cell.config["training"]
    }
    named = {key: dict(zip(METRICS, splits.T.tolist(), strict=True)) for key, splits in observed.items()}
    rows = score_rows(named, lambda *key: {"paper": PAPER_OBSERVED.get(key)})
    listings, panels, columns = [], [], ["", *(f"{level:.0%}" for level in LEVELS)]
    for dataset in selection.datasets:
        means = {method: observed[dataset, method].mean(0) for method in LABELS if (dataset, method) in observed}
        lines = [[LABELS[method], *(f"{value:.1%}" for value in fractions)] for method, fractions in means.items()]
        listings.append(Listing(f"{dataset}: observed fraction in a z % interval", columns, lines))
        panels.append(Row([_panel(*mean) for mean in means.items()], f"{dataset}: test rows inside a z % interval", 4.8))
    figures = {"regression_calibration": Figure(panels, width=9.5)}
    notes = [] if PAPER in selection.datasets else [f"The paper's figure shows {PAPER}, which is not at hand."]
    return Summary(rows, list(_claims(observed)), listings, figures=figures, notes=notes)


def _observed(arrays: Mapping[str, np.ndarray], members: int) -> np.ndarray:
    """The fraction of test rows inside the Gaussian interval of each level, as in the paper; `[split, level]`."""
    target = torch.from_numpy(arrays["target"])
    pairs = [(mixture.moment_matched(), target[rows]) for mixture, rows in mixtures(arrays, members)]
    return np.array([[metrics.interval_coverage(gaussian, truth, level) for level in LEVELS] for gaussian, truth in pairs])


def _claims(observed: Mapping[tuple[str, str], np.ndarray]) -> Iterator[Claim]:
    """From the fractions `[split, level]` of every data set and method."""
    for (dataset, method), splits in observed.items():
        fractions = splits.mean(0)
        gaps, at_80 = fractions - LEVELS, fractions[LEVELS.index(0.8)]
        if method == "ML-5":
            statement = "The learned variance is well calibrated: every observed fraction is within 10 % of the expected"
            holds = (np.abs(gaps) <= 0.1).all()
        else:
            statement = "The empirical variance of MSE networks underestimates: its 80 % interval holds less than 40 %"
            holds = at_80 < 0.4
        numbers = f"at 80 %: {at_80:.1%}; largest gap {gaps[np.abs(gaps).argmax()]:+.1%}"
        yield Claim(statement, "appendix A.2", dataset, bool(holds), numbers)


def _panel(method: str, fractions: np.ndarray) -> Panel:
    ideal = Line([0, 1], [0, 1], "ideal", "truth", dashed=True)
    ours = Line(LEVELS, fractions, LABELS[method], "data", markers=True)
    labels = ("expected fraction", "observed fraction")
    return Panel([ideal, ours], LABELS[method], *labels, (0, 1), (0, 1), square=True)


REGRESSION_CALIBRATION = Experiment(
    name="regression_calibration",
    makes='appendix figure "year": calibration of learned and of empirical variance',
    takes={"smoke": "seconds", "laptop": "a minute (protein); some minutes (year)", "paper": "the same as laptop"},
    datasets=(PAPER, "protein"),
    methods=tuple(LABELS),
    cells=partial(regression_cells, lambda scale, *pair: SMOKE if scale == "smoke" else {}),
    run=run_regression,
    summarise=summarise,
    choose=lambda available: available[:1],
)

"""Table 1 and the appendix table: eight methods on the UCI regression sets, beside the paper's numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.paper.datasets import card
from deep_ensembles.paper.datasets.uci import SETS, YEAR
from deep_ensembles.paper.experiments._experiment import Claim, Experiment, Selection, Summary
from deep_ensembles.paper.experiments._regression import DROPOUT_EPOCHS, EPOCHS, METHODS, regression_cells, run_regression
from deep_ensembles.paper.records import Cell, Record
from deep_ensembles.report.charts import Figure, Panel, Points, Row
from deep_ensembles.report.splits import over_splits, paired

SMOKE = {"splits": 2, "rows": 200, "epochs": 3}
LARGE, LARGE_DROPOUT_EPOCHS = 5000, 40  # at laptop scale MC-dropout has fewer epochs on sets of more rows than this
# A method, and the one it is compared with.
PAIRS = (
    *(("ML-5", "ML-1"), ("ML-5", "MSE-5"), ("ML-1", "MSE-10"), ("ML-1+AT", "ML-1"), ("ML-5+AT", "ML-5")),
    *(("ML-5", "MC-dropout"), ("ML-5", "PBP")),
)
SIGNIFICANT = 0.05
VERDICTS: dict[str, Callable[[float, float], bool]] = {  # of the mean of a difference and its p-value, which may be NaN
    "lower": lambda mean, p: mean < 0,
    "not significantly lower": lambda mean, p: not (mean < 0 and p < SIGNIFICANT),
    "not significantly higher": lambda mean, p: mean <= 0 or p >= SIGNIFICANT,
}
HIDDEN = ("MSE-5", "MSE-10", "ML-5 (rate 0.1)")  # in the figure: their NLL would dwarf the others'

Scores: TypeAlias = Mapping[tuple[str, str], Mapping[str, list[float]]]  # (data set, method) -> metric -> one per split
Difference: TypeAlias = Mapping[str, Any]


def cells(selection: Selection) -> list[Cell]:
    """One cell per data set and training."""
    return regression_cells(selection, partial(_settings, selection.scale))


def _settings(scale: str, dataset: str, training: str) -> dict[str, Any]:
    about = card(dataset)
    if scale == "smoke":
        return {**SMOKE, "splits": min(about.splits, SMOKE["splits"])}
    if training != "mc-dropout":
        return {"epochs": EPOCHS}
    return {"epochs": LARGE_DROPOUT_EPOCHS if scale == "laptop" and about.rows > LARGE else DROPOUT_EPOCHS}


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Every number beside the paper's, paired differences, verdicts, and a figure."""
    recorded = {
        (record.cell.config["dataset"], method): result["scores"]
        for record in records
        for method, result in record.result["methods"].items()
    }
    scores = {key: recorded[key] for key in product(selection.datasets, selection.methods)}
    shares = {record.cell.config["dataset"]: record.result["test_share"] for record in records}
    differences = _differences(scores, shares)
    rows = [_row(*key, metric, values) for key, metrics in scores.items() for metric, values in metrics.items() if values]
    listings = [_listing(dataset, scores, selection.methods) for dataset in selection.datasets]
    listings += _difference_listings(differences)
    panels = [_panel(dataset, scores) for dataset in selection.datasets]
    title = "Test NLL, mean ± standard deviation over splits (lower is better)"
    description = "One panel per data set: our NLL and the paper's, method by method."
    panel_rows = [Row(panels[start : start + 3], height=2.9) for start in range(0, len(panels), 3)]
    figures = {"uci_regression": Figure(panel_rows, title, description=description)}
    claims, notes = list(_claims(scores, differences)), _notes(records, selection.scale)
    return Summary(rows, claims, listings, differences, figures, notes)


def _row(dataset: str, method: str, metric: str, values: Sequence[float]) -> dict[str, Any]:
    paper, spread = printed(metric, dataset, method)
    numbers = {"dataset": dataset, "method": method, "metric": metric, **over_splits(values)}
    return {**numbers, "paper": paper, "paper_spread": spread}


def _listing(dataset: str, scores: Scores, methods: Sequence[str]) -> Listing:
    columns = ["", "RMSE", "paper", "NLL", "paper", "NLL of mixture", "CRPS", "90 % holds", "splits"]
    lines = []
    for method in methods:
        metrics = scores[dataset, method]
        rmse, nll = ((_ours(metrics[name]), _theirs(name, dataset, method)) for name in ("rmse", "nll"))
        crps, coverage = f"{np.mean(metrics['crps']):.4g}", f"{np.mean(metrics['coverage_90']):.1%}"
        lines.append([method, *rmse, *nll, _ours(metrics["nll_mixture"]), crps, coverage, str(len(metrics["nll"]))])
    return Listing(f"{dataset}: mean ± standard deviation over splits", columns, lines)


def _ours(values: Sequence[float] | None) -> str:
    if values is None:
        return "–"
    mean, sd = (over_splits(values)[key] for key in ("mean", "sd"))
    digits = 5 if abs(mean) < 0.02 else 3
    return f"{mean:.{digits}f}" + ("" if np.isnan(sd) else f" ± {sd:.{digits}f}")


def _theirs(metric: str, dataset: str, method: str) -> str:
    mean, spread = printed(metric, dataset, method)
    return "" if mean is None else f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def _differences(scores: Scores, shares: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"dataset": dataset, "metric": metric, "method": ours, "against": other,
         **paired(scores[dataset, ours][metric], scores[dataset, other][metric], share)}
        for ours, other in PAIRS
        for metric in ("nll", "rmse", "crps")
        for dataset, share in shares.items()
        if (dataset, ours) in scores and (dataset, other) in scores
    ]  # fmt: skip


def _difference_listings(differences: Sequence[Difference]) -> Iterator[Listing]:
    columns = ["", "NLL", "p", "lower on splits", "RMSE", "p"]
    note = "± is a standard error corrected for splits that share rows (Nadeau & Bengio 2003)."
    for ours, other in PAIRS:
        lines = []
        for nll, rmse in zip(*(_between(ours, other, metric, differences) for metric in ("nll", "rmse")), strict=True):
            gaps = [f"{gap['mean']:+.4g} ± {gap['corrected_se']:.2g}" for gap in (nll, rmse)]
            wins = f"{nll['lower_on']} of {nll['splits']}"
            lines.append([nll["dataset"], gaps[0], f"{nll['p_value']:.3f}", wins, gaps[1], f"{rmse['p_value']:.3f}"])
        if lines:
            yield Listing(f"{ours} minus {other}, on the same splits", columns, lines, note)


def _between(ours: str, other: str, metric: str, differences: Sequence[Difference]) -> list[Difference]:
    """One method minus another, data set by data set."""
    key = {"method": ours, "against": other, "metric": metric}
    return [gap for gap in differences if key.items() <= gap.items()]


def _claims(scores: Scores, differences: Sequence[Difference]) -> Iterator[Claim]:
    within_spread = partial(_within_spread, scores)
    difference = partial(_difference, differences)
    yield from within_spread("Deep ensembles (ML-5): NLL within the paper's spread or better", "ML-5")
    yield from within_spread("Deep ensembles (ML-5): RMSE within the paper's spread or better", "ML-5", "rmse")
    yield from within_spread("PBP: NLL within its paper's spread or better", "PBP")
    yield from within_spread("MC-dropout: NLL within its paper's spread or better", "MC-dropout")
    statement = "An ensemble's NLL is below a single network's"
    yield from difference(statement, "section 3.3", "ML-5", "ML-1", "lower")
    statement = "One network that learns its variance has a lower NLL than 10 MSE networks"
    yield from difference(statement, "appendix A.1", "ML-1", "MSE-10", "lower")
    statement = "Adversarial training does not significantly help a single network's NLL"
    yield from difference(statement, "appendix A.1", "ML-1+AT", "ML-1", "not significantly lower")
    yield from _overlap(scores)
    for other in ("MC-dropout", "PBP"):
        statement = f"Deep ensembles' NLL is below {other}'s or not significantly above"
        yield from difference(statement, "section 3.3", "ML-5", other, "not significantly higher")
    yield from _under_coverage(scores)
    statement = "Learning rate 0.1 as written gives the paper's NLL"
    yield from within_spread(statement, "ML-5 (rate 0.1)", source="section 3.1", printed_as="ML-5")


def _within_spread(
    scores: Scores, statement: str, method: str, metric: str = "nll", source: str = "Table 1", printed_as: str = ""
) -> Iterator[Claim]:
    theirs = printed_as or method
    for (dataset, scored), metrics in scores.items():
        if scored == method and printed(metric, dataset, theirs)[0] is not None:
            mean = over_splits(metrics[metric])["mean"]
            holds = bool(within(metric, dataset, theirs, mean, card(dataset).splits))
            yield Claim(statement, source, dataset, holds, f"{mean:.3f} (paper {_theirs(metric, dataset, theirs)})")


def _difference(
    differences: Sequence[Difference], statement: str, source: str, ours: str, other: str, verdict: str
) -> Iterator[Claim]:
    for gap in _between(ours, other, "nll", differences):
        mean, p = gap["mean"], gap["p_value"]
        yield Claim(statement, source, gap["dataset"], VERDICTS[verdict](mean, p), f"{mean:+.3f}, p {p:.3f}")


def _overlap(scores: Scores) -> Iterator[Claim]:
    statement = "ML-5+AT is very similar to ML-5: the NLL's error bars overlap"
    for dataset, method in scores:
        if method == "ML-5" and (dataset, "ML-5+AT") in scores:
            plain, adversarial = (over_splits(scores[dataset, name]["nll"]) for name in ("ML-5", "ML-5+AT"))
            overlap = abs(plain["mean"] - adversarial["mean"]) <= plain["sd"] + adversarial["sd"]
            numbers = f"{plain['mean']:.3f} ± {plain['sd']:.3f} and {adversarial['mean']:.3f} ± {adversarial['sd']:.3f}"
            yield Claim(statement, "appendix A.1", dataset, overlap, numbers)


def _under_coverage(scores: Scores) -> Iterator[Claim]:
    statement = "The empirical variance of MSE networks underestimates: MSE-5's 90 % interval holds less than 80 %"
    for (dataset, method), metrics in scores.items():
        if method == "MSE-5":
            mean = float(np.mean(metrics["coverage_90"]))
            yield Claim(statement, "appendix A.2", dataset, mean < 0.8, f"{mean:.1%}")


def _notes(records: Sequence[Record], scale: str) -> list[str]:
    notes = [
        "NLL: of the moment-matched Gaussian, as in the paper. MSE ensembles are scored as that Gaussian throughout.",
        "ML, MSE: Adam's rate is chosen per split on held-out training rows; the last method has the paper's 0.1.",
        "The paper's ± is a standard deviation over splits, but a standard error for PBP.",
    ]
    configs = [record.cell.config for record in records]
    short = [cell["dataset"] for cell in configs if cell["training"] == "mc-dropout" and cell["epochs"] < DROPOUT_EPOCHS]
    if scale == "smoke":
        few = f"{SMOKE['splits']} splits, {SMOKE['rows']} rows, {SMOKE['epochs']} epochs"
        notes.append(f"Smoke scale, to see it work: {few}.")
    elif short:
        epochs = f"{LARGE_DROPOUT_EPOCHS} epochs, not {DROPOUT_EPOCHS}"
        notes.append(f"MC-dropout has {epochs}, at this scale: {', '.join(short)}.")
    return notes


def _panel(dataset: str, scores: Scores) -> Panel:
    shown = [method for method in reversed(METHODS) if (dataset, method) in scores and method not in HIDDEN]
    ours = [over_splits(scores[dataset, method]["nll"]) for method in shown]
    places = np.arange(len(shown))
    theirs = [(place, *printed("nll", dataset, method)) for place, method in zip(places, shown, strict=True)]
    known = [(place - 0.22, mean, spread or 0.0) for place, mean, spread in theirs if mean is not None]
    means, deviations = ([numbers[key] for numbers in ours] for key in ("mean", "sd"))
    layers = [Points(means, places + 0.12, "here", "ours", np.nan_to_num(deviations))]
    if known:
        place, mean, spread = zip(*known, strict=True)
        layers.append(Points(mean, place, "paper", "muted", spread, "s"))
    return Panel(layers, dataset, y_ticks=shown, y_limits=(-0.6, len(shown) - 0.4))


UCI_REGRESSION = Experiment(
    name="uci_regression",
    makes="Table 1 and the appendix table: eight methods on the UCI sets",
    takes={"smoke": "half a minute", "laptop": "20 minutes", "paper": "hours, most of them PBP and MC-dropout"},
    datasets=tuple(SETS),
    methods=tuple(METHODS),
    cells=cells,
    run=run_regression,
    summarise=summarise,
    only_at_paper_scale=(YEAR,),
)


# data set -> method -> (mean, ±); None where the paper prints none. ± is a standard deviation over splits, but PBP's is a
# standard error. ML-5 is "Deep Ensembles" of Table 1, whose ± for naval and protein differ from the appendix's.
_Numbers = dict[str, dict[str, tuple[float, float | None]]]

_METHODS = tuple(METHODS)[:7]

_RMSE = """
boston-housing          3.01 0.18  2.97 0.85  3.09 0.84  3.10 0.83  3.17 1.00  3.18 0.99  3.28 1.00
concrete                5.67 0.09  5.23 0.53  5.73 0.50  5.76 0.50  6.08 0.56  6.09 0.54  6.03 0.58
energy                  1.80 0.05  1.66 0.19  1.61 0.19  1.62 0.18  2.11 0.30  2.09 0.29  2.09 0.29
kin8nm                  0.10 0.00  0.10 0.00  0.08 0.00  0.08 0.00  0.09 0.00  0.09 0.00  0.09 0.00
naval-propulsion-plant  0.01 0.00  0.01 0.00  0.00 0.00  0.00 0.00  0.00 0.00  0.00 0.00  0.00 0.00
power-plant             4.12 0.03  4.02 0.18  4.08 0.15  4.07 0.15  4.10 0.15  4.10 0.15  4.11 0.17
protein                 4.73 0.01  4.36 0.04  4.49 0.04  4.50 0.02  4.64 0.01  4.75 0.11  4.71 0.06
wine-quality-red        0.64 0.01  0.62 0.04  0.64 0.04  0.64 0.04  0.64 0.04  0.64 0.04  0.64 0.04
yacht                   1.02 0.05  1.11 0.38  2.78 0.59  2.68 0.57  1.43 0.57  1.47 0.58  1.58 0.48
year-prediction-msd     8.88 -     8.85 -     8.92 -     8.95 -     8.89 -     9.02 -     8.89 -
"""

_NLL = """
boston-housing           2.57 0.09   2.46 0.25  17.28  6.17  10.61 4.37   2.55 0.36   2.57 0.37   2.41 0.25
concrete                 3.16 0.02   3.04 0.09  16.07  5.75   8.96 1.73   3.22 0.31   3.21 0.26   3.06 0.18
energy                   2.04 0.02   1.99 0.09   9.54  4.54   6.70 2.39   1.61 0.40   1.51 0.28   1.38 0.22
kin8nm                  -0.90 0.01  -0.95 0.03   2.12  0.97   0.11 0.20  -1.11 0.04  -1.12 0.04  -1.20 0.02
naval-propulsion-plant  -3.73 0.01  -3.80 0.05  -5.68  0.34  -5.85 0.15  -5.65 0.28  -4.08 0.13  -5.63 0.05
power-plant              2.84 0.01   2.80 0.05  35.78 12.87  22.04 4.42   2.82 0.04   2.82 0.04   2.79 0.04
protein                  2.97 0.00   2.89 0.01  40.98  7.43  25.73 1.59   2.87 0.03   2.91 0.03   2.83 0.02
wine-quality-red         0.97 0.01   0.93 0.06  33.73 10.75  20.55 3.72   1.95 4.08   1.58 2.30   0.94 0.12
yacht                    1.63 0.02   1.55 0.12  10.18  4.86   6.85 2.84   1.26 0.29   1.28 0.36   1.18 0.21
year-prediction-msd      3.60 -      3.59 -     39.02  -     21.45 -      3.41 -      3.39 -      3.35 -
"""


def _read(text: str) -> _Numbers:
    numbers: _Numbers = {}
    for line in text.strip().splitlines():
        name, *words = line.split()
        pairs = zip(words[::2], words[1::2], strict=True)
        values = [(float(mean), None if spread == "-" else float(spread)) for mean, spread in pairs]
        numbers[name] = dict(zip(_METHODS, values, strict=True))
    return numbers


REGRESSION = {"rmse": _read(_RMSE), "nll": _read(_NLL)}


def printed(metric: str, dataset: str, method: str) -> tuple[float | None, float | None]:
    """The paper's mean and ± of a metric; (None, None) where it prints none.

    Example:
        >>> printed("nll", "concrete", "ML-5"), printed("crps", "concrete", "ML-5")
        ((3.06, 0.18), (None, None))
    """
    return REGRESSION.get(metric, {}).get(dataset, {}).get(method, (None, None))


def within(metric: str, dataset: str, method: str, ours: float, splits: int) -> bool | None:
    """Whether our mean is at most the paper's plus its standard deviation over splits, in the paper's two digits.

    PBP's printed ± is a standard error, rounded; it is turned into a deviation. None where the paper prints none.

    Example:
        >>> within("nll", "concrete", "ML-5", 3.2449, 20), within("nll", "concrete", "ML-5", 3.2451, 20)
        (True, False)
    """
    mean, spread = printed(metric, dataset, method)
    if mean is None:
        return None
    spread = spread or 0.0
    if method == "PBP":
        spread = (spread + 0.005) * splits**0.5
    return round(ours, 2) <= round(mean + spread, 2)

"""Table 1 and the appendix table: eight methods on the UCI regression sets, beside the paper's numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.paper.datasets import card
from deep_ensembles.paper.datasets.uci import SETS, YEAR
from deep_ensembles.paper.experiments import _regression
from deep_ensembles.paper.experiments._experiment import Claim, Experiment, Record, Selection, Summary
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
UNDERESTIMATES = "The empirical variance of MSE networks underestimates: MSE-5's 90 % interval holds less than 80 %"
HIDDEN = ("MSE-5", "MSE-10", "ML-5 (rate 0.1)")  # in the figure: their NLL would dwarf the others'

Difference: TypeAlias = Mapping[str, Any]
Verdict: TypeAlias = tuple[str, bool, str]  # data set, whether a statement holds there, and the numbers


def _settings(scale: str, dataset: str, training: str) -> dict[str, Any]:
    about = card(dataset)
    if scale == "smoke":
        return {**SMOKE, "splits": min(about.splits, SMOKE["splits"])}
    if training != "mc-dropout":
        return {"epochs": _regression.EPOCHS}
    return {"epochs": LARGE_DROPOUT_EPOCHS if scale == "laptop" and about.rows > LARGE else _regression.DROPOUT_EPOCHS}


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
    rows = _regression.score_rows(scores, lambda *key: dict(zip(("paper", "paper_spread"), printed(*key), strict=True)))
    listings = [_listing(dataset, scores, selection.methods) for dataset in selection.datasets]
    listings += _difference_listings(differences)
    panels = [_panel(dataset, scores) for dataset in selection.datasets]
    title = "Test NLL, mean ± standard deviation over splits (lower is better)"
    panel_rows = [Row(panels[start : start + 3], height=2.9) for start in range(0, len(panels), 3)]
    figures = {"uci_regression": Figure(panel_rows, title)}
    claims, notes = list(_claims(scores, differences)), _notes(records, selection.scale)
    return Summary(rows, claims, listings, differences, figures, notes)


def _listing(dataset: str, scores: _regression.Scores, methods: Sequence[str]) -> Listing:
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


def _differences(scores: _regression.Scores, shares: Mapping[str, float]) -> list[dict[str, Any]]:
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


def _claims(scores: _regression.Scores, differences: Sequence[Difference]) -> Iterator[Claim]:
    within_spread, differs = partial(_within_spread, scores), partial(_differs, differences)
    below = "Deep ensembles' NLL is below {}'s or not significantly above"
    verdicts = {
        ("Deep ensembles (ML-5): NLL within the paper's spread or better", "Table 1"): within_spread("ML-5"),
        ("Deep ensembles (ML-5): RMSE within the paper's spread or better", "Table 1"): within_spread("ML-5", "rmse"),
        ("PBP: NLL within its paper's spread or better", "Table 1"): within_spread("PBP"),
        ("MC-dropout: NLL within its paper's spread or better", "Table 1"): within_spread("MC-dropout"),
        ("An ensemble's NLL is below a single network's", "section 3.3"): differs("ML-5", "ML-1", "lower"),
        ("One network that learns its variance has a lower NLL than 10 MSE networks", "appendix A.1"):
            differs("ML-1", "MSE-10", "lower"),
        ("Adversarial training does not significantly help a single network's NLL", "appendix A.1"):
            differs("ML-1+AT", "ML-1", "not significantly lower"),
        ("ML-5+AT is very similar to ML-5: the NLL's error bars overlap", "appendix A.1"): _overlap(scores),
        (below.format("MC-dropout"), "section 3.3"): differs("ML-5", "MC-dropout", "not significantly higher"),
        (below.format("PBP"), "section 3.3"): differs("ML-5", "PBP", "not significantly higher"),
        (UNDERESTIMATES, "appendix A.2"): _under_coverage(scores),
        ("Learning rate 0.1 as written gives the paper's NLL", "section 3.1"):
            within_spread("ML-5 (rate 0.1)", printed_as="ML-5"),
    }  # fmt: skip
    for (statement, source), found in verdicts.items():
        yield from (Claim(statement, source, *verdict) for verdict in found)


def _within_spread(scores: _regression.Scores, method: str, metric: str = "nll", printed_as: str = "") -> Iterator[Verdict]:
    theirs = printed_as or method
    for (dataset, scored), metrics in scores.items():
        if scored == method and printed(metric, dataset, theirs)[0] is not None:
            mean = over_splits(metrics[metric])["mean"]
            holds = bool(within(metric, dataset, theirs, mean, card(dataset).splits))
            yield dataset, holds, f"{mean:.3f} (paper {_theirs(metric, dataset, theirs)})"


def _differs(differences: Sequence[Difference], ours: str, other: str, verdict: str) -> Iterator[Verdict]:
    for gap in _between(ours, other, "nll", differences):
        mean, p = gap["mean"], gap["p_value"]
        yield gap["dataset"], VERDICTS[verdict](mean, p), f"{mean:+.3f}, p {p:.3f}"


def _overlap(scores: _regression.Scores) -> Iterator[Verdict]:
    for dataset, method in scores:
        if method == "ML-5" and (dataset, "ML-5+AT") in scores:
            plain, adversarial = (over_splits(scores[dataset, name]["nll"]) for name in ("ML-5", "ML-5+AT"))
            overlap = abs(plain["mean"] - adversarial["mean"]) <= plain["sd"] + adversarial["sd"]
            yield dataset, overlap, " and ".join(f"{nll['mean']:.3f} ± {nll['sd']:.3f}" for nll in (plain, adversarial))


def _under_coverage(scores: _regression.Scores) -> Iterator[Verdict]:
    for (dataset, method), metrics in scores.items():
        if method == "MSE-5":
            mean = float(np.mean(metrics["coverage_90"]))
            yield dataset, mean < 0.8, f"{mean:.1%}"


def _notes(records: Sequence[Record], scale: str) -> list[str]:
    notes = [
        "NLL: of the moment-matched Gaussian, as in the paper. MSE ensembles are scored as that Gaussian throughout.",
        "ML, MSE: Adam's rate is chosen per split on held-out training rows; the last method has the paper's 0.1.",
        "The paper's ± is a standard deviation over splits, but a standard error for PBP.",
    ]
    dropout = [record.cell.config for record in records if record.cell.config["training"] == "mc-dropout"]
    short = [cell["dataset"] for cell in dropout if cell["epochs"] < _regression.DROPOUT_EPOCHS]
    if scale == "smoke":
        notes.append("Smoke scale, to see it work: {splits} splits, {rows} rows, {epochs} epochs.".format(**SMOKE))
    elif short:
        epochs = f"{LARGE_DROPOUT_EPOCHS} epochs, not {_regression.DROPOUT_EPOCHS}"
        notes.append(f"MC-dropout has {epochs}, at this scale: {', '.join(short)}.")
    return notes


def _panel(dataset: str, scores: _regression.Scores) -> Panel:
    shown = [method for method in reversed(_regression.METHODS) if (dataset, method) in scores and method not in HIDDEN]
    ours = [over_splits(scores[dataset, method]["nll"]) for method in shown]
    places = np.arange(len(shown))
    means, deviations = ([numbers[key] for numbers in ours] for key in ("mean", "sd"))
    layers = [Points(means, places + 0.12, "here", "ours", np.nan_to_num(deviations))]
    theirs, spreads = np.array([printed("nll", dataset, method) for method in shown], float).reshape(-1, 2).T
    if (known := ~np.isnan(theirs)).any():
        layers.append(Points(theirs[known], places[known] - 0.22, "paper", "muted", np.nan_to_num(spreads[known]), "s"))
    return Panel(layers, dataset, y_ticks=shown, y_limits=(-0.6, len(shown) - 0.4))


UCI_REGRESSION = Experiment(
    name="uci_regression",
    makes="Table 1 and the appendix table: eight methods on the UCI sets",
    takes={"smoke": "half a minute", "laptop": "20 minutes", "paper": "hours, most of them PBP and MC-dropout"},
    datasets=tuple(SETS),
    methods=tuple(_regression.METHODS),
    cells=partial(_regression.regression_cells, _settings),
    run=_regression.run_regression,
    summarise=summarise,
    only_at_paper_scale=(YEAR,),
)


@cache
def _printed() -> dict[tuple[str, ...], tuple[float, float | None]]:
    """By metric, data set and method. ± is a standard deviation over splits, but PBP's is a standard error. ML-5 is "Deep
    Ensembles" of Table 1, whose ± for naval and protein differ from the appendix's."""
    with open(Path(__file__).with_name("printed.tsv"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][1:]
    return {tuple(key): (float(mean), float(spread) if spread else None) for *key, mean, spread in lines}


def printed(metric: str, dataset: str, method: str) -> tuple[float | None, float | None]:
    """The paper's mean and ± of a metric; (None, None) where it prints none.

    Example:
        >>> printed("nll", "concrete", "ML-5"), printed("crps", "concrete", "ML-5")
        ((3.06, 0.18), (None, None))
    """
    return _printed().get((metric, dataset, method), (None, None))


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
    spread = ((spread or 0.0) + 0.005) * splits**0.5 if method == "PBP" else spread or 0.0
    return round(ours, 2) <= round(mean + spread, 2)

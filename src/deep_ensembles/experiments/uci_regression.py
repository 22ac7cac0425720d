"""Table 1 and the appendix table: eight methods on the UCI regression sets, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from deep_ensembles._statistics import over_splits, paired
from deep_ensembles.datasets import card
from deep_ensembles.datasets.uci import SETS, YEAR
from deep_ensembles.experiments._experiment import Claim, Experiment, Selection, Summary
from deep_ensembles.experiments._paper import printed, within
from deep_ensembles.experiments._regression import (
    DROPOUT_EPOCHS,
    EPOCHS,
    METHODS,
    regression_cell,
    run_regression,
    trainings,
)
from deep_ensembles.panels import Figure, Panel, Points, Row
from deep_ensembles.records import Cell, Record
from deep_ensembles.tables import Table

SMOKE = {"splits": 2, "rows": 200}
SMOKE_EPOCHS = 3
LARGE, LARGE_DROPOUT_EPOCHS = 5000, 40  # at laptop scale MC-dropout has fewer epochs on sets of more rows than this
PAIRS = (
    ("ML-5", "ML-1"),
    ("ML-5", "MSE-5"),
    ("ML-1", "MSE-10"),
    ("ML-1+AT", "ML-1"),
    ("ML-5+AT", "ML-5"),
    ("ML-5", "MC-dropout"),
    ("ML-5", "PBP"),
)
SIGNIFICANT = 0.05
SHOWN = ("PBP", "MC-dropout", "ML-1", "ML-1+AT", "ML-5", "ML-5+AT")  # in the figure; MSE's NLL would dwarf the others

# data set -> method -> metric -> a number per split
Scores: TypeAlias = dict[str, dict[str, dict[str, list[float]]]]


def cells(selection: Selection) -> list[Cell]:
    """One cell per data set and training."""
    return [
        regression_cell(dataset, training, selection.seed, **_settings(dataset, training, selection.scale))
        for dataset in selection.datasets
        for training in trainings(selection.methods)
    ]


def _settings(dataset: str, training: str, scale: str) -> dict[str, Any]:
    splits = card(dataset).splits
    epochs = DROPOUT_EPOCHS if training == "mc-dropout" else EPOCHS
    if scale == "smoke":
        return {"epochs": SMOKE_EPOCHS, "splits": min(splits, SMOKE["splits"]), "rows": SMOKE["rows"]}
    if scale == "laptop" and training == "mc-dropout" and card(dataset).rows > LARGE:
        epochs = LARGE_DROPOUT_EPOCHS
    return {"epochs": epochs, "splits": splits}


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Every number beside the paper's, paired differences, verdicts, and a figure."""
    scores: Scores = {}
    for record in records:
        found = scores.setdefault(record.cell.config["dataset"], {})
        found.update({method: each["scores"] for method, each in record.result["methods"].items()})
    for dataset, found in scores.items():
        scores[dataset] = {method: found[method] for method in selection.methods if method in found}
    shares = {record.cell.config["dataset"]: record.result["test_share"] for record in records}
    differences = _differences(scores, shares)
    return Summary(
        rows=[_row(dataset, method, metric, values)
              for dataset, methods in scores.items() for method, metrics in methods.items()
              for metric, values in metrics.items() if values is not None],
        claims=_claims(scores, differences),
        tables=[*(_table(dataset, methods) for dataset, methods in scores.items()), *_difference_tables(differences)],
        differences=differences,
        figures={"uci_regression": _figure(scores)},
        notes=_notes(records, selection.scale),
    )  # fmt: skip


def _row(dataset: str, method: str, metric: str, values: Sequence[float]) -> dict[str, Any]:
    paper, spread = printed(metric, dataset, method)
    numbers = {"dataset": dataset, "method": method, "metric": metric, **over_splits(values)}
    return {**numbers, "paper": paper, "paper_spread": spread}


def _table(dataset: str, methods: Mapping[str, Mapping[str, list[float]]]) -> Table:
    columns = ["", "RMSE", "paper", "NLL", "paper", "NLL of mixture", "CRPS", "90 % holds", "splits"]
    lines = [
        [
            method,
            _ours(metrics["rmse"]),
            _theirs("rmse", dataset, method),
            _ours(metrics["nll"]),
            _theirs("nll", dataset, method),
            _ours(metrics["nll_mixture"]),
            f"{np.mean(metrics['crps']):.4g}",
            f"{np.mean(metrics['coverage_90']):.1%}",
            str(len(metrics["nll"])),
        ]
        for method, metrics in methods.items()
    ]
    return Table(f"{dataset}: mean ± standard deviation over splits", columns, lines)


def _ours(values: Sequence[float] | None) -> str:
    if values is None:
        return "–"
    found = over_splits(values)
    digits = 5 if abs(found["mean"]) < 0.02 else 3
    return f"{found['mean']:.{digits}f}" + ("" if np.isnan(found["sd"]) else f" ± {found['sd']:.{digits}f}")


def _theirs(metric: str, dataset: str, method: str) -> str:
    mean, spread = printed(metric, dataset, method)
    return "" if mean is None else f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def _differences(scores: Scores, shares: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"dataset": dataset, "metric": metric, "method": ours, "against": other,
         **paired(methods[ours][metric], methods[other][metric], shares[dataset])}
        for ours, other in PAIRS
        for metric in ("nll", "rmse", "crps")
        for dataset, methods in scores.items()
        if ours in methods and other in methods
    ]  # fmt: skip


def _difference_tables(differences: Sequence[Mapping[str, Any]]) -> list[Table]:
    tables = []
    for ours, other in PAIRS:
        found = [each for each in differences if (each["method"], each["against"]) == (ours, other)]
        lines = []
        for dataset in dict.fromkeys(each["dataset"] for each in found):
            nll, rmse = (next(e for e in found if e["dataset"] == dataset and e["metric"] == m) for m in ("nll", "rmse"))
            texts = [f"{each['mean']:+.4g} ± {each['corrected_se']:.2g}" for each in (nll, rmse)]
            wins = f"{nll['lower_on']} of {nll['splits']}"
            lines.append([dataset, texts[0], f"{nll['p_value']:.3f}", wins, texts[1], f"{rmse['p_value']:.3f}"])
        if lines:
            columns = ["", "NLL", "p", "lower on splits", "RMSE", "p"]
            note = "± is a standard error corrected for splits that share rows (Nadeau & Bengio 2003)."
            tables.append(Table(f"{ours} minus {other}, on the same splits", columns, lines, note))
    return tables


# -- claims -----------------------------------------------------------------------------------------------------------


def _claims(scores: Scores, differences: Sequence[Mapping[str, Any]]) -> list[Claim]:
    return [
        *_within("Deep ensembles (ML-5): NLL within the paper's spread or better", "Table 1", "ML-5", "nll", scores),
        *_within("Deep ensembles (ML-5): RMSE within the paper's spread or better", "Table 1", "ML-5", "rmse", scores),
        *_within("PBP: NLL within its paper's spread or better", "Table 1", "PBP", "nll", scores),
        *_within("MC-dropout: NLL within its paper's spread or better", "Table 1", "MC-dropout", "nll", scores),
        *_paired("An ensemble's NLL is below a single network's", "section 3.3", ("ML-5", "ML-1"), "nll", differences,
                 lambda gap: gap["mean"] < 0),
        *_paired("One network that learns its variance has a lower NLL than 10 MSE networks", "appendix A.1",
                 ("ML-1", "MSE-10"), "nll", differences, lambda gap: gap["mean"] < 0),
        *_paired("Adversarial training does not significantly help a single network's NLL", "appendix A.1",
                 ("ML-1+AT", "ML-1"), "nll", differences, lambda gap: not _significantly_lower(gap)),
        *_overlap(scores),
        *(claim for other in ("MC-dropout", "PBP") for claim in _paired(
            f"Deep ensembles' NLL is below {other}'s or not significantly above", "section 3.3",
            ("ML-5", other), "nll", differences, lambda gap: gap["mean"] <= 0 or gap["p_value"] >= SIGNIFICANT)),
        *_under_coverage(scores),
        *_within("Learning rate 0.1 as written gives the paper's NLL", "section 3.1", "ML-5 (rate 0.1)", "nll", scores,
                 "ML-5"),
    ]  # fmt: skip


def _within(
    statement: str, source: str, method: str, metric: str, scores: Scores, printed_as: str | None = None
) -> list[Claim]:
    claims = []
    for dataset, methods in scores.items():
        if method in methods:
            found = over_splits(methods[method][metric])
            verdict = within(metric, dataset, printed_as or method, found["mean"], card(dataset).splits)
            if verdict is not None:
                numbers = f"{found['mean']:.3f} (paper {_theirs(metric, dataset, printed_as or method)})"
                claims.append(Claim(statement, source, dataset, verdict, numbers))
    return claims


def _paired(
    statement: str,
    source: str,
    pair: tuple[str, str],
    metric: str,
    differences: Sequence[Mapping[str, Any]],
    holds: Callable[[Mapping[str, Any]], bool],
) -> list[Claim]:
    return [
        Claim(statement, source, gap["dataset"], bool(holds(gap)), f"{gap['mean']:+.3f}, p {gap['p_value']:.3f}")
        for gap in differences
        if (gap["method"], gap["against"], gap["metric"]) == (*pair, metric)
    ]


def _significantly_lower(gap: Mapping[str, Any]) -> bool:
    return gap["mean"] < 0 and gap["p_value"] < SIGNIFICANT


def _overlap(scores: Scores) -> list[Claim]:
    claims = []
    for dataset, methods in scores.items():
        if "ML-5" in methods and "ML-5+AT" in methods:
            plain, adversarial = (over_splits(methods[name]["nll"]) for name in ("ML-5", "ML-5+AT"))
            overlap = abs(plain["mean"] - adversarial["mean"]) <= plain["sd"] + adversarial["sd"]
            numbers = f"{plain['mean']:.3f} ± {plain['sd']:.3f} and {adversarial['mean']:.3f} ± {adversarial['sd']:.3f}"
            statement = "ML-5+AT is very similar to ML-5: the NLL's error bars overlap"
            claims.append(Claim(statement, "appendix A.1", dataset, overlap, numbers))
    return claims


def _under_coverage(scores: Scores) -> list[Claim]:
    statement = "The empirical variance of MSE networks underestimates: MSE-5's 90 % interval holds less than 80 %"
    return [
        Claim(statement, "appendix A.2", dataset, mean < 0.8, f"{mean:.1%}")
        for dataset, methods in scores.items()
        if "MSE-5" in methods
        for mean in [float(np.mean(methods["MSE-5"]["coverage_90"]))]
    ]


def _notes(records: Sequence[Record], scale: str) -> list[str]:
    notes = [
        "NLL: of the moment-matched Gaussian, as in the paper. MSE ensembles are scored as that Gaussian throughout.",
        "ML, MSE: Adam's rate is chosen per split on held-out training rows; the last method has the paper's 0.1.",
        "The paper's ± is a standard deviation over splits, but a standard error for PBP.",
    ]
    if scale == "smoke":
        return [
            *notes,
            f"Smoke scale, to see it work: {SMOKE['splits']} splits, {SMOKE['rows']} rows, {SMOKE_EPOCHS} epochs.",
        ]
    configs = [record.cell.config for record in records]
    short = [each["dataset"] for each in configs if each["training"] == "mc-dropout" and each["epochs"] < DROPOUT_EPOCHS]
    if short:
        notes.append(
            f"MC-dropout has {LARGE_DROPOUT_EPOCHS} epochs, not {DROPOUT_EPOCHS}, at this scale: {', '.join(short)}."
        )
    return notes


# -- figure -----------------------------------------------------------------------------------------------------------


def _figure(scores: Scores) -> Figure:
    panels = [_panel(dataset, methods) for dataset, methods in scores.items()]
    rows = [Row(panels[start : start + 3], height=2.9) for start in range(0, len(panels), 3)]
    return Figure(
        rows,
        "Test NLL, mean ± standard deviation over splits (lower is better)",
        description="One panel per data set: our NLL and the paper's, method by method.",
    )


def _panel(dataset: str, methods: Mapping[str, Mapping[str, list[float]]]) -> Panel:
    shown = [method for method in reversed(SHOWN) if method in methods]
    ours = [over_splits(methods[method]["nll"]) for method in shown]
    places = np.arange(len(shown))
    theirs = [(place, *printed("nll", dataset, method)) for place, method in zip(places, shown, strict=True)]
    known = [(place - 0.22, mean, spread or 0.0) for place, mean, spread in theirs if mean is not None]
    layers = [
        Points([each["mean"] for each in ours], places + 0.12, "here", "ours", [np.nan_to_num(each["sd"]) for each in ours])
    ]
    if known:
        place, mean, spread = zip(*known, strict=True)
        layers.append(Points(mean, place, "paper", "muted", spread, "s"))
    return Panel(layers, dataset, y_ticks=shown, y_limits=(-0.6, len(shown) - 0.4))


EXPERIMENT = Experiment(
    name="uci_regression",
    makes="Table 1 and the appendix table: eight methods on the UCI sets",
    takes={"smoke": "half a minute", "laptop": "20 minutes", "paper": "hours, most of them PBP and MC-dropout"},
    datasets=tuple(SETS),
    methods=METHODS,
    cells=cells,
    run=run_regression,
    summarise=summarise,
    only_at_paper_scale=(YEAR,),
)

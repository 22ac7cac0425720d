"""Predicted numbers: facts of rows → scores, curves, verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from deep_ensembles.report._facts import Facts, Rows, Sources, Vector, inside, width_levels
from deep_ensembles.report.evaluation import Curve, Findings, Stop
from deep_ensembles.report.examples import Columns, examples
from deep_ensembles.report.scores import Score, difference, mean_score, over
from deep_ensembles.report.selection import ENOUGH, by_doubt, histogram, risk_by_share, shown_rows, stops
from deep_ensembles.report.svg import round_step
from deep_ensembles.report.wording import awareness_verdict, count, coverage_verdict, level, number, percent, row_count

LEVELS = tuple(np.arange(1, 20) / 20)
_HISTOGRAM_BINS = 10
_UNITS = "in the target's units"


def of_numbers(facts: Facts, coverage: float, columns: Columns | None) -> Findings:
    """What is found out of predicted numbers."""
    rows = facts.sources[0]
    scores, curves = _scores(facts.sources, coverage), _curves(facts.sources, coverage)
    told = {"actual": rows["actual"], "predicted": rows["mean"], "error": rows["mean"] - rows["actual"]}
    told |= {name: rows[name] for name in ("std", "aleatoric", "epistemic", "low", "high")}
    # Where the spread is the same for every row, none is more uncertain than another.
    doubt = rows["std"] if np.ptp(rows["std"]) > 0 else np.zeros_like(rows["std"])
    return Findings(
        scores,
        curves,
        _stops(rows["std"], rows["distance"]),
        uncertain=examples(doubt, told, columns),
        wrong=examples(rows["distance"], told, columns),
        verdicts=_verdicts(rows, scores, curves, coverage),
        summary=_summary(rows, scores, coverage),
    )


def _scores(sources: Sources, coverage: float) -> list[Score]:
    asked = level(coverage)
    found = []
    if "nll" in sources[0]:
        meaning = "mean negative log-likelihood, −log p(y), in nats"
        found.append(mean_score("NLL", meaning, "lower", sources, "nll"))
    meaning = f"mean continuous ranked probability score, ∫(F(z) − 1{{y ≤ z}})² dz, {_UNITS}"
    found.append(mean_score("CRPS", meaning, "lower", sources, "crps"))
    found += _error_scores(sources)
    meaning = f"share of rows inside the central {asked} interval"
    found.append(mean_score(f"{asked} coverage", meaning, coverage, sources, "inside", share=True))
    meaning = f"mean width of the central {asked} interval, {_UNITS}; narrow is good if the coverage holds"
    found.append(Score(f"{asked} width", meaning, "lower", *over(sources, lambda rows: _width(rows, coverage))))
    meaning = f"mean distance between observed and wanted coverage over the {len(LEVELS)} levels 5, 10, …, 95 per cent"
    found.append(Score("Calibration error", meaning, "lower", *over(sources, _calibration_error), share=True))
    ensemble, single, constant = over(sources, _rank_correlation)
    if ensemble is not None:
        meaning = (
            "Spearman's, of predicted standard deviation and absolute error: 1 if it orders the errors, 0 if it says nothing"
        )
        found.append(Score("Rank correlation", meaning, "higher", ensemble, single, constant))
    return found


def _error_scores(sources: Sources) -> list[Score]:
    rows, single, _ = sources
    meaning = f"root of the mean squared error of the predicted mean, {_UNITS}"
    roots = over(sources, lambda each: _rms(each["distance"]))
    gain = error = None
    if roots[0] and roots[1]:
        gain = roots[0] - roots[1]
        # To first order a root mean square moves with each row by e²/(2·RMSE).
        moves = (each["distance"] ** 2 / (2 * root) for each, root in ((rows, roots[0]), (single, roots[1])))
        error = difference(*moves)[1]
    found = [Score("RMSE", meaning, "lower", *roots, gain, error)]
    meaning = f"mean absolute error of the predicted mean, {_UNITS}"
    found.append(mean_score("MAE", meaning, "lower", sources, "distance"))
    if (spread := float(rows["actual"].std())) > 0:
        meaning = "1 minus the squared error's share in the variance of these rows' targets; 1 is perfect, 0 is their mean"
        found.append(Score("R²", meaning, "higher", *over(sources, lambda each: 1 - (_rms(each["distance"]) / spread) ** 2)))
    return found


def _rank_correlation(rows: Rows) -> float | None:
    pair = rows["std"], rows["distance"]
    return float(stats.spearmanr(*pair).statistic) if all(np.ptp(each) > 0 for each in pair) else None


def _held(rows: Rows, coverage: float) -> float:
    return float(inside(rows["level"], coverage).mean())


def _width(rows: Rows, coverage: float) -> float:
    return float(rows[f"width {coverage}"].sum() / len(rows["level"]))


def _calibration_error(rows: Rows) -> float:
    return float(np.mean([abs(_held(rows, each) - each) for each in LEVELS]))


def _curves(sources: Sources, coverage: float) -> dict[str, Curve]:
    rows, wanted = sources[0], width_levels(coverage)
    observed: dict[str, Any] = {"level": list(LEVELS)}
    against: dict[str, Any] = {"level": wanted}
    for name, each in zip(("ensemble", "single", "constant"), sources, strict=True):
        if each:
            observed[name] = [_held(each, p) for p in LEVELS]
            against[f"{name} coverage"] = [_held(each, p) for p in wanted]
            against[f"{name} width"] = [_width(each, p) for p in wanted]
    return {
        "calibration": observed,
        "levels": histogram(rows["level"], _HISTOGRAM_BINS),
        "width": against,
        "rows": shown_rows(rows, ("actual", "mean", "low", "high", "aleatoric", "epistemic")),
        "error": by_doubt(rows["std"], {"spread": rows["std"], "error": rows["distance"]}, _rms),
        "risk": risk_by_share(rows["std"], rows["distance"]),
    }


def _rms(values: Vector) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _stops(std: Vector, distance: Vector) -> list[Stop]:
    overall = float(distance.mean())
    if overall <= 0:
        return stops(std, distance, [], least=False)
    step = round_step(overall, 50)
    demands = [float(f"{i * step:.12g}") for i in range(math.floor(overall / step), 0, -1) if i * step < overall]
    return stops(std, distance, demands, least=False)


def _verdicts(rows: Rows, scores: list[Score], curves: dict[str, Curve], coverage: float) -> dict[str, str]:
    n_rows, risk = len(rows["actual"]), curves["risk"]["risk"]
    below = float((rows["actual"] < rows["mean"]).mean())
    half, total = risk[(len(risk) - 1) // 2], float(np.mean(rows["std"] ** 2))
    part = float(np.mean(rows["epistemic"] ** 2)) / total if total > 0 else 0.0
    outside = n_rows - int(rows["inside"].sum())
    found = {
        "calibration": coverage_verdict(coverage, float(rows["inside"].mean()), n_rows),
        "levels": f"{percent(below)} of the targets lie below the predicted mean.",
        "rows": f"{count(outside)} of {count(n_rows)} rows lie outside their {level(coverage)} interval.",
        "risk": f"The surest half of the rows has a mean absolute error of {number(half)}, all rows {number(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted variance is disagreement between members.",
    }
    by_name = {score.name: score for score in scores}
    if "Rank correlation" in by_name and n_rows >= ENOUGH:
        order = by_name["Rank correlation"].ensemble
        judged = awareness_verdict(order, 2 / math.sqrt(n_rows - 1), 0.2)
        found["error"] = f"The rank correlation of predicted spread and error is {number(order, 2)}: {judged}."
    width = by_name[f"{level(coverage)} width"]
    if width.constant and math.isfinite(width.ensemble):
        share = width.ensemble / width.constant
        found["width"] = f"The {level(coverage)} intervals are {share:.2f} times as wide as the constant's."
    return found


def _summary(rows: Rows, scores: list[Score], coverage: float) -> str:
    by_name, asked = {score.name: score for score in scores}, level(coverage)
    mae, held, width = (by_name[name] for name in ("MAE", f"{asked} coverage", f"{asked} width"))
    constant = "" if mae.constant is None else f" (always predicting the training mean: {number(mae.constant)})"
    return (
        f"On {row_count(len(rows['actual']))} the model is off by {number(mae.ensemble)} on average{constant}; its {asked} "
        f"intervals held {percent(held.ensemble)} of the rows and are {number(width.ensemble)} wide on average."
    )

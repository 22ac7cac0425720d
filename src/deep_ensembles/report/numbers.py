"""Predicted numbers: facts of rows → scores, curves, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch.distributions import Distribution, Normal

from deep_ensembles._checks import require
from deep_ensembles._distributions import exact_cdf, exact_icdf
from deep_ensembles.report._facts import Facts, Vector
from deep_ensembles.report.evaluation import Curve, Evaluation, Outside, Stop
from deep_ensembles.report.examples import Columns, examples
from deep_ensembles.report.scores import Rows, Score, Sources, mean_score, over, with_gain
from deep_ensembles.report.selection import bins, risk_by_share, shown_rows, stops
from deep_ensembles.report.ticks import round_step
from deep_ensembles.report.wording import awareness_verdict, count, coverage_verdict, level, number, percent, row_count
from deep_ensembles.scoring import crps, log_score

LEVELS = tuple(np.arange(1, 20) / 20)
_WIDTH_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
_HISTOGRAM_BINS = 10
# Of fewer rows nothing is said about the order of errors.
_ENOUGH = 20


def width_levels(coverage: float) -> list[float]:
    """The levels at which the width of intervals is measured."""
    return sorted({*_WIDTH_LEVELS, coverage})


def of_numbers(
    facts: Facts,
    constant: Distribution | None,
    coverage: float,
    about: dict[str, str],
    columns: Columns | None,
    outside: Sequence[Outside] | None,
) -> Evaluation:
    """The evaluation of predicted numbers."""
    actual = facts.ensemble["actual"]
    known, widths = ({}, np.empty(0)) if constant is None else _constant_facts(constant, actual, coverage)
    rows, single, same = (_with_errors(each, actual, coverage) for each in (facts.ensemble, facts.single, known))
    sources, all_widths = (rows, single, same), (facts.widths, facts.single_widths, widths)
    scores = _scores(sources, all_widths, coverage)
    values = {"actual": actual, "predicted": rows["mean"], "error": rows["mean"] - actual}
    values |= {name: rows[name] for name in ("std", "aleatoric", "epistemic", "low", "high")}
    # Where the spread is the same for every row, none is more uncertain than another.
    doubt = rows["std"] if np.ptp(rows["std"]) > 0 else np.zeros_like(actual)
    return Evaluation(
        task="numbers",
        n_rows=facts.n_rows,
        n_members=facts.n_members,
        coverage=coverage,
        about=about,
        labels=(),
        scores=scores,
        curves=_curves(sources, all_widths, coverage),
        stops=_stops(rows["std"], rows["distance"]),
        uncertain=examples(doubt, values, columns),
        wrong=examples(rows["distance"], values, columns),
        outside=outside,
        verdicts=_verdicts(rows, scores, coverage),
        summary=_summary(facts, scores, coverage),
    )


def _constant_facts(constant: Distribution, actual: Vector, coverage: float) -> tuple[Rows, Vector]:
    """What the same distribution for every row is worth, and how wide its intervals are."""
    require(isinstance(constant, Normal) and not constant.batch_shape, "constant", "one Normal for numbers", constant)
    mean, std = constant.mean.double(), constant.stddev.double()
    target = torch.from_numpy(actual)
    same = Normal(mean.expand(len(actual)), std.expand(len(actual)))
    found = {"mean": same.mean, "nll": log_score(same, target), "crps": crps(same, target), "level": exact_cdf(same, target)}
    widths = [exact_icdf(same, torch.tensor((1 + each) / 2))[0] - mean for each in width_levels(coverage)]
    return {name: each.numpy() for name, each in found.items()}, 2 * torch.stack(widths).numpy()


def _scores(sources: Sources, widths: tuple[Vector, Vector, Vector], coverage: float) -> list[Score]:
    rows, units, asked = sources[0], "in the target's units", level(coverage)
    found = []
    if "nll" in rows:
        meaning = "mean negative log-likelihood, −log p(y), in nats"
        found.append(mean_score("NLL", meaning, "lower", sources, "nll"))
    meaning = f"mean continuous ranked probability score, ∫(F(z) − 1{{y ≤ z}})² dz, {units}"
    found.append(mean_score("CRPS", meaning, "lower", sources, "crps"))
    found += _error_scores(sources, units)
    meaning = f"share of rows inside the central {asked} interval"
    found.append(mean_score(f"{asked} coverage", meaning, coverage, sources, "inside", share=True))
    place = width_levels(coverage).index(coverage)
    meaning = f"mean width of the central {asked} interval, {units}; narrow is good if the coverage holds"
    single, constant = (float(each[place]) if len(each) else None for each in widths[1:])
    found.append(Score(f"{asked} width", meaning, "lower", float(widths[0][place]), single, constant))
    meaning = f"mean distance between observed and wanted coverage over the {len(LEVELS)} levels 5, 10, …, 95 per cent"
    found.append(Score("Calibration error", meaning, "lower", *over(sources, _calibration_error), share=True))
    if (order := _rank_correlation(rows)) is not None:
        meaning = (
            "Spearman's, of predicted standard deviation and absolute error: 1 if it orders the errors, 0 if it says nothing"
        )
        found.append(
            Score("Rank correlation", meaning, "higher", order, _rank_correlation(sources[1]) if sources[1] else None)
        )
    return found


def _error_scores(sources: Sources, units: str) -> list[Score]:
    rows, single, _ = sources
    meaning = f"root of the mean squared error of the predicted mean, {units}"
    squares = over(sources, lambda each: _rms(each["distance"]))
    root = Score("RMSE", meaning, "lower", *squares)
    if squares[0] and squares[1]:
        # To first order a root mean square moves with each row by e²/(2·RMSE).
        moved = with_gain(root, rows["distance"] ** 2 / (2 * squares[0]), single["distance"] ** 2 / (2 * squares[1]))
        root = replace(moved, gain=squares[0] - squares[1])
    meaning = f"mean absolute error of the predicted mean, {units}"
    found = [root, mean_score("MAE", meaning, "lower", sources, "distance")]
    if (spread := float(rows["actual"].std())) > 0:
        meaning = "1 minus the squared error's share in the variance of these rows' targets; 1 is perfect, 0 is their mean"
        found.append(Score("R²", meaning, "higher", *over(sources, lambda each: 1 - (_rms(each["distance"]) / spread) ** 2)))
    return found


def _with_errors(rows: Rows, actual: Vector, coverage: float) -> Rows:
    """The facts with each row's absolute error, and whether its interval holds."""
    if not rows:
        return rows
    return rows | {"distance": np.abs(rows["mean"] - actual), "inside": _inside(rows["level"], coverage)}


def _rank_correlation(rows: Rows) -> float | None:
    pair = rows["std"], rows["distance"]
    return float(stats.spearmanr(*pair).statistic) if all(np.ptp(each) > 0 for each in pair) else None


def _inside(levels: Vector, coverage: float) -> Vector:
    return ((levels >= (1 - coverage) / 2) & (levels <= (1 + coverage) / 2)).astype(np.float64)


def _calibration_error(rows: Rows) -> float:
    return float(np.mean([abs(_inside(rows["level"], each).mean() - each) for each in LEVELS]))


def _curves(sources: Sources, widths: tuple[Vector, Vector, Vector], coverage: float) -> dict[str, Curve]:
    rows, wanted = sources[0], width_levels(coverage)
    observed: dict[str, Any] = {"level": list(LEVELS)}
    against: dict[str, Any] = {"level": wanted}
    for name, each, width in zip(("ensemble", "single", "constant"), sources, widths, strict=True):
        if each:
            observed[name] = [float(_inside(each["level"], p).mean()) for p in LEVELS]
            against[f"{name} coverage"] = [float(_inside(each["level"], p).mean()) for p in wanted]
            against[f"{name} width"] = width.tolist()
    n_rows = len(rows["actual"])
    shown, groups = shown_rows(n_rows), bins(rows["std"])
    histogram = np.histogram(rows["level"], _HISTOGRAM_BINS, (0.0, 1.0))
    names = ("actual", "mean", "low", "high", "aleatoric", "epistemic")
    return {
        "calibration": observed,
        "levels": {"edge": histogram[1].tolist(), "share": (histogram[0] / n_rows).tolist()},
        "width": against,
        "rows": {"row": shown.tolist(), **{name: rows[name][shown].tolist() for name in names}},
        "error": {
            "spread": [_rms(rows["std"][group]) for group in groups],
            "error": [_rms(rows["distance"][group]) for group in groups],
            "rows": [len(group) for group in groups],
        },
        "risk": risk_by_share(rows["std"], rows["distance"]),
    }


def _rms(values: Vector) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _stops(std: Vector, distance: Vector) -> list[Stop]:
    overall = float(distance.mean())
    if overall <= 0:
        return stops(std, distance, np.empty(0), least=False)
    step = round_step(overall, 50)
    demands = step * np.arange(math.floor(overall / step), 0, -1)
    rounded = [float(f"{each:.12g}") for each in demands if each < overall]
    return stops(std, distance, np.array(rounded), least=False)


def _verdicts(rows: Rows, scores: list[Score], coverage: float) -> dict[str, str]:
    n_rows, inside = len(rows["actual"]), float(rows["inside"].mean())
    outside = n_rows - int(rows["inside"].sum())
    below = float((rows["actual"] < rows["mean"]).mean())
    risk = risk_by_share(rows["std"], rows["distance"])["risk"]
    half, total = risk[(len(risk) - 1) // 2], float(np.mean(rows["std"] ** 2))
    part = float(np.mean(rows["epistemic"] ** 2)) / total if total > 0 else 0.0
    found = {
        "calibration": coverage_verdict(coverage, inside, n_rows),
        "levels": f"{percent(below)} of the targets lie below the predicted mean.",
        "rows": f"{count(outside)} of {count(n_rows)} rows lie outside their {level(coverage)} interval.",
        "risk": f"The surest half of the rows has a mean absolute error of {number(half)}, all rows {number(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted variance is disagreement between members.",
    }
    order = next((score for score in scores if score.name == "Rank correlation"), None)
    if order is not None and n_rows >= _ENOUGH:
        judged = awareness_verdict(order.ensemble, 2 / math.sqrt(n_rows - 1), 0.2)
        found["error"] = f"The rank correlation of predicted spread and error is {number(order.ensemble, 2)}: {judged}."
    width = next(score for score in scores if score.name.endswith("width"))
    if width.constant and math.isfinite(width.ensemble):
        share = width.ensemble / width.constant
        found["width"] = f"The {level(coverage)} intervals are {share:.2f} times as wide as the constant's."
    return found


def _summary(facts: Facts, scores: list[Score], coverage: float) -> str:
    by_name = {score.name: score for score in scores}
    mae, inside = by_name["MAE"], by_name[f"{level(coverage)} coverage"]
    text = f"On {row_count(facts.n_rows)} the model is off by {number(mae.ensemble)} on average"
    if mae.constant is not None:
        text += f" (always predicting the training mean: {number(mae.constant)})"
    text += f"; its {level(coverage)} intervals held {percent(inside.ensemble)} of the rows"
    width = by_name[f"{level(coverage)} width"].ensemble
    return text + f" and are {number(width)} wide on average."

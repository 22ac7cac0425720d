"""Predicted numbers: facts of rows → scores, curves, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch.distributions import Distribution, Normal

from deep_ensembles._checks import require
from deep_ensembles._distributions import exact_cdf, exact_icdf
from deep_ensembles.report._facts import Facts, Vector
from deep_ensembles.report.evaluation import Curve, Evaluation, Outside, Score, Stop, compared
from deep_ensembles.report.examples import Columns, examples
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
    rows = facts.ensemble
    error = rows["mean"] - rows["actual"]
    known = None if constant is None else _constant_facts(constant, rows["actual"], coverage)
    scores = _scores(facts, known, coverage)
    curves = _curves(facts, error, known, coverage)
    chosen = _stops(rows["std"], np.abs(error))
    values = _told(rows, error)
    # Where members agree on every row, none is more uncertain than another.
    doubt = rows["std"] if np.ptp(rows["std"]) > 0 else np.zeros_like(error)
    return Evaluation(
        task="numbers",
        n_rows=facts.n_rows,
        n_members=facts.n_members,
        coverage=coverage,
        about=about,
        labels=(),
        scores=scores,
        curves=curves,
        stops=chosen,
        uncertain=examples(doubt, values, columns),
        wrong=examples(np.abs(error), values, columns),
        outside=outside,
        verdicts=_verdicts(facts, error, scores, coverage),
        summary=_summary(facts, scores, coverage),
    )


def _constant_facts(constant: Distribution, actual: Vector, coverage: float) -> dict[str, Vector]:
    """What the same distribution for every row is worth."""
    require(isinstance(constant, Normal) and not constant.batch_shape, "constant", "one Normal for numbers", constant)
    mean, std = constant.mean.double(), constant.stddev.double()
    target = torch.from_numpy(actual)
    same = Normal(mean.expand(len(actual)), std.expand(len(actual)))
    found = {"mean": same.mean, "nll": log_score(same, target), "crps": crps(same, target), "level": exact_cdf(same, target)}
    widths = [exact_icdf(same, torch.tensor((1 + each) / 2))[0] - mean for each in width_levels(coverage)]
    return {name: each.numpy() for name, each in found.items()} | {"widths": 2 * torch.stack(widths).numpy()}


def _scores(facts: Facts, known: dict[str, Vector] | None, coverage: float) -> list[Score]:
    rows, single, other = facts.ensemble, facts.single, known or {}
    units = "in the target's units"
    found = []
    for key, name, meaning in (
        ("nll", "NLL", "mean negative log-likelihood, −log p(y), in nats"),
        ("crps", "CRPS", f"mean continuous ranked probability score, ∫(F(z) − 1{{y ≤ z}})² dz, {units}"),
    ):
        if key in rows:
            values = compared(rows[key], single.get(key))
            constant = float(other[key].mean()) if other else None
            found.append(Score(name, meaning, "lower", constant=constant, **values))  # type: ignore[arg-type]
    found += _error_scores(rows, single, other, units)
    inside = [_inside(each["level"], coverage) if each else None for each in (rows, single, other)]
    values = compared(inside[0], inside[1])  # type: ignore[arg-type]
    meaning = f"share of rows inside the central {level(coverage)} interval"
    constant = None if inside[2] is None else float(inside[2].mean())
    name = f"{level(coverage)} coverage"
    found.append(Score(name, meaning, coverage, constant=constant, share=True, **values))  # type: ignore[arg-type]
    place = width_levels(coverage).index(coverage)
    widths = [float(each[place]) if len(each) else None for each in (facts.widths, facts.single_widths)]
    constant = float(other["widths"][place]) if other else None
    meaning = f"mean width of the central {level(coverage)} interval, {units}; narrow is good if the coverage holds"
    found.append(Score(f"{level(coverage)} width", meaning, "lower", widths[0] or 0.0, widths[1], constant))
    errors = [_calibration_error(each["level"]) if each else None for each in (rows, single, other)]
    meaning = f"mean distance between observed and wanted coverage over the {len(LEVELS)} levels 5, 10, …, 95 per cent"
    found.append(Score("Calibration error", meaning, "lower", errors[0] or 0.0, errors[1], errors[2], share=True))
    orders = [_rank_correlation(each, rows["actual"]) if each else None for each in (rows, single)]
    meaning = (
        "Spearman's, of predicted standard deviation and absolute error; 1 if larger errors are always announced, 0 if never"
    )
    return [*found, Score("Rank correlation", meaning, "higher", orders[0], orders[1])] if orders[0] is not None else found


def _rank_correlation(rows: dict[str, Vector], actual: Vector) -> float | None:
    distance = np.abs(rows["mean"] - actual)
    if len(actual) < 2 or not (np.ptp(rows["std"]) > 0 and np.ptp(distance) > 0):
        return None
    return float(stats.spearmanr(rows["std"], distance).statistic)


def _error_scores(rows: dict[str, Vector], single: Any, other: Any, units: str) -> list[Score]:
    actual = rows["actual"]
    errors = [each["mean"] - actual if each else None for each in (rows, single, other)]
    squares = [None if each is None else float(np.sqrt(np.mean(each**2))) for each in errors]
    gain = gain_error = None
    if squares[1] is not None and errors[0] is not None and errors[1] is not None:
        gain = (squares[0] or 0.0) - squares[1]
        if squares[0] and squares[1] and len(actual) > 1:
            # To first order a root mean square moves with each row by e²/(2·RMSE).
            moved = errors[0] ** 2 / (2 * squares[0]) - errors[1] ** 2 / (2 * squares[1])
            gain_error = float(moved.std(ddof=1) / math.sqrt(len(actual)))
    meaning = f"root of the mean squared error of the predicted mean, {units}"
    found = [Score("RMSE", meaning, "lower", squares[0] or 0.0, squares[1], squares[2], gain, gain_error)]
    distances = [None if each is None else np.abs(each) for each in errors]
    constant = None if distances[2] is None else float(distances[2].mean())
    values = compared(distances[0], distances[1])  # type: ignore[arg-type]
    meaning = f"mean absolute error of the predicted mean, {units}"
    found.append(Score("MAE", meaning, "lower", constant=constant, **values))  # type: ignore[arg-type]
    if (spread := float(actual.std())) > 0:
        fits = [None if each is None else 1 - (each / spread) ** 2 for each in squares]
        meaning = "1 minus the squared error's share in the variance of these rows' targets; 1 is perfect, 0 is their mean"
        found.append(Score("R²", meaning, "higher", fits[0] or 0.0, fits[1], fits[2]))
    return found


def _inside(levels: Vector, coverage: float) -> Vector:
    return ((levels >= (1 - coverage) / 2) & (levels <= (1 + coverage) / 2)).astype(np.float64)


def _calibration_error(levels: Vector) -> float:
    return float(np.mean([abs(_inside(levels, each).mean() - each) for each in LEVELS]))


def _curves(facts: Facts, error: Vector, known: dict[str, Vector] | None, coverage: float) -> dict[str, Curve]:
    rows, single = facts.ensemble, facts.single
    sources = {"ensemble": rows, "single": single, "constant": known or {}}
    present = {name: each for name, each in sources.items() if each}
    observed = {name: [float(_inside(each["level"], p).mean()) for p in LEVELS] for name, each in present.items()}
    widths = {"ensemble": facts.widths, "single": facts.single_widths, "constant": (known or {}).get("widths", np.empty(0))}
    wanted = width_levels(coverage)
    against: dict[str, list[float]] = {"level": wanted}
    for name, each in present.items():
        against[f"{name} coverage"] = [float(_inside(each["level"], p).mean()) for p in wanted]
        against[f"{name} width"] = widths[name].tolist()
    shown = shown_rows(len(error))
    histogram = np.histogram(rows["level"], _HISTOGRAM_BINS, (0.0, 1.0))
    names = ("actual", "mean", "low", "high", "aleatoric", "epistemic")
    groups = bins(rows["std"])
    return {
        "calibration": {"level": list(LEVELS), **observed},
        "levels": {"edge": histogram[1].tolist(), "share": (histogram[0] / len(error)).tolist()},
        "width": against,
        "rows": {"row": shown.tolist(), **{name: rows[name][shown].tolist() for name in names}},
        "error": {
            "spread": [_rms(rows["std"][group]) for group in groups],
            "error": [_rms(error[group]) for group in groups],
            "rows": [len(group) for group in groups],
        },
        "risk": risk_by_share(rows["std"], np.abs(error)),
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


def _told(rows: dict[str, Vector], error: Vector) -> dict[str, Any]:
    """What the tables of examples say of a row; an error in standard deviations only where there are such."""
    told = {"actual": rows["actual"], "predicted": rows["mean"], "error": error, "std": rows["std"]}
    told |= {"aleatoric": rows["aleatoric"], "epistemic": rows["epistemic"], "low": rows["low"], "high": rows["high"]}
    return told


def _verdicts(facts: Facts, error: Vector, scores: list[Score], coverage: float) -> dict[str, str]:
    rows, n_rows = facts.ensemble, facts.n_rows
    inside = float(_inside(rows["level"], coverage).mean())
    below = float((rows["actual"] < rows["mean"]).mean())
    half = risk_by_share(rows["std"], np.abs(error))
    middle = half["risk"][(len(half["risk"]) - 1) // 2]
    total = float(np.mean(rows["std"] ** 2))
    part = float(np.mean(rows["epistemic"] ** 2)) / total if total > 0 else 0.0
    outside = n_rows - round(inside * n_rows)
    found = {
        "calibration": coverage_verdict(coverage, inside, n_rows),
        "levels": f"{percent(below)} of the targets lie below the predicted mean.",
        "rows": f"{count(outside)} of {count(n_rows)} rows lie outside their {level(coverage)} interval.",
        "risk": f"The surest half of the rows has a mean absolute error of {number(middle)}, "
        f"all rows {number(float(np.abs(error).mean()))}.",
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

"""Predicted numbers: values per row → scores, curves, thresholds, verdicts."""

import math
from typing import Any

import numpy as np
import torch

from deep_ensembles.distributions import Delta
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report import rows as per_row
from deep_ensembles.report.evaluation import Curve, Score, Threshold
from deep_ensembles.report.rows import Columns, Rows, Sources, Vector
from deep_ensembles.report.words import count, coverage_verdict, level, number, order_verdict, percent, round_step, row_count
from deep_ensembles.scoring import crps, log_score

_LEVELS = tuple(np.arange(1, 20) / 20)
_WIDTH_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
_HISTOGRAM_BINS = 10
_UNITS = "in the target's units"


def number_values(prediction: Prediction, target: torch.Tensor, coverage: float) -> dict[str, torch.Tensor]:
    """What predictions of numbers were worth, row by row; of the widths of intervals only the sum, once per batch."""
    values = {
        "mean": prediction.mean,
        "std": prediction.stddev,
        "distance": (prediction.mean - target).abs(),
        "level": prediction.cdf(target).clamp(0, 1),
        "crps": crps(prediction, target),
    }
    if not isinstance(getattr(prediction, "components", None), Delta):
        values["nll"] = log_score(prediction, target)
    for share in _width_levels(coverage):
        low, high = (prediction.icdf(torch.tensor((1 + sign * share) / 2, dtype=torch.float64)) for sign in (-1, 1))
        values[f"width {share}"] = (high - low).sum()[None]
        if share == coverage:
            values |= {"inside": _inside(values["level"], share), "low": low, "high": high}
    return values


def number_details(prediction: Prediction, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """What else is shown of the ensemble's rows."""
    parts = {"aleatoric": prediction.aleatoric, "epistemic": prediction.epistemic}
    return {"actual": target, **{name: variance.clamp_min(0).sqrt() for name, variance in parts.items()}}


def number_fields(sources: Sources, coverage: float, columns: Columns | None) -> dict[str, Any]:
    """The fields of an `Evaluation` that are special to predicted numbers."""
    rows = sources.ensemble
    scores, curves = _scores(sources, coverage), _curves(sources, coverage)
    shown = {"actual": rows["actual"], "predicted": rows["mean"], "error": rows["mean"] - rows["actual"]}
    shown |= {name: rows[name] for name in ("std", "aleatoric", "epistemic", "low", "high")}
    # Where the spread is the same for every row, none is more uncertain than another.
    uncertainty = rows["std"] if np.ptp(rows["std"]) > 0 else np.zeros_like(rows["std"])
    return {
        "task": "numbers",
        "coverage": coverage,
        "labels": (),
        "scores": scores,
        "curves": curves,
        "thresholds": _thresholds(rows["std"], rows["distance"]),
        "uncertain": per_row.examples(uncertainty, shown, columns),
        "wrong": per_row.examples(rows["distance"], shown, columns),
        "verdicts": _verdicts(rows, scores, curves, coverage),
        "summary": _summary(rows, scores, coverage),
    }


def _scores(sources: Sources, coverage: float) -> list[Score]:
    interval, scores = level(coverage), []
    if "nll" in sources.ensemble:
        scores.append(sources.mean_score("nll", "NLL", "mean negative log-likelihood, −log p(y), in nats"))
    meaning = f"mean continuous ranked probability score, ∫(F(z) − 1{{y ≤ z}})² dz, {_UNITS}"
    scores += [sources.mean_score("crps", "CRPS", meaning), *_error_scores(sources)]
    meaning = f"share of rows inside the central {interval} interval"
    scores.append(sources.mean_score("inside", f"{interval} coverage", meaning, coverage, share=True))
    meaning = f"mean width of the central {interval} interval, {_UNITS}; narrow is good if the coverage holds"
    scores.append(Score(f"{interval} width", meaning, "lower", *sources.apply(lambda rows: _width(rows, coverage))))
    meaning = f"mean distance between observed and wanted coverage over the {len(_LEVELS)} levels 5, 10, …, 95 per cent"
    scores.append(Score("Calibration error", meaning, "lower", *sources.apply(_calibration_error), share=True))
    ensemble, single, constant = sources.apply(_rank_correlation)
    if ensemble is not None:
        meaning = (
            "Spearman's, of predicted standard deviation and absolute error: 1 if it orders the errors, 0 if it says nothing"
        )
        scores.append(Score("Rank correlation", meaning, "higher", ensemble, single, constant))
    return scores


def _error_scores(sources: Sources) -> list[Score]:
    ours, single, constant = sources.apply(lambda rows: _root_mean_square(rows["distance"]))
    gain = error = None
    if ours and single:
        gain = ours - single
        # To first order a root mean square moves with each row by e²/(2·RMSE).
        moves = (rows["distance"] ** 2 / (2 * root) for rows, root in ((sources.ensemble, ours), (sources.single, single)))
        error = per_row.mean_difference(*moves)[1]
    meaning = f"root of the mean squared error of the predicted mean, {_UNITS}"
    scores = [Score("RMSE", meaning, "lower", ours, single, constant, gain, error)]
    scores.append(sources.mean_score("distance", "MAE", f"mean absolute error of the predicted mean, {_UNITS}"))
    if (spread := float(sources.ensemble["actual"].std())) > 0:
        meaning = "1 minus the squared error's share in the variance of these rows' targets; 1 is perfect, 0 is their mean"
        explained = sources.apply(lambda rows: 1 - (_root_mean_square(rows["distance"]) / spread) ** 2)
        scores.append(Score("R²", meaning, "higher", *explained))
    return scores


def _rank_correlation(rows: Rows) -> float | None:
    """Spearman's: the correlation of the ranks."""
    uncertainty, error = per_row.ranks(rows["std"]), per_row.ranks(rows["distance"])
    return float(np.corrcoef(uncertainty, error)[0, 1]) if np.ptp(uncertainty) and np.ptp(error) else None


def _width_levels(coverage: float) -> list[float]:
    return sorted({*_WIDTH_LEVELS, coverage})


def _inside(levels: Any, coverage: float) -> Any:
    """Which targets, given as levels of their predicted distributions, lie in the central interval."""
    return (levels >= (1 - coverage) / 2) & (levels <= (1 + coverage) / 2)


def _observed_coverage(rows: Rows, wanted: float) -> float:
    return float(_inside(rows["level"], wanted).mean())


def _width(rows: Rows, coverage: float) -> float:
    return float(rows[f"width {coverage}"].sum() / len(rows["level"]))


def _calibration_error(rows: Rows) -> float:
    return float(np.mean([abs(_observed_coverage(rows, wanted) - wanted) for wanted in _LEVELS]))


def _curves(sources: Sources, coverage: float) -> dict[str, Curve]:
    ensemble, width_levels = sources.ensemble, _width_levels(coverage)
    calibration: dict[str, Any] = {"level": list(_LEVELS)}
    width: dict[str, Any] = {"level": width_levels}
    for name, rows in sources._asdict().items():
        if rows:
            calibration[name] = [_observed_coverage(rows, wanted) for wanted in _LEVELS]
            width[f"{name} coverage"] = [_observed_coverage(rows, wanted) for wanted in width_levels]
            width[f"{name} width"] = [_width(rows, wanted) for wanted in width_levels]
    errors = {"spread": ensemble["std"], "error": ensemble["distance"]}
    return {
        "calibration": calibration,
        "levels": per_row.histogram(ensemble["level"], _HISTOGRAM_BINS),
        "width": width,
        "rows": per_row.sample_rows(ensemble, ("actual", "mean", "low", "high", "aleatoric", "epistemic")),
        "error": per_row.group_means(ensemble["std"], errors, _root_mean_square),
        "risk": per_row.risk_curve(ensemble["std"], ensemble["distance"]),
    }


def _root_mean_square(values: Vector) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _thresholds(std: Vector, distance: Vector) -> list[Threshold]:
    overall, targets = float(distance.mean()), []
    if overall > 0:
        step = round_step(overall, 50)
        targets = [float(f"{i * step:.12g}") for i in range(math.floor(overall / step), 0, -1) if i * step < overall]
    return per_row.thresholds(std, distance, targets, at_least=False)


def _verdicts(rows: Rows, scores: list[Score], curves: dict[str, Curve], coverage: float) -> dict[str, str]:
    n_rows, risk = len(rows["actual"]), curves["risk"]["risk"]
    below = float((rows["actual"] < rows["mean"]).mean())
    half, variance = risk[(len(risk) - 1) // 2], float(np.mean(rows["std"] ** 2))
    part = float(np.mean(rows["epistemic"] ** 2)) / variance if variance > 0 else 0.0
    outside = n_rows - int(rows["inside"].sum())
    verdicts = {
        "calibration": coverage_verdict(coverage, float(rows["inside"].mean()), n_rows),
        "levels": f"{percent(below)} of the targets lie below the predicted mean.",
        "rows": f"{count(outside)} of {count(n_rows)} rows lie outside their {level(coverage)} interval.",
        "risk": f"The surest half of the rows has a mean absolute error of {number(half)}, all rows {number(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted variance is disagreement between members.",
    }
    by_name = {score.name: score for score in scores}
    if "Rank correlation" in by_name and n_rows >= per_row.MIN_ROWS:
        correlation = by_name["Rank correlation"].ensemble
        verdict = order_verdict(correlation, 2 / math.sqrt(n_rows - 1), 0.2)
        verdicts["error"] = f"The rank correlation of predicted spread and error is {number(correlation, 2)}: {verdict}."
    width = by_name[f"{level(coverage)} width"]
    if width.constant and math.isfinite(width.ensemble):
        share = width.ensemble / width.constant
        verdicts["width"] = f"The {level(coverage)} intervals are {share:.2f} times as wide as the constant's."
    return verdicts


def _summary(rows: Rows, scores: list[Score], coverage: float) -> str:
    by_name, interval = {score.name: score for score in scores}, level(coverage)
    error, observed, width = (by_name[name] for name in ("MAE", f"{interval} coverage", f"{interval} width"))
    constant = "" if error.constant is None else f" (always predicting the training mean: {number(error.constant)})"
    return (
        f"On {row_count(len(rows['actual']))} the model is off by {number(error.ensemble)} on average{constant}; "
        f"its {interval} intervals held {percent(observed.ensemble)} of the rows "
        f"and are {number(width.ensemble)} wide on average."
    )

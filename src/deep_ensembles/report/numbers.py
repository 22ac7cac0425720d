"""Predicted numbers: values per row → scores, curves, thresholds, verdicts."""

import contextlib
import math
from typing import Any, cast

import numpy as np
import torch

from deep_ensembles.distributions import Delta
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report import rows as per_row
from deep_ensembles.report import words
from deep_ensembles.report.evaluation import Better, Curve, Score, Threshold
from deep_ensembles.report.rows import Columns, Rows, Sources, Subject, Vector
from deep_ensembles.scoring import crps, log_score

_LEVELS = tuple(np.arange(1, 20) / 20)
_HISTOGRAM_BINS = 10
_TARGET_BINS = 24
_UNITS = "in the target's units"


def row_values(prediction: Prediction, target: torch.Tensor, subject: Subject) -> dict[str, torch.Tensor]:
    """What predictions of numbers were worth, row by row."""
    coverage = subject.coverage
    low, high = quantiles(prediction, (1 - coverage) / 2, (1 + coverage) / 2)
    guess = quantiles(prediction, 0.5)[0] if subject.point == "median" else prediction.mean
    values = {subject.point: guess, "std": prediction.stddev, "distance": (guess - target).abs(), "low": low, "high": high}
    values |= {"level": prediction.cdf(target).clamp(0, 1), **_scored(prediction, target)}
    if prediction.kind == "counts":
        values |= {"below": prediction.cdf(target - 1).clamp(0, 1)}
        values |= {"promised": prediction.cdf(high) - prediction.cdf(low - 1)}
    return values | {"inside": _inside(values, coverage)}


def quantiles(prediction: Prediction, *levels: float) -> list[torch.Tensor]:
    """The predicted quantiles at some levels."""
    return [prediction.icdf(torch.tensor(level, dtype=torch.float64)) for level in levels]


def _scored(prediction: Prediction, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """The scores that exist: points have no density, and very heavy tails no CRPS."""
    values = {}
    with contextlib.suppress(ValueError):
        values["crps"] = crps(prediction, target)
    if not isinstance(getattr(prediction, "components", None), Delta):
        values["nll"] = log_score(prediction, target)
    return values


def row_details(prediction: Prediction, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """What else is shown of the ensemble's rows; parts of a variance only where it is finite."""
    if not bool(prediction.variance.isfinite().all()):
        return {"actual": target}
    parts = {"aleatoric": prediction.aleatoric, "epistemic": prediction.epistemic}
    return {"actual": target, **{name: variance.clamp_min(0).sqrt() for name, variance in parts.items()}}


def report_fields(sources: Sources, subject: Subject, columns: Columns | None) -> dict[str, Any]:
    """The fields of an `Evaluation` that are special to predicted numbers."""
    measure = _add_uncertainty(sources, subject.coverage)
    rows, point = sources.ensemble, subject.point
    scores, uncertainty = _scores(sources, subject, measure), rows["uncertainty"]
    ordering = _ordering(scores, len(uncertainty))
    thresholds, trust = per_row.recommended(_thresholds(uncertainty, rows["distance"]), ordering, at_least=False)
    shown = {"actual": rows["actual"], "predicted": rows[point], "error": rows[point] - rows["actual"]}
    names = ("std", "aleatoric", "epistemic") if "aleatoric" in rows else ()
    shown |= {name: rows[name] for name in ("row", *names, "low", "high")}
    fields = {"scores": scores, "curves": _curves(sources, subject), "thresholds": thresholds}
    notes = {"predicts": "a count" if subject.kind == "counts" else "a number", "uncertainty": measure}
    notes |= {"constant": subject.constant, **({"support": "positive"} if subject.positive else {})}
    fields |= {"verdicts": _verdicts(rows, subject, ordering) | trust, "notes": notes}
    # Where the spread is the same for every row, none is more uncertain than another.
    varies = np.ptp(uncertainty) > 0
    fields |= {"uncertain": per_row.examples(uncertainty if varies else 0 * uncertainty, shown, columns)}
    return fields | {"wrong": per_row.examples(rows["distance"], shown, columns)}


def _add_uncertainty(sources: Sources, coverage: float) -> str:
    """What orders rows by uncertainty, added to all sources: the standard deviation, or where that is infinite a width."""
    by_deviation = bool(np.isfinite(sources.ensemble["std"]).all())
    for rows in sources:
        if rows:
            measured = rows["std"] if by_deviation else rows["high"] - rows["low"]
            rows["uncertainty"] = np.where(np.isfinite(measured), measured, 0.0)
            # The level of each target; of a count one of those between F(y - 1) and F(y), drawn always alike.
            draws = np.random.default_rng(0).uniform(size=len(rows["level"]))
            rows["drawn"] = rows["level"] - draws * (rows["level"] - rows["below"]) if "below" in rows else rows["level"]
    return "standard deviation" if by_deviation else f"width of the {words.level(coverage)} interval"


def _scores(sources: Sources, subject: Subject, measure: str) -> list[Score]:
    interval, scores = words.level(subject.coverage), []
    is_count, skipped = subject.kind == "counts", sources.constant and "nll" not in sources.constant
    if "nll" in sources.ensemble:
        meaning = f"mean negative log-likelihood, −log {'P' if is_count else 'p'}(y), in nats"
        meaning += "; the constant's is of another kind and no match" if skipped else ""
        scores.append(sources.mean_score("nll", "NLL", meaning))
    if "crps" in sources.ensemble:
        formula = "Σ(F(k) − 1{y ≤ k})²" if is_count else "∫(F(z) − 1{y ≤ z})² dz"
        meaning = f"mean continuous ranked probability score, {formula}, {_UNITS}"
        scores.append(sources.mean_score("crps", "CRPS", meaning))
    scores += _error_scores(sources, subject.point)
    meaning, aim = f"share of rows inside the central {interval} interval", cast(Better, subject.coverage)
    if is_count:
        promised, aim = words.percent(float(sources.ensemble["promised"].mean())), "as promised"
        meaning += f"; of whole numbers it holds more, here {promised} of the ensemble's predicted probability"
    scores.append(sources.mean_score("inside", f"{interval} coverage", meaning, aim, share=True))
    meaning = f"mean width of the central {interval} interval, {_UNITS}; narrow is good if the coverage holds"
    widths = sources.apply(lambda rows: float((rows["high"] - rows["low"]).mean()))
    scores.append(Score(f"{interval} width", meaning, "lower", *widths))
    meaning = f"mean distance between observed and wanted coverage over the {len(_LEVELS)} levels 5, 10, …, 95 per cent"
    meaning += ", each count standing for a level drawn between F(y − 1) and F(y)" if is_count else ""
    errors = sources.apply(lambda rows: float(np.abs(np.array(_calibration(rows)) - _LEVELS).mean()))
    scores.append(Score("Calibration error", meaning, "lower", *errors, share=True))
    ensemble, single, constant = sources.apply(_rank_correlation)
    if ensemble is not None:
        meaning = f"Spearman's, of predicted {measure} and absolute error: 1 if it orders the errors, 0 if it says nothing"
        scores.append(Score("Rank correlation", meaning, "higher", ensemble, single, constant))
    return scores


def _error_scores(sources: Sources, point: str) -> list[Score]:
    values = sources.apply(lambda rows: _root_mean_square(rows["distance"]))
    others: Any = [_root_difference(sources.ensemble, rows) for rows in (sources.single, sources.constant)]
    meaning = f"root of the mean squared error of the predicted {point}, {_UNITS}"
    scores = [Score("RMSE", meaning, "lower", *values, *others[0], *others[1])]
    scores.append(sources.mean_score("distance", "MAE", f"mean absolute error of the predicted {point}, {_UNITS}"))
    if (spread := float(sources.ensemble["actual"].std())) > 0:
        meaning = "1 minus the squared error's share in the variance of these rows' targets; 1 is perfect, 0 is their mean"
        explained = sources.apply(lambda rows: 1 - (_root_mean_square(rows["distance"]) / spread) ** 2)
        scores.append(Score("R²", meaning, "higher", *explained))
    return scores


def _root_difference(ours: Rows, other: Rows) -> tuple[float | None, float | None]:
    """The difference of root mean squares; to first order each row moves one by e²/(2·RMSE)."""
    roots = [_root_mean_square(rows["distance"]) if rows else 0.0 for rows in (ours, other)]
    if not all(roots):
        return None, None
    moves = (rows["distance"] ** 2 / (2 * root) for rows, root in zip((ours, other), roots, strict=True))
    return roots[0] - roots[1], per_row.mean_difference(*moves)[1]


def _rank_correlation(rows: Rows) -> float | None:
    """Spearman's: the correlation of the ranks."""
    from scipy.stats import spearmanr  # late, as it takes a while

    uncertainty, error = rows["uncertainty"], rows["distance"]
    return float(spearmanr(uncertainty, error).statistic) if np.ptp(uncertainty) and np.ptp(error) else None


def _inside(rows: Any, coverage: float) -> Any:
    """Which targets, given as levels of their predicted distributions, lie in the central interval; its ends are inside."""
    levels, low, high = rows["level"], (1 - coverage) / 2, (1 + coverage) / 2
    # A count is at most the upper end where F(y - 1) has not reached its level yet.
    return (levels >= low) & (rows["below"] < high if "below" in rows else levels <= high)


def _calibration(rows: Rows) -> list[float]:
    """The shares of rows in their central intervals, by levels that can be as even as wanted."""
    return [float(_inside({"level": rows["drawn"]}, wanted).mean()) for wanted in _LEVELS]


def _curves(sources: Sources, subject: Subject) -> dict[str, Curve]:
    ensemble, uncertainty = sources.ensemble, sources.ensemble["uncertainty"]
    names, mean = ["actual", subject.point, "low", "high", "aleatoric", "epistemic"], _root_mean_square
    if "aleatoric" not in ensemble:
        # Squares of what is nearly infinite would say nothing.
        names, mean = names[:4], lambda values: float(np.mean(values))
    low, high = np.quantile(ensemble["actual"], [0.005, 0.995]).tolist()
    n_bins = int(np.clip(len(ensemble["actual"]) ** 0.5, 5, _TARGET_BINS))
    target, predicted = (per_row.histogram(ensemble[name], n_bins, (low, high)) for name in ("actual", subject.point))
    return {
        "target": {**target, "predicted": predicted["share"]},
        "calibration": {"level": list(_LEVELS), **sources.curves(_calibration)},
        "levels": per_row.histogram(ensemble["drawn"], _HISTOGRAM_BINS),
        "rows": per_row.sample_rows(ensemble, names),
        "error": per_row.group_means(uncertainty, {"spread": uncertainty, "error": ensemble["distance"]}, mean),
    }


def _root_mean_square(values: Vector) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _thresholds(uncertainty: Vector, distance: Vector) -> list[Threshold]:
    overall, targets = float(distance.mean()), []
    if overall > 0:
        step = words.round_step(overall, 50)
        targets = [float(f"{i * step:.12g}") for i in range(math.floor(overall / step), 0, -1) if i * step < overall]
    return per_row.thresholds(uncertainty, distance, targets, at_least=False)


def _ordering(scores: list[Score], n_rows: int) -> words.Ordering | None:
    """How well uncertainty orders the errors; None where rows are too few, or all are the same."""
    correlation = [score.ensemble for score in scores if score.name == "Rank correlation" and n_rows >= per_row.MIN_ROWS]
    return words.Ordering(correlation[0], 2 / math.sqrt(n_rows - 1), 0.2) if correlation else None


def _verdicts(rows: Rows, subject: Subject, ordering: words.Ordering | None) -> dict[str, str]:
    actual, point, coverage, n_rows = rows["actual"], subject.point, subject.coverage, len(rows["actual"])
    inside, promised = rows["inside"], float(rows["promised"].mean()) if "promised" in rows else None
    errors = rows[point] - actual
    bias = words.bias_verdict(float(errors.mean()), float(errors.std()) / math.sqrt(n_rows), n_rows)
    ends = (np.quantile(rows[name], [0.05, 0.95]) for name in (point, "actual"))
    spreads = (" to ".join(words.number(end, 3) for end in pair) for pair in ends)
    below, missed = words.percent(float((actual < rows[point]).mean())), words.count(n_rows - int(inside.sum()))
    verdicts = {
        "target": "Nine of ten predictions are {}, nine of ten targets {}.".format(*spreads),
        "calibration": words.coverage_verdict(coverage, float(inside.mean()), n_rows, promised),
        "levels": f"{below} of the targets lie below the predicted {point}. {bias}",
        "rows": f"{missed} of {words.count(n_rows)} rows lie outside their {words.level(coverage)} interval.",
    }
    if "epistemic" in rows:
        variance = float(np.mean(rows["std"] ** 2))
        part = float(np.mean(rows["epistemic"] ** 2)) / variance if variance > 0 else 0.0
        verdicts["parts"] = words.parts_verdict(part, "variance")
    if ordering is not None:
        correlation = f"The rank correlation of predicted spread and error is {words.number(ordering.strength, 2)}"
        verdicts["error"] = f"{correlation}: {ordering.text}."
    return verdicts

"""Predicted times, some only known to be exceeded: values per row → scores, curves, verdicts that allow for censoring."""

import contextlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from deep_ensembles._tensors import checked_events
from deep_ensembles.metrics.survival import brier_weights, concordance_index, kaplan_meier, survival
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report import numbers
from deep_ensembles.report import rows as per_row
from deep_ensembles.report.evaluation import Curve, Score
from deep_ensembles.report.rows import MIN_ROWS, Columns, Rows, Sources, Subject, Vector
from deep_ensembles.report.words import count, coverage_verdict, level, number, percent, share_verdict
from deep_ensembles.scoring import censored

_LEVELS = np.arange(1, 20) / 20
_INTERVALS = (0.8, 0.5)
_N_MOMENTS = 20
# An estimate that rests on fewer rows is not drawn.
_MIN_DRAWN = 5
_THIRDS = ("shortest", "middle", "longest")
_NOTES = {"predicts": "a time, of some rows only known to be exceeded", "uncertainty": "width of the interval"}


def brier_moments(pairs: Any) -> tuple[float, ...]:
    """When Brier scores are taken: from the 5 % to the 95 % quantile of the events' times; empty where these are too few."""
    times, events = pairs[:, 0], pairs[:, 1] == 1
    first, last = np.quantile(times[events], [0.05, 0.95]) if events.any() else (0.0, 0.0)
    return tuple(np.linspace(first, last, _N_MOMENTS).tolist()) if first < last < times.max() else ()


def row_values(prediction: Prediction, target: torch.Tensor, subject: Subject) -> dict[str, torch.Tensor]:
    """What predictions of times were worth, row by row; of the chance to exceed the moments a column each."""
    time, coverage = target[:, 0], subject.coverage
    median, low, high = numbers.quantiles(prediction, 0.5, (1 - coverage) / 2, (1 + coverage) / 2)
    moments = [time, *(torch.full_like(time, moment) for moment in subject.moments)]
    above = torch.from_numpy(np.stack([survival(prediction, moment) for moment in moments], 1))
    values = {"median": median, "low": low, "high": high, "nll": censored()(prediction, target)}
    return values | {"level": prediction.cdf(time).clamp(0, 1), "above": above[:, 0], "survival": above[:, 1:]}


def row_details(prediction: Prediction, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """What else is shown of the ensemble's rows."""
    return {**numbers.row_details(prediction, target[:, 0]), "event": target[:, 1]}


def report_fields(sources: Sources, subject: Subject, columns: Columns | None) -> dict[str, Any]:
    """The fields of an `Evaluation` that are special to censored times."""
    rows, n_rows = sources.ensemble, len(sources.ensemble["actual"])
    happened = checked_events("target", np.stack([rows["actual"], rows["event"]], 1))[:, 1] == 1
    n_events, shown = int(happened.sum()), {"time": rows["actual"], "event": np.where(happened, "yes", "no").tolist()}
    shown |= {"row": rows["row"], "predicted": rows["median"], "low": rows["low"], "high": rows["high"]}
    curves = _curves(sources, subject, happened)
    # An event surprises in both tails, a row without one only where it lasts longer than predicted.
    tail = np.where(happened, np.minimum(rows["level"], rows["above"]), rows["above"])
    shares = {"Events": n_events, "Censored": n_rows - n_events}
    return {
        "scores": _scores(sources, curves, happened),
        "curves": curves,
        "thresholds": (),
        "uncertain": per_row.examples(rows["high"] - rows["low"], shown, columns),
        "wrong": per_row.examples(-np.log(2 * tail + 1e-300), shown, columns),
        "verdicts": _verdicts(rows, happened, subject.coverage),
        "notes": {**_NOTES, "constant": subject.constant},
        "about": {name: f"{count(value)} ({percent(value / n_rows)})" for name, value in shares.items()},
    }


def _step(curve: tuple[Vector, Vector], places: Any) -> Vector:
    """A Kaplan–Meier curve, which starts at 1, at some places."""
    return np.concatenate([[1.0], curve[1]])[np.searchsorted(curve[0], places, side="right")]


def _calibration(rows: Rows, happened: Any, levels: Any) -> tuple[Vector, Vector]:
    """The share of rows whose events come by the predicted level, and how many rows say so: all but those censored before.

    If predictions are right, F(time) is even and censored at levels that say nothing of it. With so many rows the error of
    a share is that of counting (Peto's).
    """
    enough = len(happened) * _step(kaplan_meier(rows["level"], happened, of_censoring=True), levels)
    return 1 - _step(kaplan_meier(rows["level"], happened), levels), enough


def _curves(sources: Sources, subject: Subject, happened: Any) -> dict[str, Curve]:
    def calibration(rows: Rows) -> list[float | None]:
        shares, n_rows = _calibration(rows, happened, _LEVELS)
        return _known(shares, n_rows >= _MIN_DRAWN)

    rows, counts = sources.ensemble, np.array([happened.sum(), (~happened).sum()])
    names = ["actual", "event", "median", *(name for name in ("aleatoric", "epistemic") if name in rows)]
    curves: dict[str, Curve] = {"calibration": {"level": _LEVELS.tolist(), **sources.curves(calibration)}}
    curves["rows"] = per_row.sample_rows(rows, names)
    curves["events"] = {"kind": ["event", "censored"], **per_row.as_lists(rows=counts, share=counts / counts.sum())}
    return curves | (_curves_over_time(sources, list(subject.moments), happened) if subject.moments else {})


def _known(shares: Vector, is_known: Any) -> list[float | None]:
    return [share if known else None for share, known in zip(shares.tolist(), is_known, strict=True)]


def _curves_over_time(sources: Sources, moments: list[float], happened: Any) -> dict[str, Curve]:
    """Brier scores, of which rows get their parts, and the survival of groups of rows."""
    rows, times, steps = sources.ensemble, sources.ensemble["actual"], np.diff(moments)
    weights, over = np.stack(list(brier_weights(times, happened, moments)), 1), times[:, None] > np.array(moments)
    brier: dict[str, Any] = {"time": moments}
    rows["Kaplan–Meier"] = _step(kaplan_meier(times, happened), moments)[None]
    known = {name: (source, "survival", "brier") for name, source in sources._asdict().items() if source}
    for name, (source, key, part) in {**known, "Kaplan–Meier": (rows, "Kaplan–Meier", "reference")}.items():
        terms = weights * (source[key] - over) ** 2
        brier[name] = terms.mean(0).tolist()
        source[part] = ((terms[:, 1:] + terms[:, :-1]) / 2 * steps).sum(1) / steps.sum()
    return {"brier": brier} | ({"survival": _thirds(rows, moments, happened)} if len(times) >= MIN_ROWS else {})


def _thirds(rows: Rows, moments: list[float], happened: Any) -> Curve:
    """The share that lasts longer, observed and predicted, in three groups of rows by their predicted median."""
    times = rows["actual"]
    thirds: dict[str, Any] = {"time": moments}
    for name, group in zip(_THIRDS, np.array_split(np.argsort(rows["median"], kind="stable"), 3), strict=True):
        exceeded = _step(kaplan_meier(times[group], happened[group]), moments)
        thirds[name] = _known(exceeded, (exceeded == 0) | (np.array(moments) < times[group].max()))
        thirds[f"{name} predicted"] = rows["survival"][group].mean(0).tolist()
    return thirds


def _scores(sources: Sources, curves: dict[str, Curve], happened: Any) -> list[Score]:
    rows, scores = sources.ensemble, []
    with contextlib.suppress(ValueError):  # where no pair can be compared
        values = sources.apply(lambda source: concordance_index(-source["median"], rows["actual"], happened))
        meaning = "share of the pairs with a known order that predicted medians order right (Harrell's C); chance is 0.5"
        scores.append(Score("Concordance index", meaning, "higher", *values))
    meaning = "mean of −log p(time) of events and −log P(longer) of censored rows, in nats"
    skipped = "" if "nll" in sources.constant else "; no constant of the same family, fitted to censored times, is known"
    scores.append(sources.mean_score("nll", "NLL", meaning + skipped))
    if "brier" in rows:
        reference = number(float(rows["reference"].mean()))
        meaning = f"mean squared error of P(longer than t) over {_N_MOMENTS} times t, weighted to make up for censoring"
        meaning += f"; the Kaplan–Meier curve of these rows, which knows no inputs, has {reference}"
        scores.append(sources.mean_score("brier", "Integrated Brier score", meaning))
    if happened.sum() < MIN_ROWS:  # an error would claim that differences can be told from chance
        return [replace(score, gain_error=None, lead_error=None) for score in scores]
    known = [i for i, shares in enumerate(zip(*curves["calibration"].values(), strict=True)) if None not in shares]
    if known:
        meaning = "mean distance of the Kaplan–Meier estimate of how many events come by a predicted level from that level"
        meaning += f", over the {len(known)} of {len(_LEVELS)} levels 5, 10, …, 95 per cent that enough rows reach"
        shares = sources.apply(lambda source: _calibration(source, happened, _LEVELS)[0])
        errors: Any = (None if share is None else float(np.abs(share - _LEVELS)[known].mean()) for share in shares)
        scores.append(Score("Calibration error", meaning, "lower", *errors, share=True))  # type: ignore[misc]
    return scores


def _verdicts(rows: Rows, happened: Any, coverage: float) -> dict[str, str]:
    n_events = int(happened.sum())
    if n_events < MIN_ROWS:
        few = f"{count(n_events)} event{' is' if n_events == 1 else 's are'} too few"
        return {"calibration": f"{few} to tell whether predictions hold what they promise."}
    verdicts = {"calibration": _calibration_verdict(rows, happened, coverage)}
    if "brier" in rows:
        ours, reference = (float(rows[name].mean()) for name in ("brier", "reference"))
        lead, error = (value or 0.0 for value in per_row.mean_difference(rows["brier"], rows["reference"]))
        change = "lower" if lead < -2 * error else "higher" if lead > 2 * error else "no lower, beyond chance,"
        other = f"that of the Kaplan–Meier curve of these rows, {number(reference)} (difference ± {number(error, 2)})"
        verdicts["brier"] = f"Its integrated Brier score, {number(ours)}, is {change} than {other}."
    return verdicts


def _calibration_verdict(rows: Rows, happened: Any, coverage: float) -> str:
    """Of the widest central interval that enough rows are watched for and of the median, or of the highest level known."""
    for wanted in (coverage, *(share for share in _INTERVALS if share < coverage)):
        (low, half, high), enough = _calibration(rows, happened, [(1 - wanted) / 2, 0.5, (1 + wanted) / 2])
        if enough[2] >= MIN_ROWS:
            interval = coverage_verdict(wanted, float(high - low), int(enough[2]))[1:]
            below = f"{percent(half)} of the times lie below their predicted median: {_direction(half, 0.5, enough[1])}."
            more = "" if wanted == coverage else f" Too few rows are watched long enough to tell of {level(coverage)}."
            return f"Allowing for censoring, t{interval} {below}{more}"
    shares, enough = _calibration(rows, happened, _LEVELS)
    last = int((enough >= MIN_ROWS).sum()) - 1
    if last < 0:
        return "Rows are censored too early to tell whether predictions hold what they promise."
    when = f"By the time at which an event's predicted probability is {level(_LEVELS[last])}"
    told = f"it has come in {percent(shares[last])} of the rows: {_direction(shares[last], _LEVELS[last], enough[last])}"
    return f"{when}, {told}. Higher levels cannot be told, as too few rows are watched for so long."


def _direction(share: float, aim: float, n_rows: float) -> str:
    """Whether events come sooner or later than predicted, or chance explains the difference."""
    words = ("as predicted", "they come later than predicted", "they come sooner than predicted")
    return share_verdict(share - aim, 2 * math.sqrt(aim * (1 - aim) / n_rows), int(n_rows), words)

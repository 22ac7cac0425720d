"""Several targets or labels per row: scores of all of them at once, beside those of the one that a page looks at."""

from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles.report.evaluation import Score
from deep_ensembles.report.rows import Rows, Sources, Subject
from deep_ensembles.scoring import log_score


def several_values(prediction: Any, target: Tensor) -> dict[str, Tensor]:
    """What predictions of all targets were worth, row by row; hits of each label only as sums, once per batch."""
    if prediction.kind != "labels":
        return {"joint": log_score(prediction, target)}
    guess, truth = prediction.mode, target > 0.5
    return {
        "joint": log_score(prediction, target),
        "subset": (guess == truth).all(-1),
        "squares": (prediction.probs - target).square().mean(-1),
        "label rows": truth.sum(0),
        "label guesses": guess.sum(0),
        "label hits": (guess & truth).sum(0),
        "batches": target.new_ones(1),
    }


def several_fields(sources: Sources, subject: Subject, task: dict[str, Any]) -> dict[str, Any]:
    """The scores and curves of an `Evaluation` with those of all targets at once added."""
    if not subject.several:
        return {}
    meaning = f"mean negative log-likelihood of all {subject.several} of a row together, in nats"
    scores: list[Score] = [*task["scores"], sources.mean_score("joint", f"NLL of all {subject.several}", meaning)]
    if subject.several == "targets":
        return {"scores": scores}
    meaning = "share of rows whose labels are all right, each being there if that is more probable than not"
    scores.append(sources.mean_score("subset", "All labels right", meaning, "higher", share=True))
    meaning = "mean squared distance of the labels' probabilities from the truth, over all labels"
    scores.append(sources.mean_score("squares", "Brier score of all labels", meaning))
    return {"scores": scores, "curves": {**task["curves"], "labels": _label_curve(sources.ensemble)}}


def _label_curve(rows: Rows) -> dict[str, list[Any]]:
    """Of each label the rows that have it, the share of them found, and the share of its predictions that are right."""
    n_labels = len(rows["label rows"]) // len(rows["batches"])
    truth, guesses, hits = (rows[f"label {name}"].reshape(-1, n_labels).sum(0) for name in ("rows", "guesses", "hits"))
    recall, precision = (
        [float(hit / total) if total else None for hit, total in zip(hits, totals, strict=True)]
        for totals in (truth, guesses)
    )
    return {"rows": truth.astype(np.int64).tolist(), "recall": recall, "precision": precision}

"""Several targets or labels per row: scores of all of them at once, beside those of the one that a page looks at."""

from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles.report.evaluation import Score
from deep_ensembles.report.rows import Sources, Subject, recalled
from deep_ensembles.scoring import log_score


def several_values(prediction: Any, target: Tensor) -> dict[str, Tensor]:
    """What predictions of all targets were worth, row by row; hits of each label only as sums, once per batch."""
    values = {"joint": log_score(prediction, target)}
    if prediction.kind != "labels":
        return values
    guess, truth = prediction.mode, target > 0.5
    values |= {"subset": (guess == truth).all(-1), "squares": (prediction.probs - target).square().mean(-1)}
    values |= {"label rows": truth.sum(0), "label guesses": guess.sum(0), "label hits": (guess & truth).sum(0)}
    return values | {"batches": target.new_ones(1)}


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
    rows = sources.ensemble
    shape = len(rows["batches"]), -1
    counts = (rows[f"label {name}"].reshape(shape).sum(0).astype(np.int64) for name in ("rows", "guesses", "hits"))
    return {"scores": scores, "curves": {**task["curves"], "labels": recalled(*counts)}}

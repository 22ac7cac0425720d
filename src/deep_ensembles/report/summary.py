"""An evaluation in five lines that need no statistics, each with the place on the page that it follows from."""

from typing import NamedTuple

from deep_ensembles.report.evaluation import Evaluation, Threshold
from deep_ensembles.report.words import CHANGED, FEW_ROWS, count, number, percent, row_count, short, threshold_text

RARE = 0.2  # the share of the rarer class up to which accuracy says little
_START_SHARE = 0.8  # of the rows is kept, or a little less, by the threshold that is told


class Finding(NamedTuple):
    """A sentence, and what it follows from.

    Arguments:
        text: the sentence.
        place: the part of the page that shows it.
        link: what that is called.
    """

    text: str
    place: str
    link: str


def findings(evaluation: Evaluation) -> list[Finding]:
    """At most five lines: how good predictions are, whether what they promise holds, which to trust, where they are worse,
    and whether the rows are like those of training."""
    verdicts = evaluation.verdicts
    lines = [_quality(evaluation), _honesty(evaluation), _trust(evaluation)]
    places = {"time": "errors over time", "segments": "segments"}
    where = [name for name in places if name in verdicts and (name == "segments" or CHANGED in verdicts[name])]
    lines += [Finding(verdicts[name], name, places[name]) for name in where[:1]]
    return [line for line in [*lines, Finding(_likeness(evaluation), "outside", "columns then and now")] if line is not None]


def starting_threshold(evaluation: Evaluation) -> int:
    """The first threshold that keeps no more than most of the rows, or the last of all."""
    kept = [place for place, line in enumerate(evaluation.thresholds) if line.kept <= _START_SHARE]
    return kept[0] if kept else len(evaluation.thresholds) - 1


def _quality(evaluation: Evaluation) -> Finding:
    first, curves = evaluation.scores[0], evaluation.curves
    if evaluation.task == "times":
        return Finding(evaluation.summary, "scores", "scores")
    on, beside = f"On {row_count(evaluation.n_rows)}", _beside_guess(evaluation)
    if unseen := evaluation.about.get("Unseen classes"):
        beside += f" With {unseen}, {percent(evaluation.score('Accuracy, all rows').ensemble)} of all are right."
    if evaluation.task == "numbers":
        first, name = evaluation.score("MAE"), f" of {short(evaluation.target)}" if evaluation.target else ""
        other = "" if first.constant is None else f"; the same guess for every row is off by {number(first.constant, 3)}"
        return Finding(
            f"{on}, predictions{name} are off by {number(first.ensemble, 3)} on average{other}.{beside}", "scores", "scores"
        )
    if "lift" in curves and curves["precision"]["precision"][-1] <= RARE:
        rare = f"{percent(curves['precision']['precision'][-1])} of them {short(evaluation.notes['rare'])}"
        return Finding(f"{on}, {rare}: {_lowered(evaluation.verdicts['lift'])}{beside}", "lift", "what the first rows hold")
    other = "" if first.constant is None else f"; always naming the same class is right in {percent(first.constant)}"
    return Finding(f"{on}, the class is right in {percent(first.ensemble)}{other}.{beside}", "scores", "scores")


def _lowered(text: str) -> str:
    return text[0].lower() + text[1:]


def _beside_guess(evaluation: Evaluation) -> str:
    """Whether predictions are better than one guess for all rows, by all scores that tell."""
    ways = {lead.clear(evaluation.n_rows) for score in evaluation.scores if (lead := score.difference("lead")) is not None}
    if not ways:
        return ""
    guess = "than the same guess for every row"
    if ways >= {-1, 1}:
        return f" By some scores that is better {guess}, by others worse."
    if ways & {-1, 1}:
        return f" It is {'better' if -1 in ways else 'worse'} {guess}, beyond chance."
    few = evaluation.n_rows < FEW_ROWS
    return (
        f" That is too few rows to tell whether it is better {guess}."
        if few
        else f" It is no better {guess}, beyond chance."
    )


def _honesty(evaluation: Evaluation) -> Finding | None:
    places = {"calibration": "intervals", "reliability": "confidence"}
    return next((Finding(evaluation.verdicts[name], name, link) for name, link in places.items()
                 if name in evaluation.verdicts), None)  # fmt: skip


def _trust(evaluation: Evaluation) -> Finding | None:
    if len(evaluation.thresholds) < 2:
        return None
    line, everything = evaluation.thresholds[starting_threshold(evaluation)], evaluation.thresholds[0]
    if evaluation.task == "classes":
        told = f"{percent(line.reached)} ± {percent(line.error)} are right; of all {percent(everything.reached)}"
    else:
        reached = f"{number(line.reached, 3)} ± {number(line.error, 2)}"
        told = f"the mean error is {reached}; of all {number(everything.reached, 3)}"
    return Finding(f"Of the {count(line.rows)} predictions that it is surest of, {told}.", "trust", "what to trust")


def threshold_rule(evaluation: Evaluation, line: Threshold) -> str:
    """Which predictions a threshold keeps."""
    is_class = evaluation.task == "classes"
    rule = "confidence is at least" if is_class else f"{evaluation.notes['uncertainty']} is at most"
    return f"{rule} {threshold_text(line.threshold, at_least=is_class)}"


def _likeness(evaluation: Evaluation) -> str:
    text, unseen = evaluation.verdicts["drift"], evaluation.unseen
    if not unseen:
        return text
    most = unseen[0]
    return f"{text} Most values that training did not see are in `{short(most.column)}`: {row_count(most.rows)}."

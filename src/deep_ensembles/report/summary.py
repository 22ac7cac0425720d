"""An evaluation in five lines that need no statistics, each with the place on the page that it follows from."""

from dataclasses import replace
from typing import NamedTuple

from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.report.rows import MIN_ROWS
from deep_ensembles.report.words import CHANGED, count, number, percent, row_count, short, standing, with_error

RARE = 0.2  # the share of the rarer class up to which accuracy says little
_START_SHARE = 0.8  # of the rows is kept, or a little less, by the threshold that is told
_GUESS = "than the same guess for every row"
_BESIDE = {
    "better": f"It is better {_GUESS}, beyond chance.",
    "worse": f"It is worse {_GUESS}, beyond chance.",
    "mixed": f"By some scores that is better {_GUESS}, by others worse.",
    "few rows": f"That is too few rows to tell whether it is better {_GUESS}.",
    "open": f"These rows leave open whether it is better {_GUESS}.",
    "no better": f"It is no better {_GUESS}, by these rows.",
}


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
    verdicts, quality = evaluation.verdicts, _quality(evaluation)
    beside = f" {_beside(evaluation, quality)}" if evaluation.leads else ""
    if unseen := evaluation.about.get("Unseen classes"):
        beside += f" With {unseen}, {percent(evaluation.score('Accuracy, all rows').ensemble)} of all are right."
    if seen := evaluation.about.get("Rows of training"):
        beside += f" But {seen}."
    lines = [quality._replace(text=quality.text + beside)]
    places = {"calibration": "intervals", "reliability": "confidence"}
    lines += [Finding(verdicts[name], name, link) for name, link in places.items() if name in verdicts]
    lines += [Finding(_trust(evaluation), "trust", "what to trust")] if evaluation.thresholds else []
    if CHANGED in verdicts.get("time", ""):
        lines.append(Finding(verdicts["time"], "time", "errors over time"))
    elif "segments" in verdicts:
        lines.append(Finding(verdicts["segments"], "segments", "segments"))
    return [*lines, Finding(_likeness(evaluation), "outside", "columns then and now")]


def _beside(evaluation: Evaluation, quality: Finding) -> str:
    """How predictions stand beside the same guess for every row; what is told before is not contradicted."""
    stands, told = standing(evaluation.leads, evaluation.n_rows), evaluation.scores[0]
    tells_accuracy = evaluation.task == "classes" and quality.place == "scores"
    if stands == "better" and tells_accuracy and told.constant is not None and told.ensemble <= told.constant:
        return f"Its probabilities are better {_GUESS}, beyond chance, though it is not right more often."
    return _BESIDE[stands]


def summarized(evaluation: Evaluation) -> Evaluation:
    """With a summary: how good predictions are, whether what they promise holds, and unless they are better than a constant
    how they stand beside it."""
    verdicts, sentences = evaluation.verdicts, [_quality(evaluation).text]
    sentences += [verdicts[name] for name in ("calibration", "reliability") if name in verdicts]
    if "constant" in verdicts and standing(evaluation.leads, evaluation.n_rows) != "better":
        sentences.append(verdicts["constant"])
    return replace(evaluation, summary=" ".join(sentences))


def starting_threshold(evaluation: Evaluation) -> int:
    """The first threshold that keeps no more than most of the rows, or the last of all."""
    kept = [place for place, line in enumerate(evaluation.thresholds) if line.kept <= _START_SHARE]
    return kept[0] if kept else len(evaluation.thresholds) - 1


def _quality(evaluation: Evaluation) -> Finding:
    """How good predictions are, in the words of their task."""
    curves, on = evaluation.curves, f"On {row_count(evaluation.n_rows)}"
    if evaluation.task == "times":
        return Finding(on + _order_of_times(evaluation), "scores", "scores")
    if evaluation.task == "numbers":
        error, unit = evaluation.score("MAE"), f" {short(evaluation.unit)}" * bool(evaluation.unit)
        name, value = f" of {short(evaluation.target)}" * bool(evaluation.target), number(error.ensemble, 3)
        other = "" if error.constant is None else f"; the same guess for every row is off by {number(error.constant, 3)}"
        return Finding(f"{on}, predictions{name} are off by {value}{unit} on average{other}.", "scores", "scores")
    never = f" {evaluation.verdicts['never']}" if "never" in evaluation.verdicts else ""
    if "lift" in curves and curves["precision"]["precision"][-1] <= RARE:
        rare = f"{percent(curves['precision']['precision'][-1])} of them {short(evaluation.notes['rare'])}"
        lift = evaluation.verdicts["lift"]
        return Finding(f"{on}, {rare}: {lift[0].lower()}{lift[1:]}{never}", "lift", "what the first rows hold")
    right = evaluation.scores[0]
    other = "" if right.constant is None else f"; always naming the same class is right in {percent(right.constant)}"
    return Finding(f"{on}, the class is right in {percent(right.ensemble)}{other}.{never}", "scores", "scores")


def _order_of_times(evaluation: Evaluation) -> str:
    first, (n_events, n_censored) = evaluation.scores[0], evaluation.curves["events"]["rows"]
    what = f", of which {count(n_events)} ended in an event and {count(n_censored)} are censored"
    if n_events < MIN_ROWS:
        return f"{what}, nothing can be claimed: there are fewer than {MIN_ROWS} events."
    if first.name != "Concordance index":
        return f"{what}, no two can be compared."
    pairs = f"{percent(first.ensemble)} of the pairs with a known order are predicted in that order"
    return f"{what}, {pairs} (by chance: half of them)."


def _trust(evaluation: Evaluation) -> str:
    if "trust" in evaluation.verdicts:
        return evaluation.verdicts["trust"]
    line, everything = evaluation.thresholds[starting_threshold(evaluation)], evaluation.thresholds[0]
    is_class = evaluation.task == "classes"
    reached, overall = with_error(line.reached, line.error, is_class), everything.reached
    told = (f"{reached} of rows that did not choose it are right; of all {percent(overall)}" if is_class
            else f"the mean error of rows that did not choose it is {reached}; of all {number(overall, 3)}")  # fmt: skip
    return f"With a threshold that keeps the {count(line.rows)} surest predictions, {told}."


def _likeness(evaluation: Evaluation) -> str:
    text, unseen = evaluation.verdicts["drift"], evaluation.unseen
    if not unseen:
        return text
    return f"{text} Most values that training did not see are in `{short(unseen[0].column)}`: {row_count(unseen[0].rows)}."

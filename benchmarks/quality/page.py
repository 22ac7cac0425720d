"""docs/benchmarks.md, every number of it from the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.goals import ECE, ECE_ROWS, Goal, fit_limits, fit_times, goals
from benchmarks.quality.published import COLUMNS, SOURCES
from benchmarks.quality.records import METHODS, SLOW_SECONDS, SLOW_SPLITS
from benchmarks.quality.summary import HIGHER_IS_BETTER, Results, is_significant
from benchmarks.quality.tables import LATTICE, N_SPLITS, TABLES, UCI
from deep_ensembles._files import write_atomically

SHORT = {
    "boston-housing": "boston",
    "naval-propulsion-plant": "naval",
    "power-plant": "power",
    "wine-quality-red": "wine-red",
}
MADE = [name for name, table in TABLES.items() if table.kind == "made" and table.task == "regression"]
CLASSES = [name for name, table in TABLES.items() if table.task == "classification"]
UNJUDGED = ("coverage_90", "width_90", "fit", "fit_cpu", "predict")  # scores without a best
REGRESSION_SCORES = {
    "nll": "NLL of the predicted distribution itself (mean ± standard deviation over splits)",
    "nll_normal": "NLL of the normal with the same mean and variance, the paper's score",
    "crps": "CRPS",
    "rmse": "RMSE of the predicted mean",
    "coverage_90": "Share of targets in the central 90 % interval",
    "width_90": "Mean width of that interval",
    "calibration_error": "Calibration error: |share of targets below the quantile − level|, mean over levels 5, 10, …, 95 %",
}
CLASS_SCORES = {
    "nll": "NLL (mean ± standard deviation over splits)",
    "brier": "Brier score, divided by the number of classes",
    "ece": "Expected calibration error, 15 bins",
    "accuracy": "Accuracy",
}
SECONDS = {
    "fit_cpu": "Processor seconds of a fit",
    "fit": "Seconds of a fit by the clock, on a machine that had other work to do",
    "predict": "Seconds of a prediction of the test rows by the clock",
}
INTRODUCTION = """\
How good the defaults are beside what one would pick instead: nine UCI sets with their official splits, scikit-learn's
embedded tables, and made tables whose truth is known. This page is written by

```bash
pip install 'deep-ensembles[bench]'
python -m benchmarks.quality                         # hours; goes on where it was stopped
python -m benchmarks.quality --page docs/benchmarks.md  # this page, from the records
```"""
LATTICES = """\
wine-quality-red has whole grades and naval-propulsion-plant steps of .001: a density with spikes there has as low an NLL as
one likes. What counts is the CRPS and the probability of the cell of the lattice around the target,
F(y + h/2) − F(y − h/2): its mean logarithm, higher is better."""


def write_page(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write the whole page."""
    results = Results(records)
    parts = [*_head(results), *_goals(results), *_regression(results), *_classification(results), *_methods(results)]
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())


def _head(results: Results) -> Iterator[str]:
    yield "# Benchmarks: quality beside peers"
    yield INTRODUCTION
    yield (
        f"from {results.n_records} records in `benchmarks/records/quality`, one per data set, split and method. "
        "Every method sees the training rows of a split, the same for all, and nothing else; "
        "all compute on one thread; the seed is the number of the split. "
        f"Peers that take more than {SLOW_SECONDS} processor seconds per fit are run on the first {SLOW_SPLITS} splits: "
        "a number in brackets says how many splits a mean is over where they are not all. "
        "Differences and ranks are over the splits that methods share."
    )
    if len(results.sources) > 1:
        yield f"Records of ours are of {len(results.sources)} states of the source: {', '.join(sorted(results.sources))}."


def _goals(results: Results) -> Iterator[str]:
    yield "## What was to be reached"
    rows = [_goal_row(goal) for goal in goals(results)]
    yield _table(["goal", "wanted", "holds on", "verdict", "does not hold on", "not known yet"], rows)
    yield (
        "Of ours by default unless it says otherwise; means over splits, differences on shared splits; "
        "significant: p < .05 in a t-test corrected for rows that splits share (Nadeau & Bengio 2003). "
        "NLL is that of the predicted distribution itself; times are by the clock on two cores."
    )
    yield from _why_not(results)
    there = {name: len(results.values(name, "ours", "fit")) for name in TABLES}
    short = [f"{_short(name)} {n} of {TABLES[name].n_splits}" for name, n in there.items() if n < TABLES[name].n_splits]
    if short:
        yield f"Not all cells of ours are there, and verdicts are of those that are. Splits: {', '.join(short)}."


def _why_not(results: Results) -> Iterator[str]:
    """What the goals that are not reached on some tables cost, or why nobody reaches them."""
    for name in (name for name, table in TABLES.items() if table.task == "classification" and table.test_rows >= ECE_ROWS):
        ours, peer = results.mean(name, "ours", "ece"), results.best_peer(name, "ece")
        if ours is not None and peer is not None and ours >= ECE:
            least = results.mean(name, peer, "ece")
            title = next(method.title for method in METHODS["classification"] if method.name == peer)
            yield (
                f"ECE on {_short(name)}, of {results.rows[name]['train']} training rows: ours {ours:.3f}, the least of all "
                f"others {least:.3f} ({title}). How often each class comes is itself not known to {ECE} from so few rows."
            )
    longer = {name: (of["default"], fit_limits(name, of)["default"]) for name, of in fit_times().items()}
    longer = {name: pair for name, pair in longer.items() if pair[0] > pair[1]}
    if longer:
        told = ", ".join(f"{_short(name)} {taken:.0f} s instead of {limit:.0f}" for name, (taken, limit) in longer.items())
        yield (
            f"Time and quality fight on {told}: half the epochs would do for the time, and cost a tenth of NLL where "
            "targets are nearly without noise (recipe.md), so the default keeps its epochs. `max_epochs=300` or "
            "`time_limit=` buy time."
        )


def _goal_row(goal: Goal) -> list[str]:
    by = {known: [_short(name) for name, holds in goal.holds.items() if holds is known] for known in (True, False, None)}
    wanted = f"{goal.wanted} of {len(goal.holds)}"
    return [goal.statement, wanted, str(len(by[True])), f"**{goal.verdict}**", ", ".join(by[False]), ", ".join(by[None])]


def _regression(results: Results) -> Iterator[str]:
    yield "## Regression"
    yield (
        f"{TABLES['yacht'].n_splits} splits of each set; protein has {TABLES['protein'].n_splits}. "
        "Targets' units throughout. Lower is better, but for the share in the interval and the log-probability of cells; "
        "the best of each set is bold."
    )
    for score, title in REGRESSION_SCORES.items():
        yield from _score_table(results, title, "regression", UCI, score)
    yield f"Published numbers, which were not run here:\n{SOURCES.rstrip()}"
    yield from _lattice(results)
    yield from _ranks(results, "regression", UCI)
    yield from _gaps(results, "regression", UCI, ("nll", "crps", "rmse"))
    yield "### Time"
    yield from _clock()
    yield from _price(results)
    for score, title in SECONDS.items():
        yield from _score_table(results, title, "regression", UCI, score)
    yield "### Made tables"
    yield f"{N_SPLITS} draws of each: " + "; ".join(f"*{name}*: {TABLES[name].description}" for name in MADE) + "."
    for score in ("nll", "crps", "coverage_90"):
        yield from _score_table(results, REGRESSION_SCORES[score], "regression", MADE, score)


def _clock() -> Iterator[str]:
    """Fits on all cores of a machine that has nothing else to do."""
    seconds, titles = fit_times(), {"default": "ours", "ngboost": "NGBoost", "fast": "ours, fast", "catboost": "CatBoost"}
    rows = [
        [title, *(f"{seconds[table][name]:.3g}" if name in seconds.get(table, {}) else "–" for table in UCI)]
        for name, title in titles.items()
    ]
    title = "Seconds of a fit by the clock, the first split on two quiet cores (`python -m benchmarks.fit_times`)"
    yield f"**{title}**\n\n" + _table(["", *map(_short, UCI)], rows)


def _price(results: Results) -> Iterator[str]:
    """What the default takes beyond the fast effort, and what that buys."""
    known = [table for table in UCI if results.gap(table, "ours", "ours-fast", "nll") is not None]
    if not known:
        return
    yield (
        "Where time and quality fight, the default keeps the quality. What its processor seconds buy beside "
        '`effort="fast"`, on the splits that both have:'
    )
    rows = []
    for table in known:
        seconds = [_number(results.mean(table, name, "fit_cpu") or 0.0, "fit_cpu") for name in ("ours", "ours-fast")]
        gaps = {score: results.gap(table, "ours", "ours-fast", score) or {} for score in ("nll", "crps")}
        less = -gaps["crps"]["mean"] / (results.mean(table, "ours-fast", "crps") or 1.0)
        rows.append([_short(table), *seconds, _number(gaps["nll"]["mean"], "nll", "+"), f"{less:.0%}"])
    yield _table(["", "seconds", "fast", "NLL minus that of fast", "CRPS lower by"], rows)


def _lattice(results: Results) -> Iterator[str]:
    yield "### Targets on a lattice"
    yield LATTICES
    yield from _score_table(results, "Log-probability of the cell", "regression", list(LATTICE), "cell_log_probability")


def _classification(results: Results) -> Iterator[str]:
    yield "## Classification"
    embedded = [name for name in CLASSES if TABLES[name].kind == "embedded"]
    made = [f"*{name}*: {TABLES[name].description}" for name in CLASSES if TABLES[name].kind == "made"]
    yield (
        f"{N_SPLITS} splits of each: a quarter of {', '.join(embedded)} tested, stratified; "
        "made tables are drawn anew for every split: "
        + "; ".join(made)
        + ". Probabilities are clipped at 1e-15. *truth*: what the law itself scores on the same test rows."
    )
    for score, title in CLASS_SCORES.items():
        yield from _score_table(results, title, "classification", CLASSES, score)
    yield from _ranks(results, "classification", CLASSES)
    yield from _gaps(results, "classification", CLASSES, ("nll", "brier"))
    yield "### Time of classifiers"
    for score, title in SECONDS.items():
        yield from _score_table(results, title, "classification", CLASSES, score)


def _score_table(results: Results, title: str, task: str, tables: Sequence[str], score: str) -> Iterator[str]:
    """Methods down, tables across; nothing where no method has the score."""
    methods = [m for m in results.methods(task) if any(results.values(table, m.name, score) for table in tables)]
    if not methods:
        return
    means = {table: [results.mean(table, m.name, score) for m in methods] for table in tables}
    best = {table: _best(values, score) for table, values in means.items()}
    rows = [
        [
            m.title,
            *(_mean(results, table, m.name, score, mean == best[table]) for table in tables for mean in [means[table][i]]),
        ]
        for i, m in enumerate(methods)
    ]
    rows += [
        [name, *(_number(column[table], score) if table in column else "" for table in tables)]
        for name, column in (COLUMNS.get(score, {}) if tables == UCI else {}).items()
    ]
    rows += _truth(results, tables, score)
    yield f"**{title}**\n\n" + _table(["", *map(_short, tables)], rows)


def _best(values: Sequence[float | None], score: str) -> float | None:
    known = [value for value in values if value is not None]
    if score in UNJUDGED or not known:
        return None
    return max(known) if score in HIGHER_IS_BETTER else min(known)


def _mean(results: Results, table: str, method: str, score: str, is_best: bool) -> str:
    numbers = results.over_splits(table, method, score)
    if numbers is None:
        return "–"
    text = _number(numbers["mean"], score)
    text = f"**{text}**" if is_best else text
    text += f" ± {_number(numbers['sd'], score)}" if score == "nll" and numbers["sd"] == numbers["sd"] else ""
    return text + ("" if numbers["splits"] == TABLES[table].n_splits else f" ({numbers['splits']})")


def _truth(results: Results, tables: Sequence[str], score: str) -> list[list[str]]:
    """The row of the law that made tables are drawn from, by any method's records."""
    cells = []
    for table in tables:
        of_methods = (results.mean(table, m.name, f"{score}_of_truth") for m in METHODS[TABLES[table].task])
        known = [mean for mean in of_methods if mean is not None]
        cells.append(_number(known[0], score) if known else "")
    return [["*truth*", *cells]] if any(cells) else []


def _ranks(results: Results, task: str, tables: Sequence[str]) -> Iterator[str]:
    """Mean ranks; by NLL without the lattices."""
    scores = ("nll", "crps", "rmse") if task == "regression" else ("nll", "brier")
    ranks = {s: results.ranks([t for t in tables if s != "nll" or t not in LATTICE], task, s) for s in scores}
    rows = [
        [m.title, *(f"{place[0]:.2f} ({place[1]})" if (place := ranks[s].get(m.name)) else "–" for s in scores)]
        for m in results.methods(task)
    ]
    if rows:
        note = " NLL without the two lattices." if task == "regression" else ""
        yield f"### Ranks of {'regressors' if task == 'regression' else 'classifiers'}"
        yield f"Mean rank over the tables that a method was run on (how many), 1 is best.{note}"
        yield _table(["", *(s.upper() if s != "brier" else "Brier" for s in scores)], rows)


def _gaps(results: Results, task: str, tables: Sequence[str], scores: Sequence[str]) -> Iterator[str]:
    """Ours minus every other method."""
    others = [m for m in results.methods(task) if m.name != "ours"]
    if not any(results.values(table, "ours", "fit") for table in tables) or not others:
        return
    yield f"### Ours minus {'other regressors' if task == 'regression' else 'other classifiers'}"
    yield "Mean difference ± corrected standard error on shared splits, and on how many of them ours is lower; \\*: p < .05."
    for score in scores:
        rows = [[m.title, *(_gap(results.gap(table, "ours", m.name, score), score) for table in tables)] for m in others]
        if any(cell != "–" for row in rows for cell in row[1:]):
            yield f"**{score.upper() if score != 'brier' else 'Brier'}**\n\n" + _table(["", *map(_short, tables)], rows)


def _gap(gap: Mapping[str, float | int] | None, score: str) -> str:
    if gap is None:
        return "–"
    mean, error = _number(gap["mean"], score, "+"), gap["corrected_se"]
    spread = f" ± {_number(error, score)}" if error == error else ""
    star = "\\*" if is_significant(gap) else ""
    return f"{mean}{spread}{star}, {gap['lower_on']}/{gap['splits']}"


def _methods(results: Results) -> Iterator[str]:
    yield "## How methods were fitted"
    for task, methods in METHODS.items():
        there = {method.name for method in results.methods(task)}
        lines = [f"| {m.title} | {m.about}{'' if m.name in there else ' No records yet.'} |" for m in methods]
        yield f"| {task} | |\n|---|---|\n" + "\n".join(lines)
    yield "Speed beside the plain way is on another page: [speed](speed.md)."


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float, score: str, sign: str = "") -> str:
    """Three decimals, or three digits of what is small; infinity as such."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": "∞", "-inf": "−∞"}.get(str(value), "–")
    if score in ("fit", "fit_cpu", "predict"):
        return f"{value:.3g}" if value < 10 else f"{value:.0f}"
    digits = 3 if abs(value) >= 0.02 or value == 0 else 5
    return f"{value:{sign}.{digits}f}"


def _short(table: str) -> str:
    return SHORT.get(table, table)

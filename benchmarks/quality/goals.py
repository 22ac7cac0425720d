"""What the defaults must reach, and whether the records say that they do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.published import BEST_VERIFIED, PAPER, TABPFN, TABPFN_SETS
from benchmarks.quality.summary import Results, is_significant
from benchmarks.quality.tables import LATTICE, TABLES, UCI

PEERS = ("ngboost", "catboost")
COVERAGE = (0.87, 0.94)
RMSE_FACTOR = 1.05
LARGE_ROWS, LARGE_SECONDS = 20_000, 180
FIT_TIMES = Path(__file__).parents[1] / "records" / "fit_times.json"  # of `benchmarks.fit_times`
ECE, ECE_ROWS = 0.03, 1000
Check = Callable[[str], bool | None]  # of a table; None where records are missing


@dataclass(frozen=True)
class Goal:
    """Something to reach on at least so many tables.

    Arguments:
        holds: table → whether it holds there; None where it cannot be told yet.
    """

    statement: str
    wanted: int
    holds: dict[str, bool | None]

    @property
    def verdict(self) -> str:
        reached = sum(known is True for known in self.holds.values())
        possible = reached + sum(known is None for known in self.holds.values())
        return "reached" if reached >= self.wanted else "open" if possible >= self.wanted else "not reached"


def goals(results: Results) -> Iterator[Goal]:
    """Every goal, in the order of their list."""
    yield from _distributions(results)
    yield from _published(results)
    yield from _points_and_intervals(results)
    yield from _times(fit_times())
    yield from _classes(results)


def _goal(statement: str, wanted: int, tables: Sequence[str], check: Check) -> Goal:
    return Goal(statement, wanted, {table: check(table) for table in tables})


def _distributions(results: Results) -> Iterator[Goal]:
    def below(score: str, significantly: bool = False, ours: str = "ours", peers: Sequence[str] = PEERS) -> Check:
        return lambda table: _all(_is_below(results, table, ours, peer, score, significantly) for peer in peers)

    yield _goal("NLL below NGBoost and CatBoost", 9, UCI, below("nll"))
    yield _goal("the same, significantly below both", 7, UCI, below("nll", significantly=True))
    yield _goal("CRPS below NGBoost and CatBoost", 9, UCI, below("crps"))
    yield _goal('`effort="fast"`: NLL below CatBoost', 7, UCI, below("nll", ours="ours-fast", peers=("catboost",)))


def _is_below(results: Results, table: str, ours: str, peer: str, score: str, significantly: bool) -> bool | None:
    gap = results.gap(table, ours, peer, score)
    return None if gap is None else bool(gap["mean"] < 0 and (not significantly or is_significant(gap)))


def _all(parts: Iterator[bool | None]) -> bool | None:
    """Whether all hold: False as soon as one does not, else None as soon as one is not known."""
    known = list(parts)
    return False if False in known else None if None in known or not known else True


def _published(results: Results) -> Iterator[Goal]:
    def below(column: dict[str, float], table: str, or_at: bool = False) -> bool | None:
        mean = results.mean(table, "ours", "nll")
        return None if mean is None else mean < column[table] or (or_at and mean == column[table])

    yield _goal("NLL below the paper's", 9, UCI, lambda table: below(PAPER["nll"], table))
    yield _goal(
        "NLL below the best verified; on the two lattices CRPS and cell log-probability better than every peer's", 8, UCI,
        lambda table: _best_on_lattice(results, table) if table in LATTICE else below(BEST_VERIFIED, table),
    )  # fmt: skip
    yield _goal("NLL at or below TabPFN's", 2, TABPFN_SETS, lambda table: below(TABPFN["nll"], table, or_at=True))


def _best_on_lattice(results: Results, table: str) -> bool | None:
    peers = [method.name for method in results.methods("regression", table) if not method.ours]
    lower = (_is_below(results, table, "ours", peer, "crps", False) for peer in peers if results.values(table, peer, "crps"))
    gaps = [results.gap(table, "ours", peer, "cell_log_probability") for peer in peers]
    higher = (bool(gap["mean"] > 0) for gap in gaps if gap is not None)
    return _all(iter([_all(lower), _all(higher)]))


def _points_and_intervals(results: Results) -> Iterator[Goal]:
    def holds(table: str) -> bool | None:
        mean = results.mean(table, "ours", "coverage_90")
        return None if mean is None else COVERAGE[0] <= mean <= COVERAGE[1]

    made = [name for name, table in TABLES.items() if table.task == "regression" and table.kind == "made"]
    yield _goal("RMSE at most 5 % above the best peer's", 7, UCI, lambda table: _is_near(results, table))
    yield _goal("90 % intervals hold between 87 and 94 %", 9, UCI, holds)
    yield _goal("the same on made tables", len(made), made, holds)


def _is_near(results: Results, table: str) -> bool | None:
    """Whether our RMSE is near that of each peer on the splits that both have."""
    ours, near = results.values(table, "ours", "rmse"), []
    for method in results.methods("regression", table):
        theirs = {} if method.ours else results.values(table, method.name, "rmse")
        common = ours.keys() & theirs.keys()
        if common:
            near.append(sum(ours[s] for s in common) <= RMSE_FACTOR * sum(theirs[s] for s in common))
    return _all(iter(near))


def fit_times() -> dict[str, dict[str, float]]:
    """Seconds of fits by the clock, by table and method."""
    return json.loads(FIT_TIMES.read_text("utf-8")) if FIT_TIMES.exists() else {}


def fit_limits(table: str, seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds that the default and a fast fit may take where peers take so many."""
    default = LARGE_SECONDS if TABLES[table].rows >= LARGE_ROWS else max(20.0, 2 * seconds["ngboost"])
    return {"default": default, "fast": max(2.0, 3 * seconds["catboost"])}


def _times(seconds: Mapping[str, Mapping[str, float]]) -> Iterator[Goal]:
    def within(effort: str) -> Check:
        return lambda table: (
            seconds[table][effort] <= fit_limits(table, seconds[table])[effort] if table in seconds else None
        )

    yield _goal("fit: at most 2× NGBoost's time or 20 s; protein 180 s", 9, UCI, within("default"))
    yield _goal('`effort="fast"`: at most 3× CatBoost\'s time or 2 s', 9, UCI, within("fast"))


def _classes(results: Results) -> Iterator[Goal]:
    tables = [name for name, table in TABLES.items() if table.task == "classification"]
    large = [name for name in tables if TABLES[name].test_rows >= ECE_ROWS]

    def best(table: str) -> bool | None:
        peer = results.best_peer(table, "nll")
        gap = None if peer is None else results.gap(table, "ours", peer, "nll")
        if gap is None or (gap["mean"] > 0 and gap["splits"] < 2):
            return None
        return bool(gap["mean"] <= 0 or not is_significant(gap))

    def calibrated(table: str) -> bool | None:
        mean = results.mean(table, "ours", "ece")
        return None if mean is None else mean < ECE

    yield _goal("classes: NLL best, or not significantly above the best peer's", len(tables), tables, best)
    yield _goal(f"classes: ECE below {ECE} where there are {ECE_ROWS} test rows", len(large), large, calibrated)

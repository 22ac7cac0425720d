"""Forty messy tables whose law is known: what `fit` claims beside what fresh rows give; `python -m benchmarks.messy_tables`.

Each table is a law and the flaws of its file, alone and in pairs. A model is fitted, and its claims (the share of rows in
90 % intervals, the share of right classes) are held against rows that the same law makes anew.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import expit

from deep_ensembles.report import Evaluation
from deep_ensembles.tabular import TableSettings, evaluate_table, fit_table

FRESH_ROWS = 2000
Random = np.random.Generator

# What notes of `fit` say, by what they are about.
NOTES = {
    "leak": r"need not be learnt|have the same `y`",
    "total": "looks like a total",
    "sentinel": "stands for a missing value",
    "far": "a slip, or another unit",
    "copies": "equal another in all",
}


# -- laws: columns that say something of `y` -------------------------------------------------------------------------------


def numbers(n: int, r: Random) -> pd.DataFrame:
    frame = pd.DataFrame(r.normal(size=(n, 4)).round(4), columns=["a", "b", "c", "d"])
    frame["kind"] = r.choice(["red", "green", "blue"], n)
    scale = 0.3 + 0.3 * frame["a"].abs()
    signal = 2 * frame["a"] - frame["b"] + 0.5 * frame["c"] ** 2 + (frame["kind"] == "red")
    return frame.assign(y=(20 + signal + scale * r.normal(size=n)).round(4))


def no_signal(n: int, r: Random) -> pd.DataFrame:
    return numbers(n, r).assign(y=r.normal(size=n).round(4))


def classes(n: int, r: Random) -> pd.DataFrame:
    frame = numbers(n, r)
    return frame.assign(y=np.where(r.random(n) < expit(frame["y"] - 20.5), "yes", "no"))


def three_classes(n: int, r: Random) -> pd.DataFrame:
    frame = numbers(n, r)
    return frame.assign(y=np.array(["low", "mid", "high"])[np.digitize(frame["y"] - 20 + r.logistic(size=n), (-1, 1.5))])


def chance(n: int, r: Random) -> pd.DataFrame:
    return numbers(n, r).assign(y=r.choice(["yes", "no"], n))


def rare(n: int, r: Random) -> pd.DataFrame:
    frame = numbers(n, r)
    return frame.assign(y=np.where(r.random(n) < expit(frame["y"] - 25), "fault", "fine"))


def zeros(n: int, r: Random) -> pd.DataFrame:
    """95 % zeros."""
    frame = numbers(n, r)
    return frame.assign(y=np.where(r.random(n) < 0.05, frame["y"], 0.0))


def counts(n: int, r: Random) -> pd.DataFrame:
    frame = numbers(n, r)
    return frame.assign(y=r.poisson(np.exp(0.4 * frame["y"] - 6)))


def heavy(n: int, r: Random) -> pd.DataFrame:
    frame = numbers(n, r)
    return frame.assign(y=(frame["y"] + 0.5 * r.standard_t(2, size=n)).round(4))


def shares(n: int, r: Random) -> pd.DataFrame:
    """Percentages, some of them on a bound."""
    return numbers(n, r).assign(y=lambda rows: (25 * (rows["y"] - 18.5)).clip(0, 100))


def wide(n: int, r: Random) -> pd.DataFrame:
    """2308 columns of which 20 tell four classes apart, as of genes."""
    centres = 1.2 * np.random.default_rng(0).normal(size=(4, 20))
    number = r.integers(4, size=n)
    X = r.normal(size=(n, 2308))
    X[:, :20] += centres[number]
    return pd.DataFrame(X.round(3), columns=[f"g{i}" for i in range(2308)]).assign(y=np.array(list("ABCD"))[number])


def wide_numbers(n: int, r: Random) -> pd.DataFrame:
    X = r.normal(size=(n, 300)).round(3)
    y = (0.5 * X[:, :10].sum(1) + r.normal(size=n)).round(3)
    return pd.DataFrame(X, columns=[f"g{i}" for i in range(300)]).assign(y=y)


# -- flaws: what is wrong with a table, in the file alone or in new rows too ------------------------------------------------


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a table.

    Arguments:
        change: (rows, generator, whether rows are new) → rows.
        in_new_rows: whether new rows have it too.
        note: the kind of note that must tell of it; see `NOTES`.
        options: settings that a user of such a table gives.
        cluster: how many rows go together, so that they count as one.
    """

    change: Callable[[pd.DataFrame, Random, bool], pd.DataFrame]
    in_new_rows: bool = True
    note: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cluster: int = 1


def _some(frame: pd.DataFrame, r: Random, share: float) -> np.ndarray:
    return r.random(len(frame)) < share


def _copies(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return pd.concat([frame] * 3).sample(frac=1, random_state=0)


def _near_copies(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    copied = frame if new else pd.concat([frame] * 3).sample(frac=1, random_state=0)
    return copied.assign(id=[f"n-{i}" for i in r.permutation(len(copied))])


def _total(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """Amounts, and a last row with their sums."""
    frame = frame.assign(amount=r.gamma(2, 10, len(frame)).round(2), weight=r.gamma(3, 5, len(frame)).round(2))
    if new:
        return frame
    sums = {name: frame[name].sum().round(4) if frame[name].dtype.kind == "f" else frame[name].iloc[0] for name in frame}
    return pd.concat([frame, pd.DataFrame([sums])])


def _sentinels(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return frame.assign(d=frame["d"].mask(_some(frame, r, 0.04), -999))


def _far(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    place = r.integers(len(frame))
    return frame.assign(y=np.where(np.arange(len(frame)) == place, 400 * frame["y"].median(), frame["y"]))


def _leak(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return frame.assign(paid=3 * frame["y"] + 1)


def _noisy_leak(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """R² of .9995 of what varies."""
    return frame.assign(booked=(2 * frame["y"] + 0.09 * r.normal(size=len(frame))).round(4))


def _parts(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """Three columns that add up to the target."""
    one, two = r.gamma(2, 3, len(frame)).round(4), r.gamma(2, 3, len(frame)).round(4)
    return frame.assign(north=one, south=two, west=(frame["y"] - one - two).round(4))


def _dates(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """The target in days is between two dates."""
    days = (10 * frame["y"]).round().astype(int)
    opened = pd.to_datetime("2021-03-01") + pd.to_timedelta(r.integers(0, 900, len(frame)), "D").to_series(frame.index)
    return frame.assign(y=days, opened=opened, closed=opened + pd.to_timedelta(days, "D"))


def _code(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return frame.assign(status=frame["y"].map({"yes": "S1", "no": "S2", "low": "L", "mid": "M", "high": "H"}))


def _gaps(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].mask(_some(frame, r, 0.2)) for name in ("b", "d", "kind")})


def _words(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """Numbers with words for missing ones among them."""
    said = r.choice(["n/a", "null", "-"], len(frame))
    return frame.assign(b=frame["b"].astype(str).where(~_some(frame, r, 0.1), said))


def _mixed(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """A few values that are no numbers."""
    return frame.assign(d=frame["d"].astype(str).where(~_some(frame, r, 0.01), "about 3"))


def _constant(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    return frame.assign(version=7, empty=np.nan, site="here")


def _levels(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """300 towns that say nothing."""
    return frame.assign(town=[f"town {i}" for i in r.integers(300, size=len(frame))])


def _groups(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """Rows of a person share a deviation, and inputs that nearly tell who it is."""
    who = np.arange(len(frame)) // 4
    level, height = r.normal(size=(2, len(frame) // 4 + 1))
    frame = frame.assign(who=[f"{'n' if new else 'p'}{i}" for i in who], height=height[who].round(4))
    return frame.assign(y=frame["y"] + 0.8 * level[who]) if frame["y"].dtype.kind == "f" else frame


def _drift(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """Noise grows by three times in the last third of the time."""
    day = np.sort(r.integers(800 if new else 0, 1000, len(frame)))
    noise = np.where(day > 650, 3.0, 1.0) * r.normal(size=len(frame))
    return frame.assign(day=pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D"), y=(frame["y"] + noise).round(4))


def _calendar(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    day = r.integers(800 if new else 0, 1000, len(frame))
    return frame.assign(day=(pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D")).strftime("%Y-%m-%d"))


def _numbered(frame: pd.DataFrame, r: Random, new: bool) -> pd.DataFrame:
    """A column that counts rows, which are sorted by the target."""
    frame = frame if new else frame.sort_values("y", ignore_index=True)
    return frame.assign(Obs=np.arange(len(frame)) + 1)


FLAWS = {
    "copies": Flaw(_copies, False, "copies", cluster=3),
    "near copies": Flaw(_near_copies, True, "copies", cluster=3),
    "total row": Flaw(_total, True, "total"),
    "sentinels": Flaw(_sentinels, True, "sentinel"),
    "far target": Flaw(_far, False, "far"),
    "leak": Flaw(_leak, True, "leak"),
    "noisy leak": Flaw(_noisy_leak, True, "leak"),
    "three parts": Flaw(_parts, True, "leak"),
    "two dates": Flaw(_dates, True, "leak"),
    "code of the class": Flaw(_code, True, "leak"),
    "gaps": Flaw(_gaps),
    "words": Flaw(_words),
    "mixed values": Flaw(_mixed, options={"errors": "missing"}),
    "constant columns": Flaw(_constant),
    "many levels": Flaw(_levels),
    "groups": Flaw(_groups, options={"group": "who"}, cluster=4),
    "drift": Flaw(_drift, options={"time": "day"}),
    "calendar": Flaw(_calendar, options={"time": "day"}),
    "numbered rows": Flaw(_numbered),
    "bounds": Flaw(lambda frame, r, new: frame, options={"bounds": "0,100"}),
}


# -- tables ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MessyTable:
    """A law, how many rows are drawn from it, and the flaws that they then get."""

    law: Callable[[int, Random], pd.DataFrame]
    n_rows: int
    flaws: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " · ".join([f"{self.law.__name__.replace('_', ' ')} {self.n_rows}", *self.flaws])

    @property
    def notes(self) -> set[str]:
        """The kinds of notes that must be given, and no others."""
        return {flaw.note for flaw in map(FLAWS.get, self.flaws) if flaw is not None and flaw.note is not None}

    @property
    def cluster(self) -> int:
        return max((FLAWS[flaw].cluster for flaw in self.flaws), default=1)

    def settings(self, effort: str, **others: Any) -> TableSettings:
        options = {name: value for flaw in self.flaws for name, value in FLAWS[flaw].options.items()}
        task = "regression" if self.law in (counts, zeros) else None
        return TableSettings(**{"target": "y", "effort": effort, "task": task, **options, **others})

    def rows(self, seed: int, new: bool) -> pd.DataFrame:
        """A table to learn from, or fresh rows."""
        r = np.random.default_rng([seed, int(new)])
        frame = self.law(FRESH_ROWS if new else self.n_rows, r)
        for flaw in map(FLAWS.__getitem__, self.flaws):
            if flaw.in_new_rows or not new:
                frame = flaw.change(frame, r, new)
        return frame


SINGLE = (
    *(MessyTable(numbers, 400, (flaw,)) for flaw in FLAWS if flaw not in ("code of the class", "bounds", "copies")),
    MessyTable(numbers, 150, ("copies",)), MessyTable(three_classes, 400, ("code of the class",)),
    MessyTable(shares, 400, ("bounds",)), MessyTable(no_signal, 300), MessyTable(chance, 300), MessyTable(rare, 800),
    MessyTable(zeros, 600), MessyTable(counts, 400), MessyTable(heavy, 400), MessyTable(numbers, 30),
    MessyTable(classes, 40), MessyTable(wide, 63), MessyTable(wide_numbers, 80),
)  # fmt: skip
PAIRS = (
    MessyTable(chance, 100, ("copies",)), MessyTable(classes, 120, ("near copies", "gaps")),
    MessyTable(numbers, 60, ("sentinels",)), MessyTable(heavy, 300, ("total row", "gaps")),
    MessyTable(numbers, 300, ("groups", "copies")), MessyTable(numbers, 400, ("drift", "sentinels")),
    MessyTable(rare, 600, ("gaps", "many levels")), MessyTable(numbers, 300, ("far target", "words")),
    MessyTable(numbers, 300, ("noisy leak", "total row")), MessyTable(classes, 300, ("calendar", "mixed values")),
)  # fmt: skip
FORTY = SINGLE + PAIRS


# -- claims ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What a fit says of rows that it held out, and what fresh rows give.

    Arguments:
        name: of the score.
        claimed, fresh: the score; lower or higher is better as of the score.
        error: the standard error of their difference.
    """

    name: str
    claimed: float
    fresh: float
    error: float

    @property
    def z(self) -> float:
        """How many standard errors the claim is above fresh rows."""
        return (self.claimed - self.fresh) / self.error


@dataclass(frozen=True)
class Outcome:
    """What became of a table."""

    claims: list[Claim]
    notes: list[str]
    evaluation: Evaluation
    fresh: Evaluation
    seconds: float

    @property
    def kinds_of_notes(self) -> set[str]:
        return {kind for kind, words in NOTES.items() for note in self.notes if re.search(words, note)}


def outcome(table: MessyTable, folder: Path, *, effort: str = "fast", seed: int = 0, **settings: Any) -> Outcome:
    """Fit a table, and judge the model by fresh rows."""
    train, fresh = folder / "train.csv", folder / "fresh.csv"
    table.rows(seed, new=False).to_csv(train, index=False)
    table.rows(seed, new=True).to_csv(fresh, index=False)
    notes: list[str] = []
    start = time.process_time()
    chosen = table.settings(effort, **settings)
    fitted = fit_table(train, chosen, log=lambda what: notes.append(str(what)))
    seconds = time.process_time() - start
    judged = evaluate_table(fitted.model, fresh, errors=chosen.errors).evaluation
    notes = [note for note in notes if note.startswith("note: ")]
    return Outcome(_claims(fitted.evaluation, judged, table.cluster), notes, fitted.evaluation, judged, seconds)


def _claims(ours: Evaluation, fresh: Evaluation, cluster: int) -> list[Claim]:
    found, sizes = [], (ours.n_rows / cluster, fresh.n_rows / (cluster if cluster == 4 else 1))
    for name in ("90\u202f% coverage", "Accuracy"):
        values = [score.ensemble for run in (ours, fresh) for score in run.scores if score.name == name]
        if len(values) == 2:
            share = np.clip((values[0] * sizes[0] + values[1] * sizes[1]) / sum(sizes), 0.02, 0.98)
            error = float(np.sqrt(share * (1 - share) * sum(1 / n for n in sizes)))
            found.append(Claim(name, values[0], values[1], error))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", default="default")
    parser.add_argument("--only", default="", help="tables whose name has one of these words, with commas between")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-epochs", type=int, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'table':44}{'score':>14}{'claimed':>9}{'fresh':>8}{'errors':>8}{'seconds':>9}  notes")
    found: dict[str, list[float]] = {}
    for table in [table for table in FORTY if any(name in table.name for name in options.only.split(","))]:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                result = outcome(table, Path(folder), effort=options.effort, seed=seed, max_epochs=options.max_epochs)
            told = ", ".join(sorted(result.kinds_of_notes)) + (
                "" if result.kinds_of_notes == table.notes else f" (not {table.notes})"
            )
            for claim in result.claims:
                found.setdefault(claim.name, []).append(claim.z)
                print(f"{table.name:44}{claim.name:>14}{claim.claimed:>9.3f}{claim.fresh:>8.3f}{claim.z:>+8.1f}"
                      f"{result.seconds:>9.1f}  {told}", flush=True)  # fmt: skip
    for name, values in found.items():
        print(f"{name}: {len(values)} claims, {np.mean(values):+.2f} ± {len(values) ** -0.5:.2f} standard errors above "
              f"fresh rows on average, {np.abs(values).max():.1f} at most")  # fmt: skip


if __name__ == "__main__":
    main()

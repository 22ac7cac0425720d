"""What looks wrong in a table before training, said and left to the user; rows that are copies of others, kept together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles import columns
from deep_ensembles._arrow import pa, pc
from deep_ensembles.recipes import LEAST_DIFFERENT
from deep_ensembles.tabular.determined import determined_number, dividing_end, looked_up, nearly_determined

_MOST_NOTES, _LONGEST_NOTE, _LONGEST_VALUE = 8, 300, 60
_TOTAL = r"(?i)^\s*(grand|sub|over)?[ -]?(total|totals|sum|summe|gesamt|insgesamt)\b.{0,15}$"
_SENTINELS = (-1.0, *(sign * float("9" * digits) for digits in range(2, 9) for sign in (-1, 1)))
_ROWS_OF_LEVELS = 20_000
_COPIED = 0.9  # of the rows that are alike but for numbers that nearly all differ, from which they are copies
_FAR, _APART = 30.0, 5.0  # robust deviations from the median, and times as far as any other row

Groups = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Suspicions:
    """A look at the rows of a table, each suspicion as one note that names a row, counted from 1, and what to do.

    Arguments:
        table: the rows that have a target.
        schema: what their columns are.
        target: the column to predict.
        y: its numbers, or codes of classes.
        rows: the number of each row in the table as it was read, from 0.
        copies: the first row of those that each row is a copy of; None where there are none.
    """

    table: pa.Table
    schema: columns.Schema
    target: columns.Target
    y: NDArray[Any]
    rows: NDArray[np.int64]
    copies: NDArray[np.int64] | None = None

    def notes(self) -> list[str]:
        """The notes, the worst first, not too many."""
        ordered = (self.determined(), self.totals(), self.sentinels(True), self.far(), self.sentinels(False),
                   self.half_read())  # fmt: skip
        with np.errstate(all="ignore"):
            found = [note for kind in ordered for note in kind]
        if len(found) > _MOST_NOTES:
            found[_MOST_NOTES - 1 :] = [f"{len(found) - _MOST_NOTES + 1} more like these"]
        return [note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 1]}…" for note in found]

    @cached_property
    def inputs(self) -> Mapping[str, NDArray[np.float64]]:
        """Inputs that are numbers or dates, by name; NaN where missing."""
        read = (columns.Number, columns.Date)
        return {part.name: part.read(part.cells(self.table)) for part in self.schema.columns if isinstance(part, read)}

    @cached_property
    def numbers(self) -> Mapping[str, NDArray[np.float64]]:
        """Numbers alone, the target among them."""
        known = {part.name: self.inputs[part.name] for part in self.schema.columns if isinstance(part, columns.Number)}
        return known if self.target.classes else {self.target.name: self.y, **known}

    def row(self, place: int) -> int:
        """The number of a row, from 1, as the table was read."""
        return int(self.rows[place]) + 1

    def determined(self) -> Iterator[str]:
        """Inputs that give the target away."""
        name, first, n_classes, given = self.target.name, self.row(0), len(self.target.classes), set[str]()
        for said, found in self.given_away():
            given |= set(found)
            yield f"{said}, which need not be learnt: {_to_drop(*found)}"
        rows = (np.arange(len(self.y)) if self.copies is None else np.unique(self.copies))[:_ROWS_OF_LEVELS]
        for column in self.schema.names:
            if column in given or not looked_up(self.y[rows], self.table[column].take(pa.array(rows)), n_classes):
                continue
            value = self.table[column][0].as_py()
            if n_classes:
                shown = f"{value!r} is {self.target.classes[int(self.y[0])]!r}, as in row {first}"
                yield f"`{column}` names the classes of `{name}` ({shown}), which need not be learnt: {_to_drop(column)}"
            else:
                same = f"rows of the same `{column}` have the same `{name}` ({value!r}: {self.y[0]:.6g}, as in row {first})"
                yield f"{same}: {_to_drop(column)}, --group {_quoted(column)} to be judged by new ones"

    def given_away(self) -> Iterator[tuple[str, list[str]]]:
        """What gives the target away by its numbers, and which columns these are."""
        name, shown = self.target.name, f"{self.y[0]:.6g} in row {self.row(0)}"
        for column, values in self.inputs.items() if len(self.target.classes) == 2 else ():
            if (end := dividing_end(self.y, values)) is not None:
                yield f"`{column}` up to {end:.6g} is one class of `{name}` and above the other in nearly all rows", [column]
        formulas = [] if self.target.classes else determined_number(self.y, self.inputs)
        for formula, column in formulas:
            yield f"`{name}` is {formula} in nearly all rows ({shown})", [column]
        if not self.target.classes and not formulas and (found := nearly_determined(self.y, self.inputs)):
            names, share, how = found
            listed = ", ".join(f"`{column}`" for column in names)
            yield f"{np.floor(1e4 * share) / 1e4:.2%} of what varies in `{name}` is {how} of {listed} ({shown})", names

    def totals(self) -> Iterator[str]:
        """Rows that are the sum of others, by their numbers or by what they say."""
        cure = "it is no case like the others: delete it from the file"
        for place, said in self.named_totals.items():
            if place not in self.sums:
                yield f"row {self.row(place)} looks like a total: it says {said!r}, and its numbers are large; {cure}"
        for place, (names, count) in self.sums.items():
            shown = f"`{names[0]}` {self.numbers[names[0]][place]:.6g}"
            yield (f"row {self.row(place)} looks like a total: its numbers are the sums of the other rows' in {len(names)} "
                   f"of {count} columns ({shown}); {cure}")  # fmt: skip

    @cached_property
    def sums(self) -> Mapping[int, tuple[list[str], int]]:
        """Places of total rows, the columns that say so, and how many could; one alone must say so to the last digit."""
        said: dict[int, list[str]] = {}
        one_sign, exact = [], set()
        for name, values in self.numbers.items():
            known = np.nan_to_num(values)
            place = int(np.argmax(np.abs(known)))
            others = np.delete(known, place)
            total, n_numbers = float(others.sum()), int((others != 0).sum())
            if n_numbers < 5 or abs(total) < 0.99 * np.abs(others).sum():
                continue
            one_sign.append(name)
            error = abs(known[place] - total) / abs(total)
            if error <= 0.01:
                said.setdefault(place, []).append(name)
                exact |= {name} if error <= 1e-9 and n_numbers >= 10 else set()
        counted = {place: sum(not np.isnan(self.numbers[name][place]) for name in one_sign) for place in said}
        return {place: (names, counted[place]) for place, names in said.items()
                if 2 * len(names) >= counted[place] and (len(names) > 1 or names[0] in exact)}  # fmt: skip

    @cached_property
    def named_totals(self) -> Mapping[int, str]:
        """Places of few rows that say that they are a total and have large numbers, and what they say."""
        kinds, found = {part.name: part for part in self.schema.columns}, dict[int, str]()
        for name in self.table.column_names:
            values = self.table[name]
            is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            is_number = isinstance(kinds.get(name), columns.Number) and not kinds[name].words  # type: ignore[attr-defined]
            if not is_text or is_number or name == self.target.name:
                continue
            places = np.flatnonzero(pc.fill_null(pc.match_substring_regex(values, _TOTAL), False).to_numpy()).tolist()
            if 0 < len(places) <= max(1, len(self.rows) // 100):
                found |= {place: values[place].as_py() for place in places[:3] if self._is_large(place)}
        return found

    def _is_large(self, place: int) -> bool:
        """Whether a third of a row's numbers are larger than 95 % of the others'."""
        known = [values for values in self.numbers.values() if not np.isnan(values[place])]
        large = [np.abs(values[place]) > np.nanquantile(np.abs(values), 0.95) for values in known]
        return bool(known) and sum(large) >= len(known) / 3

    def half_read(self) -> Iterator[str]:
        """Columns of words, those among them that seem to name the rows, of which most are dates."""
        kinds = (columns.Category, columns.Text)
        words = [part.name for part in self.schema.columns if isinstance(part, kinds)]
        for column in words + [name for name, reason in self.schema.dropped if reason.startswith("it names the rows")]:
            bad = columns.not_dates(self.table[column])
            if bad is not None and bad.any():
                place = int(np.argmax(bad))
                value = str(self.table[column][place].as_py())[:_LONGEST_VALUE]
                yield (f"`{column}` is a date in most rows, but not {value!r} in row {self.row(place)}, and is taken for "
                       "words: correct such values, or take them as missing with --kinds "
                       f"{_quoted(column)}=date --errors missing")  # fmt: skip

    def sentinels(self, of_target: bool) -> Iterator[str]:
        """Numbers that stand for a missing value, in the target or in inputs."""
        for name, values in self.numbers.items():
            if of_target is not (name == self.target.name and not self.target.classes):
                continue
            for value, places, others in _sentinels(values):
                cure = "leave it empty there, and the rows are left out" if of_target else "leave such cells empty"
                apart = "and more than 0 in all others" if value < 0 < others.min() else "far from all others"
                yield (f"`{name}` is {value:g} in {len(places)} rows, row {self.row(places[0])} first, {apart} "
                       f"({others.min():.6g} to {others.max():.6g}): if it stands for a missing value, {cure}")  # fmt: skip

    def far(self) -> Iterator[str]:
        """Few targets far away from all others."""
        if self.target.classes:
            return
        coded = np.isin(self.y, [value for value, _, _ in _sentinels(self.y)])
        coded[[*self.sums, *self.named_totals]] = True
        y, places = self.y[~coded], np.flatnonzero(~coded)
        middle, scale = columns.median_and_scale(y)
        distance = np.abs(y - middle)
        order = np.argsort(distance)[::-1]
        ordered = distance[order[: max(3, len(y) // 200) + 1]]
        gaps = np.flatnonzero((ordered[:-1] > _FAR * scale / 1.349) & (ordered[:-1] > _APART * ordered[1:]))
        if len(gaps):
            n, place = int(gaps[-1]) + 1, int(places[order[0]])
            times = f"{abs(self.y[place] / middle):,.0f} times the median, {middle:.6g}" if middle else "the median is 0"
            more = f", and {n - 1} more rows are as far away" if n > 1 else ""
            shown = f"{self.y[place]:.6g} in row {self.row(place)} ({times}){more}"
            yield (f"`{self.target.name}` is {shown}: a slip, or another unit? correct it, or leave it empty to leave the "
                   "row out")  # fmt: skip


def _sentinels(values: NDArray[np.float64]) -> list[tuple[float, NDArray[np.int64], NDArray[np.float64]]]:
    """Least and largest numbers that are known for standing in, repeat, and are far from the others: with their places and
    the others."""
    known = values[~np.isnan(values)]
    ends = [end for end in {known.min(), known.max()} if end in _SENTINELS] if len(known) else []
    others = known[~np.isin(known, ends)]
    found = []
    for end in sorted(ends):
        places = np.flatnonzero(values == end)
        if len(places) < 2 or len(others) < len(places) or len(np.unique(others)) < 2:
            continue
        is_apart = end < 0 < others.min() and len(np.unique(others)) >= 10
        if is_apart or (end != -1 and max(others.min() - end, end - others.max()) > np.ptp(others)):
            found.append((float(end), places, others))
    return found


def _to_drop(*names: str) -> str:
    return f"--drop {','.join(map(_quoted, names))} if it is not known beforehand"


def _quoted(name: str) -> str:
    """A name as the command line takes it in a list."""
    return f'"{name}"' if " " in name or "," in name else name


def find_copies(
    table: pa.Table, schema: columns.Schema, rows: NDArray[np.int64], target: str, time: str | None
) -> tuple[Groups | None, list[str]]:
    """For each row the first of those that equal it in all inputs, or in all but what identifies a row and its time; None
    where there are no copies. And a note on how many there are.

    Arguments:
        table: the rows; values are compared as they are written.
        schema: which columns are inputs.
        rows: the number of each row in the table as it was read, from 0.
        target: the column to predict.
        time: the column by which rows come one after the other; None where there is none.

    Example:
        >>> table = pa.table({"id": range(4), "x": [1.5, 2.5, 1.5, 4.5], "y": [1, 2, 3, 4]})
        >>> schema = columns.infer_schema(table, "y", kinds={"id": "number"})
        >>> groups, (note,) = find_copies(table, schema, np.arange(4), "y", time=None)
        >>> groups.tolist(), note.partition(":")[0]
        ([0, 1, 0, 3], '2 rows equal another in all inputs but `id`, as rows 1 and 3 do')
    """
    apart = tuple(name for name in schema.names if name == time or columns.identifies_rows(name, table[name]))
    alike = np.zeros(table.num_rows, np.int64)
    # Numbers that nearly all differ may number rows too, and dates be times: rows are copies but for them where targets
    # are equal as well.
    different = {name for name in schema.names if name not in apart and columns.nearly_all_differ(table[name])}
    dates = {column.name for column in schema.columns if isinstance(column, columns.Date)} - {*apart}
    for others in ({*different, *dates}, different):
        near = _equal_rows([table[name] for name in schema.names if name not in (*apart, *others)], alike)
        is_shared = _is_shared(near)
        still = _is_shared(_equal_rows([table[target]], near))[is_shared]
        if others and _are_copies(near) and still.mean() > _COPIED:
            apart += tuple(sorted(others))
            break
    near = _equal_rows([table[name] for name in schema.names if name not in apart], alike)
    exact = _equal_rows([table[name] for name in apart], near)
    groups = near if _are_copies(near) else exact
    if not _are_copies(groups):
        return None, []
    equal, parts = _is_shared(exact), []
    all_but = f"inputs but {', '.join(f'`{name}`' for name in apart[:3])}"
    for chosen, leaders, what in ((equal, exact, "inputs"), (_is_shared(groups) & ~equal, groups, all_but)):
        if chosen.any():
            pair = rows[np.flatnonzero(leaders == leaders[np.argmax(chosen)])[:2]] + 1
            parts.append(f"{chosen.sum()} rows equal another in all {what}, as rows {pair[0]} and {pair[1]} do")
    held = "they are held out together; " if time is None else ""
    return groups, ["; ".join(parts) + f": {held}if they are there by mistake, delete the copies"]


def _equal_rows(values: Iterable[pa.ChunkedArray], leaders: Groups) -> Groups:
    """The first row that each row equals in these columns, of those that it equals already.

    Rows that equal no other any more are not looked at again, so that a few columns decide about most rows.
    """
    rows, found = np.arange(len(leaders)), leaders.copy()
    for column in values:
        codes = column.take(pa.array(rows)).combine_chunks().dictionary_encode("encode")
        keys = found[rows] * (len(codes.dictionary) + 1) + codes.indices.to_numpy(zero_copy_only=False)
        _, first, place, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        found[rows] = rows[first[place]]
        rows = rows[counts[place] > 1]
        if not len(rows):
            break
    return found


def _are_copies(leaders: Groups) -> bool:
    """Whether some rows have the same leader, and not so many that this is how the table is."""
    different = int((leaders == np.arange(len(leaders))).sum())
    return LEAST_DIFFERENT * len(leaders) <= different < len(leaders)


def _is_shared(leaders: Groups) -> NDArray[np.bool_]:
    return np.bincount(leaders, minlength=len(leaders))[leaders] > 1

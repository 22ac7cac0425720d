"""The column to predict, numbers or classes; and columns that say something of rows: weights, groups, times."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles._checks import require
from deep_ensembles.columns._column import Errors, TableError, TakenAsMissing, UnreadableValue, fields_from
from deep_ensembles.columns._parsing import are_codes, is_date, is_number, is_text, levels_of, nulls, plain, text
from deep_ensembles.columns.boolean import Boolean
from deep_ensembles.columns.category import Category
from deep_ensembles.columns.date import Date, date, draft_date
from deep_ensembles.columns.number import READABLE, Number, draft_number, number

TASKS = REGRESSION, CLASSIFICATION = ("regression", "classification")
FEW_CLASSES = 20
ROWS_PER_CLASS = 10
_MOST_CLASSES = 1000

Label = str | bool | int


@dataclass(frozen=True)
class Target:
    """The column to predict, as training saw it.

    Arguments:
        name: of the column.
        task: `regression` or `classification`.
        classes: of a classification, in the order of their codes.
        decimal: the decimal mark of numbers in text.
        reason: why it is this task.
        notes: what else is worth saying.
        low, high: the least and the largest number.
        whole: whether all numbers are whole.
        skewness: of the numbers, more than 0 where large ones lie far away.
        zeros: the share of numbers that are 0.
        unit: of numbers in text, as in 450 kg; predictions are in it.
        gaps: words for missing values.

    Example:
        >>> target, codes, kept = infer_target("pet", pa.array(["cat", "dog", None, "dog"]))
        >>> target.classes, codes.tolist(), kept.tolist()
        (('cat', 'dog'), [0, 1, 1], [True, True, False, True])
    """

    name: str
    task: str
    classes: tuple[Label, ...] = ()
    decimal: str = "."
    reason: str = ""
    notes: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    skewness: float = 0.0
    zeros: float = 0.0
    unit: str = ""
    gaps: tuple[str, ...] = ()

    def read(self, values: pa.Array | pa.ChunkedArray, first_row: int = 1, errors: Errors = "refuse") -> NDArray[np.float64]:
        """Numbers, or codes of classes, NaN where missing; a class that training did not see cannot be read.

        Arguments:
            values: of the column.
            first_row: the number of the first value in messages.
            errors: `refuse` values that cannot be read, or take them as `missing`; see `TakenAsMissing`.
        """
        if self.task == REGRESSION:
            return self._numbers().read(values, errors, first_row)
        if isinstance(self.classes[0], bool):
            return Boolean(self.name, ()).read(values, errors, first_row)
        names = tuple(str(label) for label in self.classes)
        if isinstance(self.classes[0], int):
            read = self._numbers().read(values, errors, first_row)
            values = pa.array(read, mask=np.isnan(read))
        elif pa.types.is_boolean(values.type):  # which as text are written small
            names = tuple(name.lower() for name in names)
        return _Classes(self.name, names).read(values, errors, first_row)

    def unread(self, values: pa.Array, read: NDArray[np.float64]) -> list[str]:
        """The values that are there, but are no class that training saw; `read` is what they were read as."""
        return list(text(values, self.gaps).filter(pa.array(np.isnan(read))).drop_null().to_pylist())

    @property
    def label(self) -> str:
        """Its name and unit, as in price in USD."""
        return self.name + f" in {self.unit}" * bool(self.unit)

    def _numbers(self) -> Number:
        return Number(self.name, decimal=self.decimal, unit=self.unit, gaps=self.gaps)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, from which `from_data` makes an equal target."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Target":
        """The target that `data` described."""
        return cls(**fields_from(data))


class _Classes(Category):
    """The classes of a target, all of which training saw."""

    readable = "class that training saw"

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        codes = super().parse(values)[0]
        unseen = codes == len(self.levels)
        return np.where(unseen, np.nan, codes), unseen


def infer_target(
    name: str, values: pa.Array | pa.ChunkedArray, task: str | None = None, decimal: str = ".", errors: str = "refuse"
) -> tuple[Target, NDArray[np.float64] | NDArray[np.int64], NDArray[np.bool_]]:
    """Infer whether a column holds numbers or classes.

    Text and booleans are classes, and so are two different whole numbers, or up to 20 with 10 rows each on average; other
    numbers are numbers.

    Arguments:
        name: of the column.
        values: of training.
        task: `regression` or `classification`, where it is known.
        decimal: the decimal mark of numbers in text where they do not tell, as in 1,234.
        errors: `refuse` values that are no numbers where others are, or take them as `missing`.

    Returns:
        The target; the numbers, or codes of classes, of rows that have one; and which rows these are.
    """
    require(task in (None, *TASKS), "task", f"None, {REGRESSION!r} or {CLASSIFICATION!r}", task)
    values = plain(values)
    if len(values) == 0:
        raise TableError(f"the table has no rows, so that there is no `{name}` to learn")
    numbers, read, error = _as_numbers(name, values, decimal)
    notes: tuple[str, ...] = ()
    if numbers.unit and not error:
        notes = (f"`{name}` is{numbers.unit_in_words}, as predictions are",)
    if numbers.decimal == "," and not error:
        notes += (f"`{name}` is read with a decimal comma: 1,234 is 1.234",)
    if numbers.gaps:
        values = text(values, numbers.gaps)
    if error and errors == "missing" and (task == REGRESSION or (task is None and _mostly_numbers(values, read))):
        notes += (error.note(),)
        values, error = pa.array(read, mask=np.isnan(read)), None
    if error and (task == REGRESSION or not is_text(values.type)):
        raise error
    reason = f"{task}, as asked"
    if task is None:
        task, reason = _task_of(name, values, read, error)
    classes = () if task == REGRESSION else _classes(name, values, read)
    target = Target(name, task, classes, numbers.decimal, reason, unit=numbers.unit, gaps=numbers.gaps)
    y = target.read(values) if classes else read
    kept = ~np.isnan(y)
    if classes:
        codes = y[kept].astype(np.int64)
        return replace(target, notes=(*notes, *_left_out(kept), *_single_row_classes(target, codes))), codes, kept
    return replace(target, notes=(*notes, *_left_out(kept)), **_possible_values(name, y[kept])), y[kept], kept


def _as_numbers(name: str, values: pa.Array, decimal: str) -> tuple[Number, NDArray[np.float64], UnreadableValue | None]:
    """How numbers are read, if nearly all values are some; these; and the error that names the first that is none."""
    if is_date(values.type):
        raise TableError(f"`{name}` holds dates; a target must be numbers or classes")
    if not (is_text(values.type) or is_number(values.type) or pa.types.is_boolean(values.type)):
        raise TableError(f"`{name}` holds values of type {values.type}, which cannot be predicted")
    column, unreadable = Number(name), TakenAsMissing()
    if is_text(values.type):
        draft = draft_number(name, *levels_of(text(values)), decimal, clocks=True)
        if draft.others and not draft.is_number:
            units = ", ".join((draft.column.unit, *draft.others))
            raise TableError(f"`{name}` is in several units ({units}), which do not convert; make it one unit")
        column = draft.column if draft.is_number else replace(column, decimal=draft.column.decimal)
    return column, column.read(values, unreadable), unreadable.found.get(name)


def _mostly_numbers(values: pa.Array, read: NDArray[np.float64]) -> bool:
    return bool(np.isnan(read[~nulls(text(values))]).mean() <= 1 - READABLE)


def _task_of(name: str, values: pa.Array, read: NDArray[np.float64], error: UnreadableValue | None) -> tuple[str, str]:
    if pa.types.is_boolean(values.type):
        return CLASSIFICATION, f"`{name}` is true or false: classification"
    texts = text(values) if is_text(values.type) else None
    if texts is not None and (error or are_codes(texts)):
        different = texts.drop_null().unique()
        if error and _mostly_numbers(values, read):
            more = f" (one of {error.count} such values)" * (error.count > 1)
            raise TableError(f"`{name}` is a number in nearly all rows, but {error.value!r} in row {error.row}{more}; "
                             "correct it, leave it empty, take such values as missing with --errors missing, or say that "
                             "the task is classification")  # fmt: skip
        if draft_date(different, np.ones(len(different), int), READABLE):
            raise TableError(f"`{name}` holds dates; a target must be numbers or classes")
        return CLASSIFICATION, f"`{name}` is text with {len(different)} different values: classification"
    known = read[~np.isnan(read)]
    distinct, whole = len(np.unique(known)), (known == np.floor(known)).all()
    if whole and (distinct <= 2 or (distinct <= FEW_CLASSES and len(known) >= ROWS_PER_CLASS * distinct)):
        return CLASSIFICATION, f"`{name}` has only {distinct} different whole numbers: classification"
    return REGRESSION, f"`{name}` is a number with {distinct} different values: regression"


def _possible_values(name: str, known: NDArray[np.float64]) -> dict[str, Any]:
    """What is known of numbers, which must differ."""
    if not len(known):
        raise TableError(f"`{name}` has no numbers, so that there is nothing to learn")
    if known.min() == known.max():
        raise TableError(f"`{name}` is {known[0]:g} in every row, so that there is nothing to learn")
    ends = {"low": float(known.min()), "high": float(known.max()), "whole": bool((known == np.floor(known)).all())}
    return {**ends, "skewness": skewness(known), "zeros": float((known == 0).mean())}


def skewness(values: NDArray[np.float64]) -> float:
    r"""The mean of $z^3$, with $z = (x - \mu)/\sigma$; 0 where all values are the same.

    Example:
        >>> round(skewness(np.array([0.0, 0.0, 0.0, 1.0])), 3)
        1.155
    """
    apart = values / (np.abs(values).max() or 1.0)  # cubes must neither under- nor overflow
    apart = apart - apart.mean()
    deviation = apart.std()
    return float(np.mean((apart / deviation) ** 3)) if deviation > 0 else 0.0


def _classes(name: str, values: pa.Array, read: NDArray[np.float64]) -> tuple[Label, ...]:
    texts, known = text(values), np.unique(read[~np.isnan(read)])
    all_numbers = not np.isnan(read[~nulls(texts)]).any() and not are_codes(texts)
    # Classes that are numbers sort as numbers: 2.5 before 10.5.
    order = dict(zip(texts.to_pylist(), read.tolist(), strict=True)) if all_numbers else {}
    classes: tuple[Label, ...] = tuple(
        sorted(texts.drop_null().unique().to_pylist(), key=lambda label: (order.get(label), label))
    )
    if pa.types.is_boolean(values.type):
        classes = tuple(name == "true" for name in classes)
    elif len(known) and all_numbers and (known == np.floor(known)).all() and np.abs(known).max() < 2**53:
        classes = tuple(map(int, known))
    if len(classes) < 2:
        found = f"every row has the same, {classes[0]!r}" if classes else "no row has a value"
        raise TableError(f"`{name}` needs at least two classes, but {found}")
    return classes


def _single_row_classes(target: Target, codes: NDArray[np.int64]) -> tuple[str, ...]:
    """A note on classes of one row; far too many classes are refused."""
    name, n_classes = target.name, len(target.classes)
    if n_classes > _MOST_CLASSES or n_classes > max(FEW_CLASSES, len(codes) / 2):
        raise TableError(f"`{name}` has {n_classes} classes in {len(codes)} rows; is it the column to predict?")
    single = [str(target.classes[code]) for code in np.flatnonzero(np.bincount(codes, minlength=n_classes) == 1)]
    return (f"only one row of `{name}` is {', '.join(single[:5])}{', …' * (len(single) > 5)}",) if single else ()


def _left_out(kept: NDArray[np.bool_]) -> tuple[str, ...]:
    n = int((~kept).sum())
    return (f"{n} row{'s' * (n != 1)} without a target {'are' if n != 1 else 'is'} left out",) if n else ()


def read_weights(
    name: str, values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Weights of rows: numbers ≥ 0, none missing, not all 0.

    Arguments:
        rows: the numbers of those that count, from 0; all by default.

    Example:
        >>> read_weights("w", pa.array(["1", "0.5"])).tolist()
        [1.0, 0.5]
    """
    weights, rows = _complete(name, "weight", number, values, rows)
    if (weights < 0).any():
        place = int(np.argmax(weights < 0))
        raise TableError(f"weights must be ≥ 0, but `{name}` is {weights[place]:g} in row {rows[place] + 1}")
    if not weights.any():
        raise TableError(f"weights must not all be 0, but those of `{name}` are")
    return weights


def read_groups(name: str, values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Codes of groups from 0 in the order of their first rows; rows without a group are one together.

    Example:
        >>> read_groups("house", pa.array(["b", "a", None, "b"])).tolist()
        [0, 1, 2, 0]
    """
    codes = text(values).dictionary_encode("encode")
    if len(codes.dictionary) < 2:
        raise TableError(f"groups must be at least two, but `{name}` has {len(codes.dictionary)}")
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def read_times(name: str, values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Numbers, or dates in seconds since 1970, by which rows can be put in order; none missing.

    Arguments:
        rows: the numbers of those that count, from 0; all by default.

    Example:
        >>> read_times("day", pa.array(["1970-01-02", "1970-01-01"])).tolist()
        [86400.0, 0.0]
    """
    return _complete(name, "time", _date_or_number, values, rows)[0]


def _date_or_number(name: str, values: pa.Array) -> Date | Number:
    dated = is_date(values.type) or (is_text(values.type) and not draft_number(name, *levels_of(text(values))).is_number)
    return date(name, values) if dated else number(name, values)


def _complete(
    name: str, what: str, fit: Any, values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What a column says of some rows, none of them missing, and these rows.

    Values of other rows are taken as missing, so that messages count the rows of the whole table.
    """
    whole = plain(values)
    rows = np.arange(len(whole)) if rows is None else rows
    known = pc.if_else(pa.array(np.isin(np.arange(len(whole)), rows)), whole, pa.scalar(None, whole.type))
    read = fit(name, known).read(known)[rows]
    if np.isnan(read).any():
        row = rows[int(np.argmax(np.isnan(read)))] + 1
        raise TableError(f"every row needs a {what}, but `{name}` is missing in row {row}")
    return read, rows

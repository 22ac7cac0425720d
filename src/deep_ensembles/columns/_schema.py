"""Which kind each column of a table is, and the schema that turns rows into inputs of a network; loaded with checks."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, combinations, pairwise
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles._checks import require
from deep_ensembles._terminal import Listing
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, Errors, TableError, check_known, fields_from, is_missing
from deep_ensembles.columns.boolean import Boolean, are_booleans, boolean
from deep_ensembles.columns.category import MOST_LEVELS, Category, category
from deep_ensembles.columns.date import CLOCKS, PATTERNS, Date, Difference, date, difference, draft_date
from deep_ensembles.columns.number import READABLE, Number, dots_are_groups, draft_number, number
from deep_ensembles.columns.text import Text, text

_KINDS = (Boolean, Category, Date, Difference, Number, Text)
KINDS: dict[str, Callable[..., Column]] = {kind.__name__.lower(): kind for kind in _KINDS}
FITS: dict[str, Callable[..., Column]] = {fit.__name__: fit for fit in (boolean, category, date, number, text)}
DROP = "drop"
_IDENTIFIER = re.compile(
    r"(?i)(^|[_ .-])(ids?|idx|index|key|uuid|guid|no|nr|number|row|rownames|row_?number|unnamed: ?\d+)$|^column_\d+$"
    r"|^(obs|observation|record|case|sample|serial|sr|s)([_ .]*(no|nr|num|number|id))?\.?$|^#$|(?-i:[a-z](Id|ID))$"
)
_NAMES_THINGS = re.compile(r"(?i)(^|[_ .-])(id|uuid|guid)$|[a-z](?-i:Id|ID)$")
_CODE = re.compile(r"(?i)(^|[_ .-])(zip|(zip|post|postal)_?code|plz|phone|telephone|tel|mobile|fax|iban|isbn|ean|ssn)$")
_FRAME_INDEX = re.compile(r"__index_level_\d+__")
_FEW_ROWS, _MOST_DATES = 10, 8
_MANY_LEVELS = 1000
_MOST_SHOWN = 50
_EXAMPLES = 3
_FORMER = ("infinite",)  # fields that model files of earlier versions have
# What a field of a column may be, by its annotation; a tuple holds values of one type.
_FIELDS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: lambda value: type(value) is int and 0 <= value < 2**53,
    float: lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
}


@dataclass(frozen=True)
class Schema:
    """Columns that become inputs, those that do not, and why.

    Arguments:
        columns: in the order of the inputs.
        dropped: names of columns that were left out, each with the reason.

    Example:
        >>> schema = infer_schema(pa.table({"size": [1.0, 2.0, 4.0], "unit": ["m", "m", "m"]}))
        >>> schema.input_names, schema.dropped
        (('size',), (('unit', "all its values are 'm'"),))
        >>> schema.encode(pa.table({"size": ["2", ""]})).tolist()
        [[0.0], [0.0]]
    """

    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(dict.fromkeys(source for column in self.columns for source in column.sources))

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each column, be several made of one column of a table."""
        return tuple(column.name for column in self.columns)

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return tuple(name for column in self.columns for name in column.input_names)

    @property
    def places(self) -> list[range]:
        """The places of the inputs of each column."""
        return [range(*ends) for ends in pairwise([0, *accumulate(column.width for column in self.columns)])]

    @property
    def levels(self) -> dict[int, int]:
        """The places of inputs that are numbers of categories, and how many levels each has, 0 among them."""
        pairs = zip(self.places, self.columns, strict=True)
        return {place[0]: len(column.levels) + 1 for place, column in pairs if isinstance(column, Category) and column.coded}

    def extra(self, names: Iterable[str]) -> list[str]:
        """Those names that are of no use to the model: neither its columns nor ones that it dropped."""
        known = {*self.names, *(name for name, _ in self.dropped)}
        return [name for name in names if name not in known]

    def check(self, names: Iterable[str]) -> None:
        """Raise unless all columns are among the names."""
        given = set(names)
        if lacking := [name for name in self.names if name not in given]:
            more = f" and {len(lacking) - 20} more" if lacking[20:] else ""
            shown = f"{'s' * (len(lacking) > 1)} {', '.join(f'`{name}`' for name in lacking[:20])}{more}"
            raise TableError(f"the table lacks the column{shown}, which the model was trained with")

    def encode(self, rows: pa.RecordBatch | pa.Table, errors: Errors = "refuse", first_row: int = 1) -> NDArray[np.float32]:
        """Inputs of rows; columns are found by name, in any order, and others are ignored.

        Arguments:
            rows: a record batch or a table.
            errors: `refuse` values that cannot be read, or take them as `missing`; see `TakenAsMissing`.
            first_row: the number of the first row in messages.

        Shape:
            `[row, input]`
        """
        return self.encode_with_unseen(rows, errors, first_row)[0]

    def encode_with_unseen(
        self, rows: pa.RecordBatch | pa.Table, errors: Errors = "refuse", first_row: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Inputs of rows, and which values training did not see; arguments as for `encode`.

        Shape:
            `[row, input]` and `[row, column]`
        """
        self.check(rows.schema.names)
        inputs = np.empty((rows.num_rows, sum(column.width for column in self.columns)), np.float32)
        unseen = np.empty((rows.num_rows, len(self.columns)), bool)
        for index, (column, places) in enumerate(zip(self.columns, self.places, strict=True)):
            read = column.read(column.cells(rows), errors, first_row)
            inputs[:, places.start : places.stop] = column.inputs(read)
            unseen[:, index] = column.unseen(read)
        return inputs, unseen

    def examples(self, rows: pa.RecordBatch | pa.Table, column: Column, chosen: NDArray[np.bool_]) -> dict[str, None]:
        """A few different values of a column in the chosen rows, as text."""
        picked = column.cells(rows).filter(pa.array(chosen)).slice(0, 1000)
        cells = zip(picked.to_pylist(), is_missing(column.read(picked, "missing")), strict=True)
        texts = ("missing" if gap else " to ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
                 for value, gap in cells)  # fmt: skip
        return dict.fromkeys(list(dict.fromkeys(texts))[:_EXAMPLES])

    def listing(self) -> Listing:
        """Each column with what it is taken for, to print."""
        kept = _shown([[column.name, column.summary()] for column in self.columns])
        left_out = _shown([[name, f"left out: {reason}"] for name, reason in self.dropped])
        note = f"{len(self.columns)} columns make {len(self.input_names)} inputs"
        note += f"; left out: {len(self.dropped)}" if self.dropped else ""
        return Listing("Columns", ["column", "understood as"], kept + left_out, note, words=["understood as"])

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, from which `from_data` makes an equal schema."""
        return {"columns": list(map(column_data, self.columns)), "dropped": list(map(list, self.dropped))}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Schema":
        """The schema that `data` described."""
        dropped = tuple((name, reason) for name, reason in data["dropped"])
        return cls(tuple(map(column_from, data["columns"])), dropped)


def _shown(lines: list[list[str]]) -> list[list[str]]:
    return [*lines[:_MOST_SHOWN], ["…", f"{len(lines) - _MOST_SHOWN} more"]] if len(lines) > _MOST_SHOWN + 1 else lines


def infer_schema(table: pa.Table, target: str | None = None, *, drop: Sequence[str] = (),
                 kinds: Mapping[str, str] | None = None, decimal: str = ".", errors: str | None = None,
                 coded: bool = False) -> Schema:  # fmt: skip
    """Infer what the columns of a table are from their values.

    Arguments:
        table: the training rows.
        target: a column that is not an input.
        drop: more columns that are none.
        kinds: for columns whose kind is known: `number`, `category`, `boolean`, `date`, `text` or `drop`.
        decimal: the decimal mark of numbers in text where their column does not tell, as in 1,234.
        errors: `missing` to take values that cannot be read as missing; by default only where they are few.
        coded: whether categories of many levels become numbers, for networks that learn a vector for each level.

    Example:
        >>> print(infer_schema(pa.table({"age": ["7", "9"], "pet": ["cat", "dog"]}), "pet").columns[0].summary())
        number, 7 to 9
    """
    kinds = kinds or {}
    check_known("the table", [*([] if target is None else [target]), *drop, *kinds], table.column_names)
    for name, kind in kinds.items():
        require(kind in (*FITS, DROP), f"kinds[{name!r}]", f"one of {', '.join((*sorted(FITS), DROP))}", kind)
    names = [name for name in table.column_names if name != target]

    options: dict[str, dict[str, Any]] = {
        "boolean": {"errors": errors}, "category": {"coded": coded}, "date": {"errors": errors},
        "number": {"decimal": decimal, "errors": errors}, "text": {},
    }  # fmt: skip

    def fit_or_reason(name: str) -> Column | str:
        if name in drop:
            return "as asked"
        values = parsing.plain(table[name])
        kind, reason, values = (kinds[name], "as asked", values) if name in kinds else _infer_kind(name, values, decimal)
        return reason if kind == DROP else FITS[kind](name, values, **options[kind])

    with ThreadPoolExecutor() as pool:
        results = dict(zip(names, pool.map(fit_or_reason, names), strict=True))
    columns = tuple(column for column in results.values() if not isinstance(column, str))
    dates = [column for column in columns if isinstance(column, Date) and column.pattern not in CLOCKS][:_MOST_DATES]
    pairs = (difference(first, second, table) for first, second in combinations(dates, 2))
    columns += tuple(column for column in pairs if column is not None and column.name not in results)
    dropped = tuple((name, reason) for name, reason in results.items() if isinstance(reason, str))
    if not columns:
        reasons = "; ".join(f"`{name}`: {reason}" for name, reason in dropped[:5])
        raise TableError(f"no column is left to learn from ({reasons or 'the table has no other'})")
    return Schema(columns, dropped)


def kind_of(name: str, values: pa.Array | pa.ChunkedArray, decimal: str = ".") -> tuple[str, str]:
    """The kind of a column, or `drop`, and why.

    Arguments:
        name: of the column; a column of different whole numbers that is called an id is dropped.
        values: of training.
        decimal: the decimal mark where the text does not tell, as in 1,234.

    Example:
        >>> kind_of("x", pa.array(["1", "2.5"])), kind_of("x", pa.array([7, 7]))
        (('number', ''), ('drop', 'all its values are 7'))
    """
    return _infer_kind(name, parsing.plain(values), decimal)[:2]


def _infer_kind(name: str, values: pa.Array, decimal: str) -> tuple[str, str, pa.Array]:
    """As `kind_of`, and the values: as numbers where all of them are, so that text is parsed once."""
    kind = values.type
    if _FRAME_INDEX.fullmatch(name):
        return DROP, "it is the index of a data frame", values
    if values.null_count == len(values):
        return DROP, "it has no values", values
    if parsing.is_number(kind) and not _CODE.search(name):
        return *_kind_of_numbers(name, parsing.floats(values)), values
    if parsing.is_text(kind):
        quick = None if dots_are_groups(values, decimal) else parsing.plain_numbers(values)
        if quick is not None and not _are_codes(name, values) and not np.isin(quick[~np.isnan(quick)], (0, 1)).all():
            return *_kind_of_numbers(name, quick), values if np.isnan(quick).any() else pa.array(quick)
    if parsing.is_text(kind) or parsing.is_number(kind):
        return *_kind_of_text(name, parsing.text(values), decimal), values
    if not (pa.types.is_boolean(kind) or parsing.is_date(kind)):
        return DROP, f"values of type {kind} cannot be inputs", values
    if not values.null_count and len(values.unique()) == 1:
        return DROP, f"all its values are {values[0].as_py()}", values
    return ("date" if parsing.is_date(kind) else "boolean"), "", values


def identifies_rows(name: str, values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column, be it an input, only tells rows apart: it counts them, or is called an id and most values differ.

    Example:
        >>> [identifies_rows(*column) for column in (("key", pa.array(["a", "b", "b"])), ("n", pa.array([3, 1, 2])))]
        [True, True]
    """
    values = parsing.plain(values)
    for part in (values.slice(0, 100), values):  # a few values tell of most columns
        read = parsing.plain_numbers(part)
        if read is not None and not (read == np.floor(read)).all():
            return False
    if read is not None and np.ptp(read) == len(read) - 1 and len(np.unique(read)) == len(read):
        return True
    return bool(_IDENTIFIER.search(name)) and 2 * len(values.unique()) > len(values)


def nearly_all_differ(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column holds whole numbers of which nearly all differ, as those that number rows; there may be gaps."""
    read = parsing.plain_numbers(parsing.plain(values))
    known = np.empty(0) if read is None else read[np.isfinite(read)]
    n, is_whole = len(known), bool((known == np.floor(known)).all())
    return n > len(values) / 2 and is_whole and len(np.unique(known)) > 0.95 * n


def _kind_of_numbers(name: str, read: NDArray[np.float64]) -> tuple[str, str]:
    known = read[np.isfinite(read)]
    if not len(known):
        return DROP, "it has no values"
    if known.min() == known.max() and len(known) == len(read):
        return DROP, f"all its values are {known[0]:g}"
    whole, n_different = bool((known == np.floor(known)).all()), len(np.unique(known))
    if whole and _IDENTIFIER.search(name) and n_different == len(read) >= _FEW_ROWS:
        return DROP, "it numbers the rows: all its values are different"
    if whole and _NAMES_THINGS.search(name) and 5 * n_different <= len(known):
        return "category", ""
    return ("date" if whole and _are_days(known) else "number"), ""


def _are_days(known: NDArray[np.float64]) -> bool:
    """Whether whole numbers are days such as 20201115: at least three different ones, of 1900 to 2100."""
    month, day = known // 100 % 100, known % 100
    inside = (known > 19000000) & (known < 21010000) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(inside.all()) and len(np.unique(known)) >= 3


def _kind_of_text(name: str, values: pa.Array, decimal: str) -> tuple[str, str]:
    """Goes by the different trimmed texts, which are often few, and how many rows each has."""
    levels, counts = parsing.levels_of(values)
    missing = counts.sum() < len(values)
    if not len(levels):
        return DROP, "it has no values"
    _, read, is_number, _ = draft_number(name, levels, counts, decimal)
    if is_number and not _are_codes(name, levels):
        if len(levels) == 2 and are_booleans(levels.to_pylist()):
            return "boolean", ""
        once = bool((counts == 1).all()) and not missing
        return _kind_of_numbers(name, read if once else np.append(np.repeat(read, 2), np.nan if missing else read[:0]))
    if len(levels) == 1:
        return ("category", "") if missing else (DROP, f"all its values are {levels[0].as_py()!r}")
    if len(levels) <= 4 and are_booleans(levels.to_pylist()):
        return "boolean", ""
    return ("date", "") if draft_date(levels, counts, READABLE) else _kind_of_words(levels, int(counts.sum()))


def _are_codes(name: str, texts: pa.Array) -> bool:
    return bool(_CODE.search(name)) or parsing.are_codes(texts)


def _kind_of_words(levels: pa.Array, rows: int) -> tuple[str, str]:
    wordy = parsing.flags(pc.match_substring_regex(levels, r"\pL\pM*[\pP]*\s+[\pP]*\pL")).mean() > 0.5
    nearly_all_differ = rows >= _FEW_ROWS and len(levels) >= 0.9 * rows
    if nearly_all_differ and not wordy:
        return DROP, "it names the rows: nearly all its values are different"
    most = max(MOST_LEVELS, min(rows / 10, _MANY_LEVELS)) if wordy else max(_MANY_LEVELS, rows / 5)
    if nearly_all_differ or len(levels) > most:
        return "text", ""
    return "category", ""


def column_data(column: Column) -> dict[str, Any]:
    """A column as plain data for JSON, from which `column_from` makes an equal one.

    Example:
        >>> column_data(Boolean("paid", (False, True)))
        {'kind': 'boolean', 'name': 'paid', 'missing': 0, 'marked': False, 'seen': (False, True)}
    """
    return {"kind": type(column).__name__.lower(), **asdict(column)}


def column_from(data: Mapping[str, Any]) -> Column:
    """The column that `column_data` described; unknown kinds are an error."""
    kind = data.get("kind")
    if kind not in KINDS:
        raise ValueError(f"the model file names a column of kind {kind!r}, which this version does not know")
    return KINDS[kind](**fields_from({name: value for name, value in data.items() if name not in ("kind", *_FORMER)}))


def _fits(value: Any, annotation: Any) -> bool:
    if get_origin(annotation) is not tuple:
        return _FIELDS[annotation](value)
    item = get_args(annotation)[0]
    kinds = get_args(item) or (item,)
    return isinstance(value, tuple) and any(all(type(part) is kind for part in value) for kind in kinds)


def check_fields(described: Any) -> None:
    """Raise unless the fields of a column or target are what their annotations say."""
    annotations = get_type_hints(type(described))
    for field in fields(described):
        value, annotation = getattr(described, field.name), annotations[field.name]
        require(_fits(value, annotation), field.name, f"{annotation}", value)


def stored_schema(data: Mapping[str, Any], n_inputs: int) -> Schema:
    """The schema that a file describes (see `Schema.data`), if it is usable and makes so many inputs."""
    schema = Schema.from_data(data)
    require(len(set(schema.labels)) == len(schema.columns), "columns", "of different names", schema.labels)
    for column in schema.columns:
        check_fields(column)
        possible = {"decimal": (".", ","), "pattern": PATTERNS, "end_pattern": PATTERNS}
        for name, values in possible.items():
            value = getattr(column, name, None)
            require(value is None or value in values, name, "one that training gives", value)
        require(getattr(column, "scale", 1) > 0, "scale", "more than 0", column)
        column.summary()
    width = sum(column.width for column in schema.columns)
    require(width == n_inputs, "columns", f"of {n_inputs} inputs", width)
    # Whatever else does not fit shows when a row is read.
    schema.encode(pa.table({name: pa.array([None], pa.string()) for name in schema.names}), "missing")
    return schema

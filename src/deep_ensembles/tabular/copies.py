"""Rows that have the same inputs as another, or the same but for what tells rows apart: found, counted, kept together."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles import columns
from deep_ensembles._arrow import pa

# Where rows share their inputs with many others, as of a few categories, they are no copies: as in `Task.together`.
_LEAST_DIFFERENT = 0.25

Groups = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Copies:
    """Rows of a table that equal another in their inputs.

    Arguments:
        groups: for each row, the first of those that it is kept together with: rows that equal it in all inputs but `apart`.
        exact: the first of those that equal it in all inputs.
        apart: columns that tell rows apart and may differ: what identifies a row, and its time.
    """

    groups: Groups
    exact: Groups
    apart: tuple[str, ...] = ()

    def note(self, rows: NDArray[np.int64]) -> str:
        """How many rows are copies, for people.

        Arguments:
            rows: the number of each row in the table as it was read, from 0.
        """
        equal, parts = _is_shared(self.exact), []
        all_but = f"inputs but {', '.join(f'`{name}`' for name in self.apart[:3])}"
        kinds = (equal, self.exact, "inputs"), (_is_shared(self.groups) & ~equal, self.groups, all_but)
        for chosen, leaders, what in kinds:
            if chosen.any():
                pair = rows[np.flatnonzero(leaders == leaders[np.argmax(chosen)])[:2]] + 1
                parts.append(f"{chosen.sum()} rows equal another in all {what}, as rows {pair[0]} and {pair[1]} do")
        return "; ".join(parts) + ": they are held out together; if they are there by mistake, delete the copies"


def find_copies(table: pa.Table, schema: columns.Schema, time: str | None = None) -> Copies | None:
    """Rows that equal another in all inputs, or in all but what identifies a row and its time; None where there are none.

    Arguments:
        table: the rows; values are compared as they are written.
        schema: which columns are inputs.
        time: the column by which rows come one after the other.

    Example:
        >>> table = pa.table({"id": range(4), "x": [1.5, 2.5, 1.5, 4.5], "y": [1, 2, 3, 4]})
        >>> schema = columns.infer_schema(table, "y", kinds={"id": "number"})
        >>> copies = find_copies(table, schema)
        >>> copies.groups.tolist(), copies.apart
        ([0, 1, 0, 3], ('id',))
    """
    apart = tuple(name for name in schema.names if name == time or columns.identifies_rows(name, table[name]))
    others = [table[name] for name in schema.names if name not in apart]
    alike = np.zeros(table.num_rows, np.int64)
    near = _equal_rows(others, alike) if others else alike
    exact = _equal_rows([table[name] for name in apart], near)
    groups = near if others and _are_copies(near) else exact
    if not _are_copies(groups):
        return None
    return Copies(groups, exact, apart)


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
    return _LEAST_DIFFERENT * len(leaders) <= different < len(leaders)


def _is_shared(leaders: Groups) -> NDArray[np.bool_]:
    return np.bincount(leaders, minlength=len(leaders))[leaders] > 1

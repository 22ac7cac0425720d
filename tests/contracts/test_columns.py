"""Every kind of column: plain data, finite inputs for anything, nothing unseen in training, text and types alike."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from _found import found, is_exported
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_ensembles import columns
from deep_ensembles.columns import FITS, KINDS, Column, UnreadableValue, column_data, column_from

DAYS = [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=31 * step) for step in range(24)]
# Values of each kind, typed, with some missing; a new kind adds its own here.
TYPED: dict[str, pa.Array] = {
    "boolean": pa.array([True, False, None, True] * 6),
    "category": pa.array(["red", "green", None, "blue", "red", "red"] * 4),
    "date": pa.array([*DAYS[:-1], None], pa.timestamp("s")),
    "number": pa.array([1.5, -2.0, None, 1e6, 3.25, 0.0] * 4),
    "text": pa.array(["some words here", "and others there", None, "words 4 all"] * 6),
}
ANYTHING = ["", "NA", " 7 ", "7,5", "1e400", "-inf", "x\ny", "yes", "2020-02-30", "31.12.1999", "Ünïcode", None, "0" * 400]

every_fit = pytest.mark.parametrize("fit", found(columns))


def typed(fit: Any) -> pa.Array:
    return TYPED[fit.__name__]


def written(values: pa.Array) -> pa.Array:
    """As a CSV file holds them."""
    return pa.array(["" if each is None else str(each) for each in values.to_pylist()])


@every_fit
def test_function_and_result_are_exported_and_known_by_name(fit):
    column = fit("c", typed(fit))
    assert is_exported(columns, fit)
    assert is_exported(columns, type(column))
    assert FITS[fit.__name__] is fit
    assert KINDS[fit.__name__] is type(column)
    assert isinstance(column, Column)


@every_fit
def test_is_plain_data(fit):
    column = fit("c", typed(fit))
    with pytest.raises(dataclasses.FrozenInstanceError):
        column.name = "d"
    again = column_from(json.loads(json.dumps(column_data(column), allow_nan=False)))
    assert again == column
    assert type(again) is type(column)
    np.testing.assert_array_equal(again.encode(typed(fit)), column.encode(typed(fit)))


@every_fit
def test_inputs_are_finite_and_named(fit):
    column = fit("c", typed(fit))
    inputs = column.encode(typed(fit))
    assert inputs.dtype == np.float32
    assert inputs.shape == (24, column.width)
    assert np.isfinite(inputs).all()
    assert len(set(column.input_names)) == column.width
    assert all(name.startswith("c") for name in column.input_names)


@every_fit
def test_training_values_are_inside_and_some_differ(fit):
    column = fit("c", typed(fit))
    assert not column.unseen(column.read(typed(fit))).any()
    assert len(np.unique(column.encode(typed(fit)), axis=0)) > 2


@every_fit
def test_missing_is_unseen_only_where_training_had_none(fit):
    nothing = pa.array([None, None], typed(fit).type)
    for values, unseen in ((typed(fit), False), (typed(fit).drop_null(), True)):
        column = fit("c", values)
        assert (column.unseen(column.read(nothing)) == unseen).all()
    assert np.isfinite(fit("c", typed(fit).drop_null()).encode(nothing)).all()


@every_fit
def test_text_and_types_are_read_alike(fit):
    """Fitted on either, used on either."""
    from_types, from_text = fit("c", typed(fit)), fit("c", written(typed(fit)))
    assert from_types == from_text
    expected = from_types.encode(typed(fit))
    np.testing.assert_array_equal(from_types.encode(written(typed(fit))), expected)
    for other in (typed(fit).dictionary_encode(), pa.chunked_array([typed(fit)[:5], typed(fit)[5:]])):
        np.testing.assert_array_equal(from_types.encode(other), expected)
    words = written(typed(fit))
    for kind in (pa.large_string(), pa.string_view()):
        np.testing.assert_array_equal(from_types.encode(words.cast(kind)), expected)


@every_fit
@given(values=st.lists(st.one_of(st.none(), st.text(max_size=8), st.sampled_from(ANYTHING)), max_size=12))
@settings(deadline=None, max_examples=40)
def test_anything_becomes_finite_inputs(fit, values):
    """Where the unreadable is taken as missing."""
    column = fit("c", typed(fit))
    inputs = column.encode(pa.array(values, pa.string()), errors="missing")
    assert inputs.shape == (len(values), column.width)
    assert np.isfinite(inputs).all()
    assert column.unseen(column.read(pa.array(values, pa.string()), errors="missing")).shape == (len(values),)


@every_fit
@given(place=st.integers(0, 24))
@settings(deadline=None, max_examples=20)
def test_rows_do_not_depend_on_each_other(fit, place):
    column = fit("c", typed(fit))
    parts = [column.encode(part) for part in (typed(fit)[:place], typed(fit)[place:])]
    np.testing.assert_array_equal(np.concatenate(parts), column.encode(typed(fit)))


@every_fit
def test_no_rows_and_null_columns(fit):
    column = fit("c", typed(fit))
    assert column.encode(pa.array([], pa.string())).shape == (0, column.width)
    untyped = pa.array([None, None])
    np.testing.assert_array_equal(column.encode(untyped), column.encode(untyped.cast(typed(fit).type)))


@every_fit
def test_words_tell_the_kind_and_what_is_missing(fit):
    known, some = fit("c", typed(fit).drop_null()).summary(), fit("c", typed(fit)).summary()
    assert some == f"{known}, {typed(fit).null_count} missing"


@pytest.mark.parametrize("kind", ["boolean", "date", "number"])
def test_unreadable_values_name_column_value_and_row(kind):
    column = FITS[kind]("c", TYPED[kind])
    values = pa.array(["", "nonsense"])
    with pytest.raises(UnreadableValue, match=r"^column `c`: 'nonsense' in row 102 is not a .*; correct it") as caught:
        column.encode(values, first_row=101)
    assert (caught.value.column, caught.value.value, caught.value.row) == ("c", "nonsense", 102)
    np.testing.assert_array_equal(column.encode(values, errors="missing")[1], column.encode(values[:1])[0])
    with pytest.raises(ValueError, match="`errors` must be 'refuse' or 'missing', got 'ignore'"):
        column.encode(values, errors="ignore")


@pytest.mark.parametrize("kind", ["category", "date", "number"])
def test_a_column_without_values_is_refused(kind):
    with pytest.raises(ValueError, match=r"^column `c` has no "):
        FITS[kind]("c", pa.array(["", "n/a"]))


def test_unknown_kinds_in_a_file_are_refused():
    with pytest.raises(ValueError, match=r"names a column of kind 'os.system', which this version does not know"):
        column_from({"kind": "os.system", "name": "c"})

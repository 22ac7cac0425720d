"""What the columns of a table are found to be, and its rows as inputs and targets."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deep_ensembles.columns import (
    Category,
    Date,
    Schema,
    TableError,
    Target,
    UnreadableValue,
    boolean,
    category,
    date,
    identifies_rows,
    infer_schema,
    infer_target,
    kind_of,
    number,
    read_groups,
    read_times,
    read_weights,
    text,
)
from deep_ensembles.tabular.files import open_table

ROWS = range(40)
RANDOM = np.random.default_rng(0)


def repeated(*values: Any) -> list[Any]:
    return list(values) * (120 // len(values))


MIXED = pa.table(
    {
        "size": [f"{value:.3f}" for value in RANDOM.normal(size=120)],
        "price": repeated("$1,234.50", "$99", "n/a", "(7)"),
        "colour": repeated("red", "green", "blue", "red", None),
        "paid": repeated("Yes", "no", "YES"),
        "day": [f"{1 + row % 28}.{1 + row % 12}.20{10 + row % 10}" for row in range(120)],
        "note": [f"a remark about row {row}, number {row * row}" for row in range(120)],
        "id": [str(1000 + row) for row in range(120)],
        "unit": ["kg"] * 120,
        "empty": repeated("", "NA"),
        "list": [[1]] * 120,
    }
)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1,234.5", "7"], "number"),
        (["1.234,5", "7,25"], "number"),
        (["12 %", "7%"], "number"),
        (["$5", "-$3.20", "$7"], "number"),
        (["$5", "-$3.20", "€7"], "category"),
        ([" 7 ", "8"], "number"),
        (["1 234", "12 345"], "number"),
        (["1e5", "2E-3"], "number"),
        (["(5.00)", "−4"], "number"),
        (["1", "2", "?", "-", "None", "NULL"], "number"),
        (["1", "2", "3"] * 40 + ["error"], "number"),
        ([3, 4, 3, 4], "number"),
        ([datetime.timedelta(10), datetime.timedelta(11)], "number"),
        (["00123", "45678", "00123"], "category"),
        (["555-1234", "555-9999"], "category"),
        (["1.2.3", "1.2.4"], "category"),
        (["10.0.0.1", "10.0.0.2"], "category"),
        (["10:30", "9:45", "23:59"], "date"),
        (["10:30 AM", "9:45 PM"], "date"),
        ([datetime.time(10), datetime.time(11)], "date"),
        (["a", None], "category"),
        (["1", "2", "x"], "category"),
        (repeated("New York", "Los Angeles"), "category"),
        ([f"city {row % 7}" for row in ROWS], "category"),
        (["true", "FALSE"], "boolean"),
        (["yes", "no", ""], "boolean"),
        (["t", "f"], "boolean"),
        (["0", "1", "1"], "boolean"),
        ([True, False], "boolean"),
        (["2020-01-01", "2021-05-03"], "date"),
        (["2020-01-01T10:00:00Z", "2020-01-01 10:00:00.123456789", "2020-01-01T10:00:00+02:00"], "date"),
        (["31/12/2020", "01/02/2021"], "date"),
        (["12/31/2020 10:30 PM", "01/02/2021 09:00 AM"], "date"),
        (["31.12.2020", "1.2.2021"], "date"),
        (["Jan 5, 2020", "March 7, 2021"], "date"),
        (["5 Jan 2020", "17 Mar 2021"], "date"),
        (["2020/01/31", "2020/02/01"], "date"),
        ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], "date"),
        ([f"these are the words of text {row}" for row in ROWS], "text"),
        ([f"customer{row % 1500}" for row in range(3500)], "text"),
        ([f"customer{row % 1500}" for row in range(9000)], "category"),
        (["", "NA", "null"], "drop"),
        ([None, None], "drop"),
        ([float("nan"), float("inf")], "drop"),
        (["a", "a"], "drop"),
        (["5", "5.0"], "drop"),
        ([True, True], "drop"),
        ([{"a": 1}, {"a": 2}], "drop"),
        ([b"\x00", b"\x01"], "drop"),
        ([f"{row * 7919:032x}" for row in ROWS], "drop"),
    ],
    ids=repr,
)
def test_kinds_of_columns(values, kind):
    assert kind_of("column", pa.array(values))[0] == kind


@pytest.mark.parametrize("name", ["id", "ID", "user_id", "customerId", "index", "column_1", "Unnamed: 0"])
def test_identifiers_are_left_out_by_name_and_value(name):
    reason = "it numbers the rows: all its values are different"
    assert kind_of(name, pa.array(ROWS)) == kind_of(name, pa.array([str(7 * row) for row in ROWS])) == ("drop", reason)
    assert kind_of(name, pa.array([row // 2 for row in ROWS])) == ("number", "")
    assert kind_of(name, pa.array([row + 0.5 for row in ROWS])) == ("number", "")
    assert kind_of("humid", pa.array(ROWS)) == ("number", "")


def test_a_table_of_everything(schema):
    assert {column.name: type(column).__name__ for column in schema.columns} == {
        "price": "Number",
        "colour": "Category",
        "paid": "Boolean",
        "day": "Date",
        "note": "Text",
    }
    assert schema.dropped == (
        ("id", "it numbers the rows: all its values are different"),
        ("unit", "all its values are 'kg'"),
        ("empty", "it has no values"),
        ("list", "values of type list<item: int64> cannot be inputs"),
    )
    inputs, unseen = schema.encode_with_unseen(MIXED)
    assert inputs.shape == (120, len(schema.input_names))
    assert unseen.shape == (120, 5)
    assert np.isfinite(inputs).all()
    assert not unseen.any()
    text = schema.listing().text()
    assert "number in USD (converted from none), -7 to 1234.5, 30 missing" in text
    assert "category, 3 levels (red, blue, green), 24 missing" in text
    assert "left out: all its values are 'kg'" in text
    assert "5 columns make" in text


def test_a_schema_is_plain_data(schema):
    again = Schema.from_data(json.loads(json.dumps(schema.data(), allow_nan=False)))
    assert again == schema
    np.testing.assert_array_equal(again.encode(MIXED), schema.encode(MIXED))


@pytest.fixture(scope="module")
def schema():
    return infer_schema(MIXED, "size")


@given(order=st.permutations(MIXED.column_names), size=st.integers(9, 130))
@settings(deadline=None, max_examples=20)
def test_neither_order_of_columns_nor_batches_matter(schema, order, size):
    parts = [schema.encode(batch) for batch in MIXED.select(order).to_batches(max_chunksize=size)]
    np.testing.assert_array_equal(np.concatenate(parts), schema.encode(MIXED))


ODD = [
    "",
    "NA",
    "?",
    "error",
    "inf",
    "2020-13-45",
    "99/99/9999",
    "1e999",
    "9999-12-31",
    "1.000.000",
    "1,000,000",
    "007",
    "yes",
    None,
]
CELLS = [
    st.integers().map(str),
    st.floats(allow_nan=False).map(repr),
    st.floats(-1e9, 1e9).map("{:,.2f}".format),
    st.dates().map(str),
    st.datetimes().map(str),
    st.dates(datetime.date(1000, 1, 1)).map(lambda day: f"{day.day}/{day.month}/{day.year:04}"),
    st.times().map(lambda time: time.strftime("%H:%M")),
    st.sampled_from(["red", "green", "blue"]),
    st.sampled_from(["Yes", "no"]),
    st.text(max_size=5),
]
COLUMNS = st.tuples(
    st.sampled_from(CELLS).flatmap(lambda cell: st.lists(cell, min_size=1, max_size=50)),
    st.lists(st.sampled_from(ODD), max_size=3),
).map(lambda parts: parts[0] + parts[1])


@given(cells=COLUMNS, repeats=st.integers(1, 3))
@settings(deadline=None, max_examples=150)
def test_training_rows_are_readable_and_inside_whatever_they_hold(cells, repeats):
    table = pa.table({"a": pa.array(cells * repeats, pa.string()), "b": np.arange(len(cells) * repeats) / 2})
    schema = infer_schema(table, kinds={"b": "number"})
    inputs, unseen = schema.encode_with_unseen(table)
    assert np.isfinite(inputs).all()
    assert not unseen.any()
    assert Schema.from_data(json.loads(json.dumps(schema.data(), allow_nan=False))) == schema


def test_the_same_rows_from_text_and_from_parquet(tmp_path):
    table = pa.table(
        {
            "x": pa.array([*RANDOM.normal(1.7e9, 3, size=99), None]),
            "n": pa.array(np.arange(100) % 7, pa.int8()),
            "b": pa.array([True, False] * 50),
            "c": pa.array(["u", "v", None, "w"] * 25),
            "d": pa.array(np.arange(100) * 86400 * 3, pa.timestamp("s")),
        }
    )
    pq.write_table(table, tmp_path / "table.parquet")
    written = "\n".join(",".join("" if each is None else str(each) for each in row.values()) for row in table.to_pylist())
    (tmp_path / "table.csv").write_text(f"{','.join(table.column_names)}\n{written}\n")
    typed, text = (open_table(tmp_path / f"table.{ending}").read() for ending in ("parquet", "csv"))
    assert infer_schema(typed) == infer_schema(text)
    np.testing.assert_array_equal(infer_schema(typed).encode(text), infer_schema(text).encode(typed))


def test_users_know_better():
    table = pa.table({"zip": [12345, 54321] * 10, "code": ["7", "8"] * 10, "x": range(20), "id": range(20)})
    schema = infer_schema(table, drop=["x"], kinds={"zip": "category", "id": "number", "code": "text"})
    assert [type(column).__name__ for column in schema.columns] == ["Category", "Text", "Number"]
    assert schema.dropped == (("x", "as asked"),)
    assert infer_schema(table, kinds={"x": "drop"}).dropped[0] == ("x", "as asked")
    for arguments in ({"target": "y"}, {"drop": ["y"]}, {"kinds": {"y": "number"}}):
        with pytest.raises(TableError, match=r"the table has no column `y`; it has zip, code, x, id$"):
            infer_schema(table, **arguments)
    with pytest.raises(ValueError, match=r"`kinds\['x'\]` must be one of boolean, .*, text, drop, got 'float'"):
        infer_schema(table, kinds={"x": "float"})
    with pytest.raises(UnreadableValue, match="column `c`: 'a' in row 1 is not a number"):
        infer_schema(pa.table({"c": ["a", "b"]}), kinds={"c": "number"})


def test_nothing_left_to_learn_from():
    with pytest.raises(TableError, match=r"no column is left to learn from \(`a`: all its values are 1\)"):
        infer_schema(pa.table({"a": [1, 1], "y": [1, 2]}), "y")
    with pytest.raises(TableError, match="the table has no other"):
        infer_schema(pa.table({"y": [1, 2]}), "y")


def test_columns_that_lack_or_are_more(schema):
    with pytest.raises(TableError, match="the table lacks the columns `price`, `note`, which the model was trained with"):
        schema.encode(MIXED.drop(["price", "note"]))
    more = MIXED.append_column("new", MIXED["size"])
    np.testing.assert_array_equal(schema.encode(more), schema.encode(MIXED))
    assert schema.extra(more.column_names) == ["size", "new"]


def test_columns_that_changed_their_type():
    schema = infer_schema(pa.table({"n": ["1", "2", "3"], "c": [10, 20, 10], "w": ["x", "y", "x"]}), kinds={"c": "category"})
    expected = schema.encode(pa.table({"n": [1, 2], "c": ["10", "20"], "w": ["x", "y"]}))
    for other in ({"n": [True, 2.0][1:] * 2, "c": [10.0, 20.0]}, {"n": ["2,000", "2"][1:] * 2, "c": pa.array(["10", "20"])}):
        np.testing.assert_array_equal(schema.encode(pa.table({**other, "w": ["x", "y"]}))[:, 1:], expected[:, 1:])
    with pytest.raises(UnreadableValue, match="column `n`: 'many' in row 8 is not a number; correct it, leave it empty"):
        schema.encode(pa.table({"n": ["2", "many"], "c": [10, 20], "w": ["x", "y"]}), first_row=7)


def test_thousands_of_columns():
    table = pa.table({f"c{place}": RANDOM.normal(size=50).round(2).astype(str) for place in range(3000)})
    schema = infer_schema(table)
    assert schema.encode(table).shape == (50, 3000)


class TestNumbers:
    def test_large_offsets_keep_their_digits(self):
        times = 1.7e9 + np.arange(100)
        inputs = number("t", pa.array(times)).encode(pa.array(times))[:, 0]
        assert np.diff(inputs).min() > 0
        np.testing.assert_allclose(np.diff(inputs), 1 / 49.5, rtol=1e-4)

    def test_one_absurd_value_does_not_explode(self):
        column = number("x", pa.array(RANDOM.normal(size=1000)))
        low, high = column.encode(pa.array([-1e300, 1e300]))[:, 0]
        assert -20 < low < -5 < 5 < high < 20
        assert column.unseen(column.read(pa.array([1e300, 0.0]))).tolist() == [True, False]

    def test_heavy_tails_are_compressed_and_stay_in_order(self):
        values = np.exp(RANDOM.normal(size=2000) * 4)
        inputs = number("x", pa.array(values)).encode(pa.array(values))[:, 0]
        assert np.abs(inputs).max() < 20
        order = np.argsort(values)
        assert (np.diff(inputs[order]) >= 0).all()
        assert np.diff(inputs[order]).max() < 5

    @pytest.mark.parametrize(
        "values", [[-1.7e308, 1.7e308, 0.0], [5e-324, 0.0, 1e-323], [0.0] * 99 + [1e300], [2**63 - 1, 0]]
    )
    def test_extreme_values_are_finite(self, values):
        column = number("x", pa.array(values))
        assert np.isfinite(column.encode(pa.array(values))).all()
        assert not column.unseen(column.read(pa.array(values))).any()

    def test_infinite_values_cannot_be_read(self):
        column = number("x", pa.array([*map(str, range(20)), "inf", "-Infinity"]))
        assert (column.missing, column.words, column.low, column.high) == (2, ("-Infinity", "inf"), 0.0, 19.0)
        typed = number("x", pa.array([*range(20), float("inf"), float("-inf")]))
        assert (typed.missing, typed.words, typed.low, typed.high) == (2, ("-inf", "inf"), 0.0, 19.0)
        assert typed.encode(pa.array([float("inf"), 9.5])).tolist() == [[0.0, 1.0], [0.0, 0.0]]
        plain = number("x", pa.array([1.0, 3.0]))
        for values in (["2", "inf"], ["2", "1e999"], [2.0, float("inf")]):
            with pytest.raises(UnreadableValue, match=r"column `x`: '(inf|1e999)' in row 2 is not a number"):
                plain.read(pa.array(values))
            assert np.isnan(plain.read(pa.array(values), "missing")).tolist() == [False, True]
        with pytest.raises(UnreadableValue, match="'inf' in row 3"):
            infer_target("y", pa.array([1.5, 2.5, float("inf")]))
        target, y, kept = infer_target("y", pa.array([*np.arange(20) / 4, float("inf")]), errors="missing")
        assert (len(y), kept[-1]) == (20, False)
        assert target.notes[0] == "1 value of `y`, the first 'inf' in row 21, cannot be read: taken as missing"

    def test_the_decimal_mark_is_that_of_the_column(self):
        column = number("x", pa.array(["1.234,5", "7,25", "3"]))
        assert column.read(pa.array(["1,5", "1.500", "2"])).tolist() == [1.5, 1500.0, 2.0]
        assert number("x", pa.array(["1,234", "5,678"])).high == 5678
        assert number("x", pa.array(["1,234", "5,678"]), decimal=",").high == 5.678
        assert number("x", pa.array(["1,234", "0,678"])).high == 1.234
        assert number("x", pa.array(["5", "1.5"]), decimal=",").decimal == "."

    def test_words_of_training_are_missing_ever_after(self):
        column = number("x", pa.array([*map(str, range(100)), "error", "off"]))
        assert (column.missing, column.words) == (2, ("error", "off"))
        assert column.encode(pa.array(["off", None])).tolist() == [[0.0, 1.0]] * 2
        assert column.summary() == "number, 0 to 99, 2 missing ('error', 'off' among them)"
        with pytest.raises(UnreadableValue, match="'broken' in row 2"):
            column.encode(pa.array(["off", "broken"]))

    def test_a_rare_mark_is_not_worth_an_input(self):
        assert number("x", pa.array([*range(2000), None])).width == 1
        assert number("x", pa.array([*range(2000), None, None, None])).width == 2

    @given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=20))
    @settings(deadline=None)
    def test_text_is_read_to_the_last_digit(self, values):
        assert number("x", pa.array([repr(value) for value in values])).read(pa.array(map(repr, values))).tolist() == values

    @given(values=st.lists(st.integers(-(10**12), 10**12).map(lambda cents: cents / 100), min_size=1, max_size=20))
    @settings(deadline=None)
    def test_thousands_separators_are_read(self, values):
        english = [f"{value:,.2f}" for value in values]
        german = [each.translate(str.maketrans(",.", ".,")) for each in english]
        assert number("x", pa.array(english)).read(pa.array(english)).tolist() == values
        assert number("x", pa.array(german)).read(pa.array(german)).tolist() == values


class TestCategories:
    def test_frequent_levels_rare_ones_and_new_ones(self):
        values = [f"l{row % 240:03}" for row in range(2400)] + ["l007"] * 5 + ["once"]
        column = category("c", pa.array(values))
        assert (len(column.levels), column.levels[0], len(column.rare), column.with_rare) == (200, "l007", 41, True)
        rows = column.encode(pa.array(["l007", "once", "new"]))
        assert rows.sum(axis=1).tolist() == [1, 1, 1]
        assert rows[0, 0] == 1
        assert rows[1:, -1].tolist() == [1, 1]
        assert column.unseen(column.read(pa.array(["l007", "once", "new"]))).tolist() == [False, False, True]
        assert column.summary() == "category, 200 levels (l007, l000, l001, …) and 41 rarer"

    def test_more_levels_than_are_kept(self):
        column = category("c", pa.array([f"l{row % 12000}" for row in range(24000)]))
        assert not column.all_known
        assert len(column.levels) + len(column.rare) < 12000
        assert not column.unseen(column.read(pa.array(["l11999", "new"]))).any()

    def test_many_levels_may_be_numbers_in_one_input(self):
        names = [f"level {i}" for i in range(80)]
        table = pa.table({"few": ["a", "b"] * 81, "many": [*names, *names, "last", None], "size": range(162)})
        schema = infer_schema(table, coded=True)
        assert schema.input_names == ("few = a", "few = b", "many", "many is missing", "size")
        assert schema.levels == {2: 82}
        new = pa.table({"few": ["a"] * 3, "many": ["last", "new", None], "size": [1] * 3})
        inputs, unseen = schema.encode_with_unseen(new)
        assert inputs[:, 2].tolist() == [81, 0, 0]
        assert unseen[:, 1].tolist() == [False, True, False]
        assert Schema.from_data(schema.data()) == schema

    def test_numbers_are_the_text_they_are_written_as(self):
        column = category("c", pa.array([1, 2, 1, 2]))
        assert column.levels == ("1", "2")
        expected = column.encode(pa.array(["2", "1"]))
        for other in ([2.0, 1.0], [2, 1]):
            np.testing.assert_array_equal(column.encode(pa.array(other)), expected)
        assert isinstance(column, Category)


class TestDates:
    def test_day_or_month_first_is_decided_for_the_column(self):
        assert date("d", pa.array(["13/01/2020", "02/03/2020"])).pattern == "%d/%m/%Y"
        assert date("d", pa.array(["01/13/2020", "02/03/2020"])).pattern == "%m/%d/%Y"
        column = date("d", pa.array(["13/01/2020", "02/03/2020"]))
        assert column.read(pa.array(["02/03/2020"])).tolist() == [
            datetime.datetime(2020, 3, 2, tzinfo=datetime.timezone.utc).timestamp()
        ]
        with pytest.raises(UnreadableValue, match=r"'01/13/2020' in row 1 is not a date \(DD/MM/YYYY\)"):
            column.encode(pa.array(["01/13/2020"]))

    def test_types_zones_and_text_agree(self):
        column = date("d", pa.array(["2020-01-01", "2020-06-01T12:00:00"]))
        moment = datetime.datetime(2020, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
        expected = [moment.timestamp()]
        for kind in (pa.timestamp("s", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", "UTC")):
            assert column.read(pa.array([moment]).cast(kind)).tolist() == expected
        for written in (
            "2020-02-03T04:05:06Z",
            "2020-02-03 05:05:06+01:00",
            "2020-02-03 04:05:06",
            "2020-02-03T04:05:06.000000000Z",
        ):
            assert column.read(pa.array([written])).tolist() == expected
        midnight = [datetime.datetime(2020, 2, 3, tzinfo=datetime.timezone.utc).timestamp()]
        for kind in (pa.date32(), pa.date64()):
            assert column.read(pa.array([moment.date()], kind)).tolist() == midnight

    def test_parts_that_vary_come_round(self):
        days = pa.array([datetime.date(2020, 1, 6) + datetime.timedelta(days=7 * week) for week in range(60)])
        column = date("d", days)
        assert isinstance(column, Date)
        assert column.parts == ("month",)
        december, january = column.encode(pa.array([datetime.date(2020, 12, 31), datetime.date(2021, 1, 1)]))
        assert np.abs(december[1:] - january[1:]).max() < 0.6
        hours = date("d", pa.array(["2020-01-01 23:59:00", "2020-01-01 00:00:00"]))
        assert hours.parts == ("hour",)

    def test_words_of_training_are_missing_ever_after(self):
        column = date("d", pa.array([*(f"{1 + day % 28}.1.2020" for day in range(99)), "soon"]))
        assert (column.missing, column.words) == (1, ("soon",))
        assert column.encode(pa.array(["soon"]))[0].tolist() == [0.0, 0.0, 0.0, 1.0]
        with pytest.raises(UnreadableValue, match="'late' in row 2"):
            column.encode(pa.array(["soon", "late"]))

    def test_times_of_day(self):
        column = date("t", pa.array(["10:30", "18:00", "9:15"]))
        assert column.parts == ("hour",)
        assert column.summary() == "time of day, 09:15:00 to 18:00:00, written hh:mm"
        expected = column.encode(pa.array(["10:30"]))
        for other in (pa.array(["10:30:00"]), pa.array([datetime.time(10, 30)]), pa.array([37800], pa.time32("s"))):
            np.testing.assert_array_equal(column.encode(other), expected)
        typed = date("t", pa.array([datetime.time(10, 30), datetime.time(12)]))
        assert typed.read(pa.array(["10:30", "12:00:00"])).tolist() == [typed.low, typed.high]

    def test_other_ways_to_write_a_date_are_read_in_training_as_later(self):
        column = date("d", pa.array([*(f"{1 + day}.1.2020" for day in range(28)), "9999-12-31"]))
        assert (column.pattern, column.missing) == ("%d.%m.%Y", 0)
        assert not column.unseen(column.read(pa.array(["9999-12-31"]))).any()

    def test_every_pair_of_dates_gives_its_difference(self):
        starts = np.datetime64("2020-01-01") + np.arange(60).astype("timedelta64[D]")
        later = np.random.default_rng(0).integers(1, 99, size=(60, 6)).cumsum(axis=1).astype("timedelta64[D]")
        table = pa.table({f"date{i}": pa.array((starts + later[:, i]).astype(str)) for i in range(6)})
        made = [column for column in infer_schema(table).columns if column.name not in table.column_names]
        assert len(made) == 15

    def test_impossible_days_are_no_dates(self):
        column = date("d", pa.array(["2020-01-01", "2020-06-01"]))
        with pytest.raises(UnreadableValue, match="'2020-02-30' in row 2"):
            column.encode(pa.array(["2020-02-28", "2020-02-30"]))


class TestTargets:
    @pytest.mark.parametrize(
        ("values", "task", "classes"),
        [
            (["cat", "dog", "cat"], "classification", ("cat", "dog")),
            ([True, False, None], "classification", (False, True)),
            (["1", "0", "1"], "classification", (0, 1)),
            (["yes", "no"], "classification", ("no", "yes")),
            ([3, 5, 4] * 10, "classification", (3, 4, 5)),
            ([3.0, 5.0, 4.0] * 10, "classification", (3, 4, 5)),
            (["01", "02"], "classification", ("01", "02")),
            ([3, 5, 4] * 9, "regression", ()),
            (list(range(21)) * 10, "regression", ()),
            ([0.5, 1.5, 0.5], "regression", ()),
            (["1.234,5", "7,5", "8"], "regression", ()),
        ],
        ids=repr,
    )
    def test_the_task_is_recognised(self, values, task, classes):
        target, y, kept = infer_target("y", pa.array(values))
        assert (target.task, target.classes) == (task, classes)
        assert target.reason.startswith("`y` ")
        assert target.reason.endswith(task)
        assert y.dtype == (np.int64 if classes else np.float64)
        assert kept.tolist() == [each is not None for each in values]
        again = Target.from_data(json.loads(json.dumps(target.data())))
        assert again == target
        np.testing.assert_array_equal(again.read(pa.array(values))[kept], y)

    def test_rows_without_a_target_are_left_out(self):
        target, y, kept = infer_target("y", pa.array(["1.5", "", "2.5", "NA"]))
        assert (y.tolist(), kept.tolist()) == ([1.5, 2.5], [True, False, True, False])
        assert target.notes == ("2 rows without a target are left out",)

    def test_users_say_what_the_task_is(self):
        assert infer_target("y", pa.array([0, 1, 1]), "regression")[1].tolist() == [0.0, 1.0, 1.0]
        target, codes, _ = infer_target("y", pa.array([0.5, 1.5, 0.5]), "classification")
        assert (target.classes, codes.tolist()) == (("0.5", "1.5"), [0, 1, 0])
        with pytest.raises(UnreadableValue, match="column `y`: 'many' in row 2 is not a number"):
            infer_target("y", pa.array(["1", "many"]), "regression")
        with pytest.raises(ValueError, match="`task` must be None, 'regression' or 'classification', got 'ranking'"):
            infer_target("y", pa.array([1, 2]), "ranking")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([], "the table has no rows"),
            (["a", "a"], "`y` needs at least two classes, but every row has the same, 'a'"),
            ([None, ""], "`y` needs at least two classes, but no row has a value"),
            ([1.5, 1.5], "`y` is 1.5 in every row"),
            ([f"t{row}" for row in ROWS], "`y` has 40 classes in 40 rows; is it the column to predict"),
            (["2020-01-01", "2020-01-02"], "`y` holds dates; a target must be numbers or classes"),
            ([datetime.date(2020, 1, 1)], "`y` holds dates"),
            ([[1], [2]], "`y` holds values of type list"),
            ([*map(str, range(100)), "x"], "`y` is a number in nearly all rows, but 'x' in row 101; correct it"),
        ],
    )
    def test_targets_that_cannot_be_learned(self, values, message):
        with pytest.raises(TableError, match=message):
            infer_target("y", pa.array(values, pa.string()) if not values else pa.array(values))

    def test_dates_and_lists_are_no_classes_even_if_asked(self):
        for values, message in [
            ([datetime.date(2020, 1, 1)], "`y` holds dates"),
            ([[1], [2]], "`y` holds values of type list"),
        ]:
            for task in ("classification", "regression"):
                with pytest.raises(TableError, match=message):
                    infer_target("y", pa.array(values), task)

    def test_lonely_classes_are_told(self):
        assert infer_target("y", pa.array(["a", "a", "b"]))[0].notes == ("only one row of `y` is b",)

    def test_new_rows_are_read_as_training_rows_were(self):
        target = infer_target("y", pa.array(["3", "4", "3"] * 9 + ["5"] * 9))[0]
        assert target.classes == (3, 4, 5)
        np.testing.assert_array_equal(target.read(pa.array([5.0, 3.0, None])), [2, 0, np.nan])
        with pytest.raises(UnreadableValue, match="column `y`: '6' in row 2 is not a class that training saw"):
            target.read(pa.array([3, 6]))
        yes = infer_target("y", pa.array([True, False]))[0]
        assert yes.read(pa.array(["false", "True"])).tolist() == [0.0, 1.0]


class TestRoles:
    def test_weights(self):
        assert read_weights("w", pa.array(["0", "2.5"])).tolist() == [0.0, 2.5]
        for values, message in [
            ([1.0, None], "every row needs a weight, but `w` is missing in row 2"),
            ([1.0, -1.0], "weights must be ≥ 0, but `w` is -1 in row 2"),
            ([0, 0], "weights must not all be 0"),
            (["1", "x"], "column `w`: 'x' in row 2 is not a number"),
        ]:
            with pytest.raises(ValueError, match=message):
                read_weights("w", pa.array(values))

    def test_groups(self):
        assert read_groups("g", pa.array([3, 1, 3, None])).tolist() == [0, 1, 0, 2]
        with pytest.raises(TableError, match="groups must be at least two, but `g` has 1"):
            read_groups("g", pa.array(["a", "a"]))

    def test_times(self):
        assert read_times("t", pa.array(["3", "1.5"])).tolist() == [3.0, 1.5]
        assert np.diff(read_times("t", pa.array(["1.2.2020", "31.1.2020"]))).tolist() == [-86400.0]
        assert read_times("t", pa.array([datetime.date(1970, 1, 2)])).tolist() == [86400.0]
        with pytest.raises(TableError, match="every row needs a time, but `t` is missing in row 1"):
            read_times("t", pa.array([None, "2020-01-01"]))
        with pytest.raises(UnreadableValue, match="column `t`: 'soon' in row 1 is not a date"):
            read_times("t", pa.array(["soon", "late"]))


def test_classes_that_are_numbers_sort_as_numbers() -> None:
    target, codes, _ = infer_target("size", pa.array(["10.5", "2.5", "10.5", "7"]), "classification")
    assert target.classes == ("2.5", "7", "10.5")
    assert codes.tolist() == [2, 0, 2, 1]


def test_a_target_of_numbers_says_which_values_it_has() -> None:
    target = infer_target("claims", pa.array([0.0, 0.0, 1.0, 7.0, None]))[0]
    assert (target.low, target.high, target.whole, target.zeros) == (0.0, 7.0, True, 0.5)
    assert target.skewness == pytest.approx(stats.skew([0, 0, 1, 7]))
    assert Target.from_data(target.data()) == target
    huge = infer_target("huge", pa.array([1e308, -1e308, 5e307, 0.5]))[0]
    assert not huge.whole
    assert np.isfinite(huge.skewness)


def test_a_target_of_an_older_model_is_read() -> None:
    target = infer_target("size", pa.array([1.5, 2.5, 4.0]))[0]
    older = {
        name: value for name, value in target.data().items() if name not in ("low", "high", "whole", "skewness", "zeros")
    }
    assert Target.from_data(older).name == "size"


@pytest.mark.parametrize(
    ("name", "values", "identifies"),
    [
        ("n", [5, 3, 4, 6], True),
        ("n", ["5", "3", "4", "6"], True),
        ("n", [5, 3, 4, 9], False),
        ("customer_id", [5, 3, 3, 9], True),
        ("customer_id", [5, 3, 3, 5], False),
        ("refractive index", [1.33, 1.5, 2.4], False),
        ("key", ["a", "b", "c", "c"], True),
        ("n", [1, 2, None], False),
    ],
)
def test_what_tells_rows_apart(name: str, values: list[Any], identifies: bool) -> None:
    assert identifies_rows(name, pa.array(values)) is identifies


def test_frequent_words_and_pairs_of_words_are_told_apart() -> None:
    texts = ["not good", "good", "not bad", "bad", "good not"] * 20
    column = text("review", pa.array(texts))
    assert {"review: not", "review: good", "review: not good", "review: good not"} <= set(column.input_names)
    encoded = column.encode(pa.array(["good", "not good", "good not", "Good!", "unheard of"]))
    assert len({row.tobytes() for row in encoded[:3]}) == 3
    np.testing.assert_array_equal(encoded[0], encoded[3])
    assert not encoded[4].any()
    assert column.unseen(column.read(pa.array(["good", "unheard of", None]))).tolist() == [False, False, True]


def test_words_are_no_more_than_a_tenth_of_the_texts() -> None:
    texts = [f"word{i % 300} word{i % 7}" for i in range(400)]
    assert len(text("note", pa.array(texts)).words) == 40
    assert text("note", pa.array(["?", "!", None])).encode(pa.array(["any"])).tolist() == [[0.0, 0.0]]


def test_none_is_a_level_among_words_and_a_gap_among_numbers() -> None:
    words, codes, known = infer_target("sev", pa.array(["none", "mild", "severe"] * 20))
    assert words.classes == ("mild", "none", "severe")
    assert known.all()
    assert np.bincount(codes).tolist() == [20, 20, 20]
    assert category("apex", pa.array(["none", "round", "None"] * 5)).missing == 0
    numbers = number("x", pa.array(["1", "2.5", "7"]))
    assert np.isnan(numbers.read(pa.array(["none", "NIL"]), "refuse")).all()


def test_a_count_that_was_0_or_1_in_training_may_be_more_later() -> None:
    column = boolean("children", pa.array([0, 1, 0, 0]))
    later = pa.array([3, 1, -2])
    assert column.encode(later).tolist() == [[1.0], [1.0], [0.0]]
    assert column.unseen(column.read(later)).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="'often' in row 1 is not a yes or no"):
        column.read(pa.array(["often"]), "refuse")


def test_gaps_that_training_did_not_have_are_shown_as_missing() -> None:
    schema = infer_schema(pa.table({"size": repeated("1", "2", "3.5"), "colour": repeated("red", "blue", "green")}))
    new = pa.table({"size": ["", "NA", "9"], "colour": ["", "pink", None]})
    _, unseen = schema.encode_with_unseen(new)
    shown = [list(schema.examples(new, *pair)) for pair in zip(schema.columns, unseen.T, strict=True)]
    assert shown == [["missing", "9"], ["missing", "pink"]]

"""Numbers, units, durations, dates and gaps as people write them: read as a careful person would, or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_ensembles.columns import UnreadableValue, infer_schema, infer_target, kind_of, number, table_decimal
from deep_ensembles.columns.date import date


def numbers(*texts: str) -> tuple[list[float], str]:
    column = number("c", pa.array(texts))
    return column.read(pa.array(texts)).tolist(), column.unit


@pytest.mark.parametrize(
    ("texts", "values", "unit"),
    [
        (["7041 USD", "$7,041.50", "US$ 5", "-$5", "($6)"], [7041, 7041.5, 5, -5, -6], "USD"),
        (["450 kg", "450kg", "3 KG", "7"], [450, 450, 3, 7], "kg"),
        (["450 g", "1.5 kg", "2 kg", "1 t"], [0.45, 1.5, 2, 1000], "kg"),
        (["1.7k", "950", "2.3M", "1.5B", "3 million"], [1700, 950, 2.3e6, 1.5e9, 3e6], ""),
        (["$1.7k", "2.3M USD", "$2B"], [1700, 2.3e6, 2e9], "USD"),
        (["3 Mio. €", "2,5 Mrd. €"], [3e6, 2.5e9], "EUR"),
        (["12 %", "12.5%"], [12, 12.5], "%"),
        (["1.234,5 kg", "7,25 kg"], [1234.5, 7.25], "kg"),
        (["3 rooms", "1 room", "2 Rooms"], [3, 1, 2], "room"),
        (["5 m", "2 km"], [5, 2000], "m"),
        (["5 m", "2 h", "4 m"], [5, 120, 4], "min"),
        (["100 km/h", "62 mph", "90 km/h"], [100, 62 * 1.609344, 90], "km/h"),
        (["2h 5m", "45m", "PT5M", "1 day 02:00:00", "P1DT1H"], [125 / 60, 0.75, 5 / 60, 26, 25], "h"),
        (["3 days", "1 day", "2 weeks"], [3, 1, 14], "day"),
        (["1:23:45", "27:00:00"], [1 + 23 / 60 + 45 / 3600, 27], "h"),
        (["5 USD", "n/d", "7 USD", "unknown", "keine Angabe"], [5, np.nan, 7, np.nan, np.nan], "USD"),
    ],
    ids=repr,
)
def test_numbers_are_read_with_their_units(texts, values, unit):
    read, read_unit = numbers(*texts)
    np.testing.assert_allclose(read, values, rtol=1e-12)
    assert read_unit == unit


@pytest.mark.parametrize(
    ("columns", "mark", "people"),
    [
        ({"width": ["45,2", "38,75", "7,1"]}, ",", [8808.0, 1200.0, 989.0]),
        ({"width": ["45.2", "38.75", "7.1"]}, ".", [8.808, 1.2, 989.0]),
        ({"width": ["45,2", "38,75", "7,1"], "depth": ["1.25", "3.5", "0.1"]}, ".", [8.808, 1.2, 989.0]),
        ({}, ".", [8.808, 1.2, 989.0]),
    ],
)
def test_columns_that_tell_settle_the_decimal_mark_of_others(columns, mark, people):
    table = pa.table({**columns, "people": ["8.808", "1.200", "989"]})
    assert table_decimal(table, ".") == mark
    column = number("people", table["people"], mark)
    assert column.read(table["people"]).tolist() == people
    assert kind_of("people", table["people"], mark)[0] == "number"


def test_small_fractions_are_no_thousands_beside_a_decimal_comma():
    values = pa.array(["0.998", "1.005", "1.012"])
    assert number("density", values, ",").read(values).tolist() == [0.998, 1.005, 1.012]


@pytest.mark.parametrize(
    "texts",
    [
        ["1k2", "3k4", "5k6"], ["10-12", "8-9", "1-2"], ["3E5", "2E7", "812"], ["1.2.3", "1.2.4", "2.0"], ["01234", "12345"],
        ["+49 170 123 456", "+49 170 123 457"], ["A12", "B7"], ["12A", "12B", "13C"], ["2B", "3B"], ["75:30", "80:15"],
        ["<5", ">7"], ["1 2/3", "2 1/2"], ["5 (approx)", "6 (sure)"], ["12 High Street", "9 Low Road"],
        ["S", "40", "M", "42", "L"],
    ],
    ids=repr,
)  # fmt: skip
def test_what_may_be_a_code_is_never_made_a_number(texts):
    assert kind_of("c", pa.array(texts))[0] in ("category", "drop")


@pytest.mark.parametrize(("name", "values"), [("zip", [91234, 12345, 91234]), ("phone", ["5551234567", "5559876543"] * 2)])
def test_names_tell_codes(name, values):
    assert kind_of(name, pa.array(values))[0] == "category"


def test_units_that_do_not_convert_are_never_mixed():
    assert kind_of("pay", pa.array(["5 USD", "7 USD", "9 EUR", "2 EUR"] * 5))[0] == "category"
    with pytest.raises(UnreadableValue, match="'9 EUR' in row 2 is not a number in USD"):
        number("pay", pa.array([f"{row} USD" for row in range(20)])).read(pa.array(["5 USD", "9 EUR"]))


def test_other_units_in_a_few_rows_are_refused_and_without_one_taken_as_the_column_has_it():
    column = number("weight", pa.array([f"{row} kg" for row in range(50)]))
    assert column.read(pa.array(["500 g", "7", "3 kg"])).tolist() == [0.5, 7, 3]
    assert column.read(pa.array([], pa.string())).shape == (0,)
    assert np.isnan(number("weight", pa.array(["1,5 kg", "2,5 kg"])).read(pa.array([None, None], pa.string()))).all()
    with pytest.raises(UnreadableValue, match="'3 USD' in row 2 is not a number in kg"):
        column.read(pa.array(["3 kg", "3 USD"]))


@given(
    value=st.decimals(-(10**9), 10**9, places=2), unit=st.sampled_from(["USD", "EUR", "kg", "%", "°C", "km/h", "pieces"]),
    comma=st.booleans(), grouped=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_any_number_is_read_as_it_was_written(value, unit, comma, grouped):
    written = f"{value:,.2f}" if grouped else f"{value:.2f}"
    if comma:
        written = written.translate(str.maketrans(".,", ",."))
    # A second value tells the decimal mark.
    read, _ = numbers(f"{written} {unit}", f"0{',' if comma else '.'}5 {unit}")
    assert read == [float(value), 0.5]


@given(
    texts=st.lists(
        st.from_regex(r"[0-9]{1,3}[A-Za-z.:/-][0-9A-Z]{1,3}", fullmatch=True), min_size=2, max_size=6, unique=True
    )
)
@settings(deadline=None, max_examples=60)
def test_what_is_read_as_a_number_is_what_its_digits_say(texts):
    """No part of a code is dropped: a number has no letter but a known unit, thousands or a signed or decimal exponent."""
    column = pa.array(texts)
    if kind_of("c", column)[0] != "number":
        return
    made = number("c", column)
    for text, value in zip(texts, made.read(column, "missing").tolist(), strict=True):
        if not np.isnan(value):
            digits = text.rstrip("kKMB") if text[-1].isalpha() else text
            assert not any(letter.isalpha() for letter in digits.replace("E", "").replace("e", "")) or made.unit


@pytest.mark.parametrize(
    ("texts", "first", "written"),
    [
        (["Nov 2020", "January 2021"], "2020-11-01", "Mon YYYY"),
        (["2020-Q4", "2021-Q1"], "2020-10-01", "YYYY-Qn"),
        (["Q4 2020", "Q1 2021"], "2020-10-01", "YYYY-Qn"),
        (["4Q2020", "2021Q1"], "2020-10-01", "YYYY-Qn"),
        (["20201115", "20201116", "20210101"], "2020-11-15", "YYYYMMDD"),
        (["2020-11", "2021-01"], "2020-11-01", "YYYY-MM"),
        (["11/2020", "01/2021"], "2020-11-01", "MM/YYYY"),
    ],
)
def test_months_quarters_and_digits_are_dates(texts, first, written):
    assert kind_of("c", pa.array(texts))[0] == "date"
    column = date("c", pa.array(texts))
    assert column.read(pa.array(texts))[0] == np.datetime64(first, "s").astype(int)
    assert f"written {written}" in column.summary()
    assert "weekday" not in " ".join(column.input_names) or written == "YYYYMMDD"


def test_whole_numbers_are_days_only_if_all_can_be():
    assert kind_of("c", pa.array([20201115, 20201116, 20210101]))[0] == "date"
    assert kind_of("c", pa.array([20201115, 20201116, 20211301]))[0] == "number"
    assert kind_of("c", pa.array([20201115, 20201116] * 5))[0] == "number"


def test_a_date_that_no_value_makes_sure_is_said_so():
    assert "(or DD/MM/YY: no value tells)" in date("c", pa.array(["12/11/10", "11/10/09"])).summary()
    assert "no value tells" not in date("c", pa.array(["12/11/10", "13/10/09"])).summary()


def test_gaps_are_words_that_are_repeated_in_any_share():
    values = [str(row) if row % 5 == 0 else "sold out" for row in range(100)]
    column = number("c", pa.array(values))
    assert (column.gaps, column.missing, column.words) == (("sold out",), 80, ())
    assert column.read(pa.array(["sold out", "5"])).tolist()[1] == 5
    assert kind_of("size", pa.array(["S", "M", "L", *map(str, range(40, 60))] * 3))[0] == "category"
    ends = date(
        "end", pa.array(["2020-01-01", "2020-05-01", "ongoing"] * 20 + [f"2021-01-{day:02}" for day in range(1, 20)])
    )
    assert ends.gaps == ("ongoing",)


def test_the_target_keeps_its_unit_and_gaps():
    target, y, kept = infer_target("weight", pa.array([*(f"{row + 0.5} kg" for row in range(30)), "500 g", "n/d"]))
    assert (target.unit, target.gaps, target.label) == ("kg", ("n/d",), "weight in kg")
    assert y[-1] == 0.5
    assert not kept[-1]
    assert "`weight` is in kg (converted from g), as predictions are" in target.notes
    assert type(target).from_data(target.data()) == target
    assert target.read(pa.array(["250 g", "n/d"]))[0] == 0.25
    comma, prices, _ = infer_target("price", pa.array([f"{row},000 CHF" for row in range(200, 230)]), decimal=",")
    assert (prices[0], comma.notes[1]) == (200, "`price` is read with a decimal comma: 1,234 is 1.234")
    duration, hours, _ = infer_target("time", pa.array([f"{3 + row % 2}:{row % 60:02}:00" for row in range(50)]))
    assert (duration.unit, hours[0]) == ("h", 3.0)
    with pytest.raises(ValueError, match="`pay` is in several units"):
        infer_target("pay", pa.array(["5.5 USD", "7 EUR", "9 EUR"] * 5))


def test_identifiers_are_left_out_and_names_of_things_are_categories():
    for name in ("Obs", "obs no", "Individual ID", "column_1", "#"):
        assert kind_of(name, pa.array(range(1, 40)))[0] == "drop"
    assert kind_of("store_id", pa.array([1, 2, 3] * 10))[0] == "category"
    assert kind_of("paid", pa.array([1, 2, 3] * 10))[0] == "number"


def test_pairs_of_dates_give_the_days_between_them():
    days = [np.datetime64("2020-01-01") + 7 * row for row in range(40)]
    table = pa.table({
        "out": [str(day + 3 + row % 9) for row, day in enumerate(days)], "in": [str(day) for day in days],
        "asked": [str(day - row % 5) if row % 10 else None for row, day in enumerate(days)], "at": ["10:30", "11:45"] * 20,
        "week later": [str(day + 7) for day in days],
    })  # fmt: skip
    schema = infer_schema(table)
    made = {column.name: column for column in schema.columns if len(column.sources) == 2}
    assert "out − in" in made
    assert not any("week later − in" in name or "at" in name.split() for name in made)  # always as long; no date
    assert made["out − in"].read(made["out − in"].cells(table)).tolist() == [3 + row % 9 for row in range(40)]
    assert made["out − in"].summary() == "days from `in` to `out`, 3 to 11"
    assert made["in − asked"].missing == 4
    assert set(schema.names) == set(table.column_names)
    again = type(schema).from_data(schema.data())
    assert again == schema
    new = pa.table({**{name: ["2020-05-01"] for name in table.column_names}, "out": ["2021-05-01"], "at": ["10:00"]})
    inputs, unseen = again.encode_with_unseen(new)
    assert np.isfinite(inputs).all()
    outside = dict(zip(again.labels, unseen[0].tolist(), strict=True))
    assert outside["out − in"]
    assert list(again.examples(new, made["out − in"], np.array([True]))) == ["2020-05-01 to 2021-05-01"]

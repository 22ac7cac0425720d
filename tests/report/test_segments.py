"""Where errors are larger and what has changed since training: found where it is so, and not where it is chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deep_ensembles.report.segments import Groups, drifts, grouped, segments


def of(name: str, values: np.ndarray, trained: np.ndarray | None = None) -> Groups:
    """The groups of a column, with those of training rows beside them."""
    found = grouped(name, values if trained is None else np.concatenate([trained, values]))
    assert found is not None
    if trained is None:
        return found
    codes = np.asarray(found.codes)
    before, here = codes[: len(trained)], codes[len(trained) :]
    counts = [np.bincount(part, minlength=len(found.here)) for part in (here, before)]
    return found._replace(here=counts[0], codes=here, trained=counts[1])


def test_a_bad_segment_is_found_and_is_first() -> None:
    rng = np.random.default_rng(0)
    region, age = rng.choice(["north", "south", "west"], 900), rng.uniform(18, 80, 900)
    error = np.abs(rng.normal(0, np.where(region == "west", 3.0, 1.0), 900))
    found = segments([of("age", age), of("region", region)], error, np.ones(900))
    assert found is not None
    worst, inside = found.worst[0], region == "west"
    assert (worst.column, worst.group, worst.rows) == ("region", "west", inside.sum())
    assert (worst.error, worst.elsewhere) == pytest.approx((error[inside].mean(), error[~inside].mean()))
    assert worst.error_error == pytest.approx(stats.sem(error[inside]))
    assert found.clear == sum(each.is_clear for each in found.worst) == 1
    assert "where `region` is west (" in found.verdict(is_class=False)


@pytest.mark.parametrize("kind", ["even", "wrong", "outliers"])
def test_noise_is_not_called_a_bad_segment(kind: str) -> None:
    """Of tables without any, one is called bad in about 5 of 100 at most, whatever the errors are like."""
    rng, false = np.random.default_rng(1), 0
    for _ in range(150):
        n = int(rng.integers(60, 500))
        columns = [of(f"x{i}", rng.normal(size=n)) for i in range(4)]
        columns += [of(f"c{i}", rng.choice(list("abcdefgh"), n)) for i in range(3)]
        draws = {"even": rng.exponential(size=n), "wrong": (rng.uniform(size=n) < 0.05) * 1.0}
        error = draws[kind] if kind in draws else np.abs(rng.standard_t(1.5, n))
        found = segments(columns, error, np.ones(n))
        false += found is not None and found.clear > 0
    assert false <= 15  # 150 times 5 per cent, and two standard errors


def test_a_bad_segment_is_found_beside_outliers_and_among_few_wrong_rows() -> None:
    rng = np.random.default_rng(4)
    group = np.array(["premature"] * 48 + ["other"] * 285)
    error = np.abs(rng.standard_t(1.2, 333)) * np.where(group == "premature", 15, 1)
    error[40] *= 200
    wrong = np.isin(np.arange(333), np.arange(5)) * 1.0
    small = np.array(["light"] * 80 + ["other"] * 253)
    for name, values, errors in (("premature", group, error), ("light", small, wrong)):
        found = segments([of("c", values), of("x", rng.normal(size=333))], errors, np.ones(333))
        assert found is not None
        assert (found.clear, found.worst[0].group) == (1, name)


def test_names_of_ranges_say_which_end_belongs_to_them() -> None:
    values = np.repeat([0.0, 1.0, 2.0], 40)
    groups = of("x", values)
    codes, joined = np.asarray(groups.codes), groups.joined(groups.here, 20)
    held = {name: set(values[np.isin(codes, part)]) for name, part in joined.items()}
    assert held == {"up to 0": {0.0}, "above 0, up to 1": {1.0}, "above 1": {2.0}}


def test_rare_and_new_levels_are_one_group_with_a_name_for_people() -> None:
    groups = Groups("grade", ("A", "G", "a rare or new value"), None, np.array([90, 3, 25]))
    assert groups.joined(groups.here, 20) == {"A": [0], "a rare or new value": [1, 2]}


def test_few_rows_make_no_segments() -> None:
    assert segments([of("x", np.arange(39.0))], np.ones(39), np.ones(39)) is None
    assert segments([], np.ones(100), np.ones(100)) is None


@pytest.mark.parametrize("n_rows", [40, 300])
def test_columns_that_did_not_change_are_not_called_changed(n_rows: int) -> None:
    rng, false = np.random.default_rng(2), 0
    for _ in range(150):
        columns = [of(f"x{i}", rng.normal(size=n_rows), rng.normal(size=1000)) for i in range(4)]
        columns += [
            of(f"c{i}", rng.choice(list("aaaabbcde"), n_rows), rng.choice(list("aaaabbcde"), 1000)) for i in range(4)
        ]
        found = drifts(columns)
        assert found is not None
        false += found.clear > 0
    assert false <= 15


def test_the_test_of_change_is_the_usual_one() -> None:
    rng = np.random.default_rng(3)
    before, here = rng.choice(list("abc"), 500), rng.choice(list("abc"), 300, p=[0.5, 0.25, 0.25])
    found = drifts([of("c", here, before)])
    assert found is not None
    counts = [[(values == level).sum() for level in "abc"] for values in (before, here)]
    assert found.most[0].p_value == pytest.approx(stats.chi2_contingency(counts, correction=False).pvalue)
    shares = np.array(counts) / np.sum(counts, 1, keepdims=True)
    assert found.most[0].moved == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
    place = int(np.abs(shares[0] - shares[1]).argmax())
    assert (found.most[0].group, found.most[0].before) == ("abc"[place], pytest.approx(shares[0, place]))


def test_with_very_many_rows_a_small_change_is_called_small() -> None:
    rng = np.random.default_rng(4)
    found = drifts([of("x", rng.normal(0.05, 1, 300_000), rng.normal(size=20_000))])
    assert found is not None
    assert (found.clear, found.large) == (1, 0)
    assert "has changed since training beyond chance, but little" in found.verdict(300_000)
    large = drifts(
        [of("x", rng.normal(1, 1, 300), rng.normal(size=2000)), of("y", rng.normal(size=300), rng.normal(size=2000))]
    )
    assert large is not None
    assert "1 of 2 columns has changed much since training. Most of all `x`: " in large.verdict(300)


def test_values_that_are_all_missing_have_changed() -> None:
    found = drifts([of("x", np.full(100, np.nan), np.arange(100.0))])
    assert found is not None
    assert (found.most[0].group, found.most[0].here, found.most[0].moved) == ("missing", 1.0, 1.0)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12), st.booleans(), st.integers(1, 40))
def test_joined_groups_are_large_enough_and_have_each_row_once(counts: list[int], is_ordered: bool, least: int) -> None:
    here = np.array(counts)
    ends = tuple(map(str, range(len(counts) - 2))) if is_ordered else None
    groups = Groups("x", ("missing",) if is_ordered else tuple(map(str, range(len(counts)))), ends, here)
    joined = groups.joined(here, least)
    places = [place for part in joined.values() for place in part]
    assert len(places) == len(set(places))
    if here[: len(counts) - is_ordered].sum() >= least and is_ordered:
        assert all(here[part].sum() >= least for part in joined.values())
        assert set(range(len(counts) - 1)) <= set(places)
    if not is_ordered:
        assert all(here[part].sum() >= least for part in joined.values())


def test_columns_of_any_kind_are_grouped() -> None:
    numbers = grouped("x", [1.0, np.nan, *range(50)])
    assert numbers is not None
    assert numbers.here[-1] == 1
    assert numbers.here.sum() == 52
    assert grouped("name", [str(i) for i in range(1000)]) is None
    empty = grouped("x", np.full(5, np.nan))
    assert empty is not None
    assert empty.joined(empty.here, 1) == {"any": [0], "missing": [1]}

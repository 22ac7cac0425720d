"""What a setting must be, and how it is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep_ensembles._checks import check_flag, check_integer, check_number


@pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.5), np.int64(1)])
def test_numbers_inside(value):
    check_number("it", value, low=0, high=1)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, True, "1", None, 1j])
def test_numbers_outside(value):
    with pytest.raises(ValueError, match=r"^`it` must be a number ≥ 0 and ≤ 1, got "):
        check_number("it", value, low=0, high=1)


def test_open_bound():
    check_number("it", 1e-300, low=0, above=True)
    with pytest.raises(ValueError, match=r"^`it` must be a number > 0, got 0$"):
        check_number("it", 0, low=0, above=True)


@pytest.mark.parametrize("value", [0, 1.0, True, "1", None])
def test_integers(value):
    check_integer("it", np.int32(1), low=1)
    with pytest.raises(ValueError, match=r"^`it` must be an integer ≥ 1, got "):
        check_integer("it", value, low=1)


@pytest.mark.parametrize("value", [0, 1, None, "True"])
def test_flags(value):
    check_flag("it", np.bool_(True))
    with pytest.raises(ValueError, match=r"^`it` must be True or False, got "):
        check_flag("it", value)

"""The simulation behind docs/scale.md: what failures cost, beside the formula that is known for it."""

from __future__ import annotations

import pytest

scale = pytest.importorskip("benchmarks.scale", reason="benchmarks are not beside the tests")


@pytest.mark.parametrize(("interval", "between_failures"), [(10.0, 50.0), (100.0, 200.0), (30.0, 1e6)])
def test_simulated_failures_cost_what_the_formula_says(interval: float, between_failures: float) -> None:
    setting = {"interval": interval, "write": 2.0, "restart": 5.0, "between_failures": between_failures}
    mean, error = scale.simulated(3000.0, repeats=2000, **setting)
    # The formula writes a checkpoint at the end too, where training has nothing left to lose.
    assert mean == pytest.approx(scale.expected(3000.0, **setting), abs=5 * error + 3 * setting["write"], rel=0.0)


def test_the_best_interval_is_that_of_young() -> None:
    write, between_failures = 2.0, 400.0
    best = (2 * write * between_failures) ** 0.5
    costs = [scale.expected(3000.0, factor * best, write, 5.0, between_failures) for factor in (0.4, 1.0, 2.5)]
    assert costs[1] == min(costs)

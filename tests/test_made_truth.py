"""On made data whose truth is known, the head that is right for a target beats a normal, and its intervals hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deep_ensembles.heads import Normal

ROOT = Path(__file__).parent.parent
NAMES = (
    "StudentT", "GaussianMixture", "LogNormal", "Gamma", "LogitNormal", "NegativeBinomial", "ZeroInflated",
    "MultivariateNormal",
)  # fmt: skip


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    from benchmarks import heads

    yield heads
    sys.path.remove(str(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_right_head_beats_a_normal(name: str, benchmark: Any) -> None:
    """With half the rows of `python -m benchmarks.heads`, by which intervals are a little less sharp."""
    case = next(case for case in benchmark.CASES if case.name == name and case.judged)
    right, normal = (benchmark.judge(case, head, n_rows=2000) for head in (case.head, Normal()))
    assert right.nll < normal.nll - 0.02
    assert right.crps < normal.crps
    assert 0.875 < right.coverage < 0.925

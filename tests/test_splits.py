"""Which rows a run may see."""

from __future__ import annotations

import pytest

from deep_ensembles import Subsample


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, "half"])
def test_a_fraction_is_a_share(fraction: object) -> None:
    with pytest.raises(ValueError, match="`fraction` must be a number > 0 and ≤ 1, got"):
        Subsample(fraction)  # type: ignore[arg-type]

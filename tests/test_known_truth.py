"""On made data whose law is known, the parts of the default's uncertainty go where the truth is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deep_ensembles import DeepEnsembleRegressor

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def uneven_noise(n: int, d: int, seed: int, gap: bool = False) -> Rows:
    """Inputs, targets and the true deviation of the noise, which depends on the first input."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2, 2, size=(n, d))
    X = X[(np.abs(X[:, 0]) > 0.7)] if gap else X
    deviation = 0.1 + 0.2 * (X[:, 0] > 0) * np.abs(X[:, 0])
    return X, np.sin(2 * X[:, 0]) + deviation * generator.normal(size=len(X)), deviation


def fitted(n: int, d: int = 2, gap: bool = False) -> DeepEnsembleRegressor:
    X, y, _ = uneven_noise(n, d, 0, gap)
    return DeepEnsembleRegressor(effort="fast", random_state=0).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 5, 20])
def test_more_rows_bring_noise_to_the_truth_and_ignorance_down(d: int) -> None:
    X, _, deviation = uneven_noise(1000, d, 1)
    few, many = (fitted(n, d).predict_distribution(X) for n in (200, 4000))
    errors = [float(np.abs(np.log(m.aleatoric.sqrt().numpy() / deviation)).mean()) for m in (few, many)]
    assert errors[1] < errors[0]
    assert errors[1] < 0.35
    assert float(many.epistemic.mean()) < 0.5 * float(few.epistemic.mean())


@pytest.mark.slow
def test_ignorance_grows_in_a_gap() -> None:
    mixture = fitted(1500, gap=True).predict_distribution(np.array([[0.0, 0.0], [0.2, 0.5], [-1.4, 0.0], [1.4, 0.5]]))
    inside, outside = mixture.epistemic[:2].mean(), mixture.epistemic[2:].mean()
    assert float(inside) > 3 * float(outside)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["uneven", "heavy tails", "two values", "counts", "100 columns"])
def test_intervals_hold_what_they_say(law: str) -> None:
    def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(n, 100 if law == "100 columns" else 3))
        noise = {
            "uneven": lambda: np.exp(0.5 * X[:, 1]) * generator.normal(size=n),
            "heavy tails": lambda: 0.5 * generator.standard_t(3, size=n),
            "two values": lambda: np.where(generator.random(n) < 0.5, 2.0, -2.0) + 0.3 * generator.normal(size=n),
            "counts": lambda: generator.poisson(np.exp(0.5 * X[:, 1] + 1)) - X[:, 0],
            "100 columns": lambda: 0.5 * generator.normal(size=n),
        }[law]()
        return X, X[:, 0] + noise

    effort = "default" if law == "two values" else "fast"  # which compares heads
    model = DeepEnsembleRegressor(effort=effort, random_state=0).fit(*draw(1500, 0))
    X, y = draw(5000, 1)
    low, high = model.predict_interval(X, coverage=0.9).T
    assert 0.86 < np.mean((low <= y) & (y <= high)) < 0.95


def test_parts_add_up() -> None:
    X, y, _ = uneven_noise(100, 1, 0)
    mixture = DeepEnsembleRegressor(effort="fast", max_epochs=5, random_state=0).fit(X, y).predict_distribution(X)
    torch.testing.assert_close(mixture.aleatoric + mixture.epistemic, mixture.variance)

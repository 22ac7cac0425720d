"""Made data, the same in every run."""

from __future__ import annotations

import numpy as np


def regression(n_rows: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and a smooth target whose noise grows with the first input."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n_rows, n_features))
    signal = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, signal + generator.normal(size=n_rows) * (0.1 + 0.2 * np.abs(X[:, 0]))


def classification(n_rows: int, n_features: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in [0, 1] around one centre per class, in single precision, and class numbers."""
    generator = np.random.default_rng(seed)
    centres = generator.random((n_classes, n_features))
    classes = generator.integers(n_classes, size=n_rows)
    X = 0.5 * centres[classes] + 0.5 * generator.random((n_rows, n_features))
    return X.astype(np.float32), classes

"""A data home with small made tables under the benchmark's names."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def make_home(folder: Path, *names: str, rows: int = 90, features: int = 4, splits: int = 3, seed: int = 0) -> Path:
    """Tables of `rows` × `features`, with as many splits as wanted."""
    generator = np.random.default_rng(seed)
    for name in names:
        X = generator.normal(size=(rows, features))
        y = X[:, 0] ** 2 + generator.normal(scale=0.3, size=rows)
        tests = {f"test_index_{i}": generator.permutation(rows)[: rows // 6].astype(np.int32) for i in range(splits)}
        path = folder / "uci" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=X, y=y, **tests)
    return folder

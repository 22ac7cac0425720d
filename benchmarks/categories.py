"""Categories of many levels as an input each or as learned vectors, on made tables: `python -m benchmarks.categories`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from deep_ensembles import Normal
from deep_ensembles.columns import Schema, infer_schema
from deep_ensembles.recipes import Choices, Task
from deep_ensembles.scoring import log_score
from deep_ensembles.selection import fit_recipe

TABLES = {"500 levels, most rare": (5000, 500, 1.0), "500 levels, even": (5000, 500, 0.0), "100 levels": (1500, 100, 0.0),
          "60 levels, most rare": (1000, 60, 1.0), "30 levels": (1000, 30, 0.0), "12 levels": (400, 12, 0.0)}  # fmt: skip
_NEW = 2000


def made(n_rows: int, n_levels: int, rarity: float) -> tuple[pa.Table, np.ndarray]:
    """Rows whose target has a mean and a slope of its own in each level; the k-th level has a share of 1 / k^rarity."""
    generator = np.random.default_rng(0)
    shares = np.arange(1, n_levels + 1) ** -rarity
    level = generator.choice(n_levels, n_rows + _NEW, p=shares / shares.sum())
    means, slopes = generator.normal(size=n_levels), 0.5 * generator.normal(size=n_levels)
    X = generator.uniform(-1, 1, (len(level), 4))
    y = means[level] + slopes[level] * X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3]
    columns = {"level": [f"level {number}" for number in level], **{f"x{i}": X[:, i] for i in range(4)}}
    return pa.table(columns), y + 0.5 * generator.normal(size=len(level))


def main() -> None:
    """NLL, root mean squared error and mean predicted deviation for new rows, of all levels and of an unseen one."""
    print(f"{'table':24} {'encoding':16} {'NLL':>7} {'RMSE':>7} {'unseen: NLL':>12} {'RMSE':>7} {'deviation':>10}")
    for name, sizes in TABLES.items():
        table, y = made(*sizes)
        train, new, target = table[: sizes[0]], table[sizes[0] :], torch.from_numpy(y[sizes[0] :])
        unseen = new.set_column(0, "level", pa.array(["another"] * _NEW))
        for encoding, coded in (("an input each", False), ("learned vectors", True)):
            schema = infer_schema(train, coded=coded)
            if coded:  # however few levels there are
                first, *others = schema.columns
                schema = Schema((replace(first, coded=True, with_rare=False), *others))  # type: ignore[call-arg]
            task = Task(schema.encode(train), y[: sizes[0]], 0, 1, Normal(), levels=schema.levels)
            ensemble = fit_recipe(task, Choices({"max_epochs": 60}, effort="fast"), 0).ensemble
            cells = []
            for rows in (new, unseen):
                prediction = ensemble(schema.encode(rows))
                nll, error = log_score(prediction, target).mean(), (prediction.mean - target).square().mean().sqrt()
                cells += [float(nll), float(error), float(prediction.stddev.mean())]
            seen, of_unseen = f"{cells[0]:7.3f} {cells[1]:7.3f}", f"{cells[3]:12.3f} {cells[4]:7.3f} {cells[5]:10.3f}"
            print(f"{name:24} {encoding:16} {seen} {of_unseen}", flush=True)


if __name__ == "__main__":
    main()

"""Does uncertainty go where the truth is? `python -m benchmarks.known_truth docs/known_truth.png` draws it.

Noise grows with the first input, and rows near 0 are missing. The default's aleatoric deviation should approach that of the
noise as rows become more, and its epistemic deviation should fall, but stay large where rows are missing.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from deep_ensembles import DeepEnsembleRegressor
from deep_ensembles.paper.figures import save_figure
from deep_ensembles.report.charts import Band, Figure, Line, Panel, Points, Row

SIZES, COLUMNS = (100, 300, 1000, 3000), (1, 10, 100)
REACH, GAP = 2.0, 0.5


def deviation(x: np.ndarray) -> np.ndarray:
    """Of the noise."""
    return 0.05 + 0.15 * (x > 0) * x


def draw(n: int, d: int, seed: int, has_gap: bool) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets; only the first column matters."""
    generator = np.random.default_rng([n, d, seed])
    X = generator.uniform(-REACH, REACH, size=(n, d))
    if has_gap:
        X[:, 0] = np.sign(X[:, 0]) * (GAP + np.abs(X[:, 0]) * (REACH - GAP) / REACH)
    return X, np.sin(2 * X[:, 0]) + deviation(X[:, 0]) * generator.normal(size=n)


def parts(n: int, d: int) -> tuple[float, float]:
    """The mean error of the aleatoric deviation (of its logarithm), and the mean epistemic deviation, on fresh rows."""
    model = DeepEnsembleRegressor(effort="fast", random_state=0).fit(*draw(n, d, 0, has_gap=False))
    X, _ = draw(1000, d, 1, has_gap=False)
    mixture = model.predict_distribution(X)
    error = np.abs(np.log(mixture.aleatoric.sqrt().numpy() / deviation(X[:, 0]))).mean()
    return float(error), float(mixture.epistemic.sqrt().mean())


def figure() -> Figure:
    """One prediction in parts, and how the parts change with the number of rows."""
    X, y = draw(400, 1, 0, has_gap=True)
    x = np.linspace(-2.5, 2.5, 300)
    mixture = DeepEnsembleRegressor(random_state=0).fit(X, y).predict_distribution(x[:, None])
    mean, noise, whole = (part.numpy() for part in (mixture.mean, mixture.aleatoric.sqrt(), mixture.variance.sqrt()))
    prediction = Panel(
        [
            Band(x, mean - 2 * whole, mean + 2 * whole, "± 2 deviations, all", "muted"),
            Band(x, mean - 2 * noise, mean + 2 * noise, "± 2 deviations, aleatoric", "ours"),
            Points(X[:, 0], y, "rows"),
            Line(x, mean, "mean", "ours"),
        ],
        "A prediction, and what it is unsure of", "input", "target", y_limits=(-2.5, 2.5),
    )  # fmt: skip
    deviations = Panel(
        [
            Line(x, noise, "aleatoric", "ours"),
            Line(x, deviation(x), "the noise itself", "truth", dashed=True),
            Line(x, mixture.epistemic.sqrt().numpy(), "epistemic", "other"),
        ],
        "Its parts: no rows between -0.5 and 0.5, nor beyond ± 2", "input", "deviation",
    )  # fmt: skip
    found = {d: [parts(n, d) for n in SIZES] for d in COLUMNS}
    roles = ("ours", "other", "third")
    steps = np.log10(SIZES)
    lines = {
        title: [
            Line(steps, [pair[which] for pair in found[d]], f"{d} column{'s' if d > 1 else ''}", role, markers=True)
            for d, role in zip(COLUMNS, roles, strict=True)
        ]
        for which, title in enumerate(("Aleatoric: mean |log(predicted / true deviation)|", "Epistemic: mean deviation"))
    }
    growth = [Panel(layers, title, "log₁₀ rows", "") for title, layers in lines.items()]
    return Figure([Row([prediction, deviations]), Row(growth)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(save_figure(figure(), Path(sys.argv[1])))

"""Every head on made data whose truth is known: a table of scores on fresh rows, and docs/heads.png.

python -m benchmarks.heads docs/
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

from deep_ensembles import ComplementaryFolds, Mixture, crps, fit_ensemble, heads, mlp
from deep_ensembles.paper.figures import save_figure
from deep_ensembles.report.charts import Band, Figure, Line, Panel, Points, Row

N_ROWS, N_FRESH = 4000, 20_000
N_INTEGRALS = 1000  # fresh rows whose CRPS is computed, which for some families takes numerical integration
LEVELS = (0.05, 0.95)
GRID = np.linspace(-3, 3, 121)
# The same for every head.
SETTINGS: dict[str, Any] = {
    "n_members": 5, "max_epochs": 200, "patience": 20, "batch_size": 100, "learning_rate": 0.003, "early_stopping": True,
    "folds": ComplementaryFolds(5), "random_state": 0,
}  # fmt: skip
Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Case:
    """Made data: what the target is, the head for it, and how it is drawn at inputs x.

    Arguments:
        judged: whether the head must beat `Normal` here.
        n_outputs: targets, classes or labels.
    """

    target: str
    head: Any
    draw: Draw
    judged: bool = False
    n_outputs: int = 1

    @property
    def name(self) -> str:
        return type(self.head).__name__

    def rows(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        x = rng.uniform(-3, 3, n)
        return x[:, None], self.draw(x, rng)


@cache
def fitted(case: Case, head: Any, n_rows: int = N_ROWS) -> Any:
    """An ensemble with this head, trained on so many made rows."""
    x, y = case.rows(n_rows, seed=1)
    build = partial(mlp, 1, head.raw_size(case.n_outputs), (64, 64))
    return fit_ensemble(build, x, y, head=head, **SETTINGS)


def _spread(x: np.ndarray) -> np.ndarray:
    return 0.2 + 0.1 * np.abs(x)


def _student_t(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * x) + _spread(x) * rng.standard_t(3, x.shape)


def _laplace(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * x) + rng.laplace(0, _spread(x))


def _normal(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * x) + rng.normal(0, _spread(x))


def _skewed(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * x) + rng.gumbel(0, 2 * _spread(x))


def _log_normal(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.exp(3 + 0.7 * np.sin(2 * x) + 2 * _spread(x) * rng.normal(size=x.shape))


def _gamma(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = np.exp(0.4 * x) + 0.5
    return rng.gamma(shape, (5 + 3 * np.sin(x)) / shape)


def _shares(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 100 * expit(1.5 * np.sin(1.5 * x) + 0.5 * x + 3 * _spread(x) * rng.normal(size=x.shape))


def _two_branches(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    branch = np.where(rng.random(x.shape) < expit(x), 1, -1)
    return branch * (1 + 0.3 * (x + 3)) + 0.2 * rng.normal(size=x.shape)


def _rate(x: np.ndarray) -> np.ndarray:
    return np.exp(1.5 + np.sin(x))


def _poisson(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(_rate(x)).astype(float)


def _negative_binomial(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(rng.gamma(3.0, _rate(x) / 3)).astype(float)


def _zero_inflated(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(x.shape) < expit(0.7 * x - 0.5), 0.0, _negative_binomial(x, rng))


def _correlation(x: np.ndarray) -> np.ndarray:
    return 0.95 * np.sin(x)


def _correlated(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    first, other = rng.normal(size=(2, *x.shape))
    second = _correlation(x) * first + np.sqrt(1 - _correlation(x) ** 2) * other
    return np.stack([np.sin(2 * x) + _spread(x) * first, np.cos(x) + 0.5 * second], axis=-1)


def _class_shares(x: np.ndarray) -> np.ndarray:
    return softmax(np.stack([-1.5 * x, 1 - 0 * x, 1.5 * np.sin(2 * x) + x], axis=-1), axis=-1)


def _grade_shares(x: np.ndarray) -> np.ndarray:
    reached = expit(np.array([-1.5, 0.0, 2.0]) - 2 * np.sin(x)[..., None])
    return np.diff(reached, axis=-1, prepend=0.0, append=1.0)


def _label_shares(x: np.ndarray) -> np.ndarray:
    return expit(np.stack([2 * np.sin(2 * x), x], axis=-1))


def _chosen(shares: Callable[[np.ndarray], np.ndarray], x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((*x.shape, 1)) > shares(x).cumsum(-1)[..., :-1]).sum(-1)


def _labels(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((*x.shape, 2)) < _label_shares(x)).astype(np.int64)


SHARES = {"Categorical": _class_shares, "Ordinal": _grade_shares, "Bernoulli": _label_shares}
CASES = (
    Case("noise like a bell", heads.Normal(), _normal),
    Case("numbers with outliers", heads.StudentT(), _student_t, judged=True),
    Case("numbers with a sharp peak", heads.Laplace(), _laplace),
    Case("two likely values", heads.GaussianMixture(2), _two_branches, judged=True),
    Case("positive, prices", heads.LogNormal(), _log_normal, judged=True),
    Case("positive, amounts", heads.Gamma(), _gamma, judged=True),
    Case("shares in percent", heads.LogitNormal(0.0, 100.0), _shares, judged=True),
    Case("any shape", heads.Quantiles(), _skewed, judged=True),
    Case("counts", heads.Poisson(), _poisson),
    Case("counts that vary more", heads.NegativeBinomial(), _negative_binomial, judged=True),
    Case("counts, many zeros", heads.ZeroInflated(), _zero_inflated, judged=True),
    Case("correlated numbers", heads.MultivariateNormal(), _correlated, judged=True, n_outputs=2),
    Case("classes", heads.Categorical(), partial(_chosen, _class_shares), n_outputs=3),
    Case("ordered classes, grades", heads.Ordinal(), partial(_chosen, _grade_shares), n_outputs=4),
    Case("several labels at once", heads.Bernoulli(), _labels, n_outputs=2),
    Case("members' spread alone", heads.Point(), _normal),
)


@dataclass(frozen=True)
class Scores:
    """Of fresh rows; lower is better but for the coverage, which should be 0.9.

    Arguments:
        nll: for counts of a unit cell around the count where the prediction is a density, which is fair.
        crps: for several targets the energy score.
        coverage: of central 90 % intervals; of counts by levels drawn at random within their step.
        density_nll: the negative log-density itself.
    """

    nll: float
    crps: float
    coverage: float
    density_nll: float


def scores(prediction: Mixture, y: torch.Tensor, counts: bool) -> Scores:
    """Scores of predictions for rows with these targets."""
    density = -prediction.log_prob(y).mean().item()
    nll, low, high = density, prediction.cdf(y), prediction.cdf(y)
    if counts:
        low, high = (prediction.cdf(y + step) for step in ((-1, 0) if prediction.kind == "counts" else (-0.5, 0.5)))
        nll = -(high - low).clamp_min(1e-300).log().mean().item()
    levels = low + (high - low) * torch.rand(low.shape, dtype=low.dtype, generator=torch.Generator().manual_seed(0))
    inside = ((levels > LEVELS[0]) & (levels < LEVELS[1])).double().mean().item()
    few = slice(N_INTEGRALS)
    distance = _energy_score(prediction, y) if y.dim() > 1 else crps(prediction[few], y[few])
    return Scores(nll, distance.mean().item(), inside, density)


def _energy_score(prediction: Mixture, y: torch.Tensor, n_draws: int = 100) -> torch.Tensor:
    torch.manual_seed(0)
    first, second = prediction.sample((n_draws,)), prediction.sample((n_draws,))
    return (first - y).norm(dim=-1).mean(0) - 0.5 * (first - second).norm(dim=-1).mean(0)


def judge(case: Case, head: Any, n_rows: int = N_ROWS, n_fresh: int = N_FRESH) -> Scores:
    """Train with a head on made rows, and score fresh ones."""
    x, y = case.rows(n_fresh, seed=2)
    prediction = fitted(case, head, n_rows)(x)
    return scores(prediction, torch.from_numpy(y).double(), case.head.kind == "counts")


def _print_scores(case: Case) -> None:
    for head in (case.head, heads.Normal()):
        start = time.perf_counter()
        made = judge(case, head)
        print(f"{case.target:24s} {type(head).__name__:20s} {made.nll:8.4f} {made.crps:8.4f} {made.coverage:8.1%} "
              f"{made.density_nll:8.4f} {time.perf_counter() - start:6.1f} s", flush=True)  # fmt: skip


def _panel(case: Case) -> Panel:
    """A head's prediction beside the truth, and some of the rows it was trained on."""
    prediction = fitted(case, case.head)(GRID[:, None])
    if case.name == "Point":
        prediction = prediction.moment_matched()
    if case.name in SHARES:
        return _panel_of_shares(case, prediction.probs.numpy())
    title, legend = f"{case.name}: {case.target}", case is CASES[0]
    if case.name == "MultivariateNormal":
        matched: Any = prediction.moment_matched()
        covariance = matched.covariance_matrix.numpy()
        found = covariance[:, 0, 1] / np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])
        layers = [Line(GRID, found, "predicted correlation"), Line(GRID, _correlation(GRID), "truth", "data", dashed=True)]
        return Panel(layers, title, y_limits=(-1.3, 1.3))
    x, y = case.rows(300, seed=1)
    draws = case.draw(np.tile(GRID, (20_000, 1)), np.random.default_rng(0))
    low, middle, high = np.quantile(draws, [LEVELS[0], 0.5, LEVELS[1]], axis=0)
    middle = middle if case.head.point == "median" else draws.mean(0)
    point = prediction.icdf(torch.tensor(0.5)) if case.head.point == "median" else prediction.mean
    ends = [prediction.icdf(torch.tensor(level)).numpy() for level in LEVELS]
    layers = [
        Points(x[:, 0], y, "rows", "muted", marker="."),
        Band(GRID, *ends, "90 % interval"),
        Line(GRID, point.numpy(), "prediction"),
        *(Line(GRID, line, "truth" * (line is middle), "data", dashed=True) for line in (middle, low, high)),
    ]
    room = (1.2 if legend else 0.25) * (high.max() - low.min())
    return Panel(layers, title, y_limits=(low.min() - room * (low.min() < 0), high.max() + room), legend=legend)


def _panel_of_shares(case: Case, shares: np.ndarray) -> Panel:
    truth, roles = SHARES[case.name](GRID), ("ours", "other", "third", "fourth")
    pairs = [(Line(GRID, shares[:, k], f"P({k})", roles[k]), Line(GRID, truth[:, k], "", "data", dashed=True))
             for k in range(truth.shape[1])]  # fmt: skip
    return Panel([line for pair in pairs for line in pair], f"{case.name}: {case.target}", y_limits=(0, 1.4))


def _figure() -> Figure:
    panels = [_panel(case) for case in CASES]
    rows = [Row(panels[start : start + 4], height=2.7) for start in range(0, len(panels), 4)]
    return Figure(rows, "Every head on made data; dashed: the truth", width=16.0)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{N_ROWS} rows to train on, {N_FRESH} fresh ones; CRPS is the energy score for several targets")
    print(f"{'target':24s} {'head':20s} {'NLL':>8s} {'CRPS':>8s} {'in 90 %':>8s} {'density':>8s}")
    for case in CASES:
        if case.judged:
            _print_scores(case)
    print(save_figure(_figure(), Path(sys.argv[1]) / "heads.png"))


if __name__ == "__main__":
    main()

"""How the default was chosen: variants of training, compared on development data; `python -m benchmarks.recipe_search`.

Nothing here sees a test fold of the quality benchmark: tables are scikit-learn's diabetes, made ones with a known law, and
the training rows of split 0 of three UCI sets. Of each, a tenth of the rows is set apart; an ensemble is trained on the
others and scored both on the rows set apart and out of fold. A record a line, so that a search that was stopped goes on.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes

from deep_ensembles import (
    Adam,
    AdamW,
    ComplementaryFolds,
    Cosine,
    FastGradientSign,
    Normal,
    RobustScaling,
    StudentT,
    fit_ensemble,
    periodic_mlp,
)
from deep_ensembles.paper.datasets import load_dataset
from deep_ensembles.recipes import Task, batch_size
from deep_ensembles.scoring import crps, log_score

RECORDS = Path(__file__).parent / "records" / "recipe_search.jsonl"
UCI_SETS = ("boston-housing", "kin8nm", "wine-quality-red")

# What each variant changes: keys are settings of `fit_ensemble`, or of the network where they say so.
BASE: dict[str, Any] = {"hidden_sizes": (128, 128), "frequency_scale": 0.3, "learning_rate": 0.005, "averaging": 10.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "no waves": {"n_frequencies": 0},
    "frequencies .03": {"frequency_scale": 0.03},
    "frequencies .1": {"frequency_scale": 0.1},
    "frequencies 1": {"frequency_scale": 1.0},
    "frequencies 3": {"frequency_scale": 3.0},
    "normal head": {"head": Normal()},
    "no averaging": {"averaging": None},
    "three layers": {"hidden_sizes": (128, 128, 128)},
    "width 64": {"hidden_sizes": (64, 64)},
    "width 256": {"hidden_sizes": (256, 256)},
    "dropout .1": {"dropout": 0.1},
    "rate .001": {"learning_rate": 0.001},
    "rate .01": {"learning_rate": 0.01},
    "no clipping": {"clip_norm": None},
    "weight decay .1": {"optimizer": AdamW(), "weight_decay": 0.1},
    "weight decay 1": {"optimizer": AdamW(), "weight_decay": 1.0},
    "Adam with beta2 .95": {"optimizer": Adam(beta2=0.95)},
    "twice the batch": {"batches": 2},
    "100 epochs": {"max_epochs": 100},
    "mean and deviation": {"standardize_inputs": True},
    "bins, frequencies .1": {"n_bins": 48, "frequency_scale": 0.1},
    "bins, no waves": {"n_bins": 48, "n_frequencies": 0},
    "adversarial .003": {"perturbation": FastGradientSign(0.003)},
    "adversarial .01": {"perturbation": FastGradientSign(0.01)},
    "adversarial .03": {"perturbation": FastGradientSign(0.03)},
}
_OF_NETWORK = ("hidden_sizes", "frequency_scale", "n_frequencies", "n_bins", "dropout")


def _made(law: Callable[[np.ndarray, np.random.Generator], np.ndarray], n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(n, d))
    return X, law(X, generator)


def _steps(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    mean = 2 * np.floor(2.5 * X[:, 0]) + 3 * (X[:, 1] > -0.2) * (X[:, 2] > 0.2) + np.sin(6 * X[:, 3])
    return mean + 0.1 * generator.normal(size=len(X))


def _trees(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Forty boxes of three columns each, as trees would cut them."""
    law, mean = np.random.default_rng(99), np.zeros(len(X))
    for _ in range(40):
        is_inside = np.ones(len(X), dtype=bool)
        for column in law.choice(X.shape[1], 3):
            is_inside &= (X[:, column] > law.uniform(-0.8, 0.8)) == (law.random() < 0.5)
        mean += law.normal() * is_inside
    return mean + 0.2 * generator.normal(size=len(X))


def _nearly_exact(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    mean = np.exp(X[:, 0] + 1) * X[:, 1] + np.sqrt(X[:, 2] + 1.1) * np.sin(1.5 * X[:, 3])
    return mean + 0.01 * generator.normal(size=len(X))


def _uneven_noise(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return np.sin(4 * X[:, 0]) + 3 * X[:, 1] * X[:, 2] + np.exp(1.4 * X[:, 3] - 1) * generator.normal(size=len(X))


def _heavy_tails(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return np.sin(4 * X[:, 0]) + 3 * X[:, 1] * X[:, 2] + 0.3 * generator.standard_t(2.5, size=len(X))


TABLES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "diabetes": partial(load_diabetes, return_X_y=True),
    "steps": partial(_made, _steps, 800, 8),
    "trees": partial(_made, _trees, 3000, 6),
    "nearly exact": partial(_made, _nearly_exact, 500, 6),
    "uneven noise": partial(_made, _uneven_noise, 1000, 5),
    "heavy tails": partial(_made, _heavy_tails, 600, 5),
}


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Development rows: of a UCI set the training rows of split 0."""
    if name in TABLES:
        return TABLES[name]()
    return load_dataset(name).parts(0)[0]


def score(name: str, variant: dict[str, Any]) -> dict[str, float]:
    """Scores of an ensemble of five on a tenth of the rows, and out of fold on the others."""
    X, y = table(name)
    order = np.random.default_rng(123).permutation(len(y))
    test, train = np.split(order, [max(30, len(y) // 10)])
    settings = {
        "max_epochs": 300,
        "clip_norm": 1.0,
        "standardize_inputs": RobustScaling(),
        "head": StudentT(),
        **BASE,
        **variant,
    }
    network = {key: settings.pop(key) for key in _OF_NETWORK if key in settings}
    size = batch_size(len(train)) * settings.pop("batches", 1)
    together = Task(X[train], y[train], 0, 1, Normal()).together
    build = partial(periodic_mlp, X.shape[1], settings["head"].raw_size(1), **network)
    start = time.process_time()
    ensemble = fit_ensemble(
        build, X[train], y[train], n_members=5, batch_size=size, drop_last=True, schedule=Cosine(), early_stopping=True,
        patience=100, folds=ComplementaryFolds(5, together), random_state=0, **settings,
    )  # fmt: skip
    seconds = time.process_time() - start
    mixture, truth = ensemble(X[test]), torch.from_numpy(y[test])
    out_of_fold = log_score(ensemble.out_of_fold(X[train]), torch.from_numpy(y[train]))
    return {
        "out_of_fold_nll": float(out_of_fold.mean()),
        "nll": float(log_score(mixture, truth).mean()),
        "crps": float(crps(mixture, truth).mean()),
        "seconds": seconds,
    }


def finished(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """The records that are there, by table and variant."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(record["table"], record["variant"]): record for record in map(json.loads, lines)}


def main() -> None:
    """Run what is missing, and print out-of-fold scores of all variants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default=",".join((*TABLES, *UCI_SETS)))
    parser.add_argument("--variants", default=";".join(VARIANTS), help="separated by semicolons")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, records = options.tables.split(","), finished(options.records)
    options.records.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        for variant in options.variants.split(";"):
            if (name, variant) not in records:
                records[name, variant] = {"table": name, "variant": variant, **score(name, VARIANTS[variant])}
                with options.records.open("a") as file:
                    file.write(json.dumps(records[name, variant]) + "\n")
    print("Out-of-fold NLL, one network per row (lower is better)")
    print(f"{'':22s}" + "".join(f"{name:>17s}" for name in names))
    for variant in VARIANTS:
        found = [records.get((name, variant), {}).get("out_of_fold_nll") for name in names]
        print(f"{variant:22s}" + "".join(f"{'–' if nll is None else f'{nll:.3f}':>17s}" for nll in found))


if __name__ == "__main__":
    main()

"""The main job in a minute, on data embedded in scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from deep_ensembles.estimators import DeepEnsembleClassifier, DeepEnsembleRegressor
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.mixture import Mixture
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.report.figures import demo_figure, save_figure
from deep_ensembles.scoring import brier, log_score

_SHOWN = 8
_LEVELS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Demo:
    """What the demo shows and where it left its files."""

    tables: list[Table]
    picture: Path
    models: list[Path]


def run_demo(out: Path, random_state: int = 0, verbose: int = 1) -> Demo:
    """Train a regressor and a classifier, compare one network with the ensemble, save models and a picture."""
    regressor, patients, progression = _regression(random_state, verbose)
    classifier, images, digits = _classification(random_state, verbose)
    prediction, classes = regressor.predict_distribution(patients), classifier.predict_distribution(images)
    single_prediction = regressor.ensemble_.subset(1)(patients)
    single_classes = classifier.ensemble_.subset(1)(images)
    target, label = torch.from_numpy(progression), torch.from_numpy(digits)
    sure, certain = np.argsort(prediction.stddev.numpy()), np.argsort(-classes.confidence.numpy())
    tables = [
        Table(
            "Diabetes (regression), test rows",
            ["", "NLL", "RMSE", "inside the 90 % interval"],
            [_regression_row(name, each, target) for name, each in _pair(single_prediction, prediction)],
        ),
        Table(
            "Digits (classification), test rows",
            ["", "NLL", "accuracy", "Brier"],
            [_classification_row(name, each, label) for name, each in _pair(single_classes, classes)],
        ),
        _patients("Patients it is surest about", prediction, progression, sure[:4]),
        _patients("Patients it is least sure about", prediction, progression, sure[:-5:-1]),
        _images("Digits it is surest about", classes, digits, certain[:4]),
        _images("Digits it is least sure about", classes, digits, certain[:-5:-1]),
    ]
    models = [out / "diabetes-model", out / "digits-model"]
    regressor.save(models[0])
    classifier.save(models[1])
    coverage = np.stack([_LEVELS, [interval_coverage(prediction, target, float(level)) for level in _LEVELS]])
    figure = demo_figure(
        prediction.mean.numpy(), prediction.stddev.numpy(), progression, coverage, _digits(classes, images, digits)
    )
    return Demo(tables, save_figure(figure, out / "demo.png"), models)


def _regression(random_state: int, verbose: int) -> tuple[DeepEnsembleRegressor, np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=random_state)
    model = DeepEnsembleRegressor(perturbation=FastGradientSign(0.01), early_stopping=True, random_state=random_state)
    return model.set_params(verbose=verbose).fit(X_train, y_train), X_test, y_test


def _classification(random_state: int, verbose: int) -> tuple[DeepEnsembleClassifier, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    split = train_test_split(X, y, test_size=0.25, random_state=random_state, stratify=y)
    X_train, X_test, y_train, y_test = split
    model = DeepEnsembleClassifier(max_epochs=30, perturbation=FastGradientSign(0.01), random_state=random_state)
    return model.set_params(verbose=verbose).fit(X_train, y_train), X_test, y_test


def _pair(single: Mixture, ensemble: Mixture) -> list[tuple[str, Mixture]]:
    return [("one network", single), (f"ensemble of {ensemble.n_members}", ensemble)]


def _regression_row(name: str, prediction: Mixture, target: torch.Tensor) -> list[str]:
    nll = float(log_score(prediction, target).mean())
    inside = interval_coverage(prediction, target, 0.9)
    return [name, f"{nll:.3f}", f"{root_mean_squared_error(target, prediction.mean):.2f}", f"{inside:.1%}"]


def _classification_row(name: str, prediction: Mixture, label: torch.Tensor) -> list[str]:
    nll, score = float(log_score(prediction, label).mean()), float(brier(prediction, label).mean())
    accuracy = float((prediction.mode == label).double().mean())
    return [name, f"{nll:.4f}", f"{accuracy:.1%}", f"{score:.5f}"]


def _patients(title: str, prediction: Mixture, actual: np.ndarray, rows: np.ndarray) -> Table:
    deviations = [each.sqrt().numpy() for each in (prediction.variance, prediction.aleatoric, prediction.epistemic)]
    mean = prediction.mean.numpy()
    lines = [
        [f"{mean[i]:.0f} ± {deviations[0][i]:.0f}", f"{deviations[1][i]:.0f}", f"{deviations[2][i]:.0f}", f"{actual[i]:.0f}"]
        for i in rows.tolist()
    ]
    return Table(title, ["predicted", "of that noise", "of that disagreement", "actual"], lines)


def _images(title: str, classes: Mixture, labels: np.ndarray, rows: np.ndarray) -> Table:
    confidence, guess, disagreement = (each.numpy() for each in (classes.confidence, classes.mode, classes.disagreement))
    lines = [[f"{guess[i]}", f"{confidence[i]:.1%}", f"{disagreement[i]:.3f}", f"{labels[i]}"] for i in rows.tolist()]
    return Table(title, ["predicted", "confidence", "disagreement", "actual"], lines)


def _digits(classes: Mixture, images: np.ndarray, labels: np.ndarray) -> list[dict[str, object]]:
    order = np.argsort(-classes.confidence.numpy())
    confidence, guess, differ = classes.confidence.numpy(), classes.mode.numpy(), classes.disagreement.numpy()
    return [
        {
            "pixels": images[i].reshape(8, 8),
            "title": f"{guess[i]} ({confidence[i]:.1%})\nis {labels[i]}, disagr. {differ[i]:.2f}",
            "certain": certain,
        }
        for certain, rows in ((True, order[:_SHOWN]), (False, order[: -_SHOWN - 1 : -1]))
        for i in rows.tolist()
    ]

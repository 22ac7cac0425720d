"""The main job in a minute, on data embedded in scikit-learn."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from deep_ensembles._terminal import Listing
from deep_ensembles.estimators import DeepEnsembleClassifier, DeepEnsembleRegressor
from deep_ensembles.metrics import accuracy, brier_score, interval_coverage, negative_log_likelihood
from deep_ensembles.mixture import Mixture
from deep_ensembles.paper.figures import save_figure
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.report.charts import Band, Figure, Image, Line, Panel, Points, Row

_SHOWN = 8
_LEVELS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True)
class Demo:
    """What the demo shows and where it left its files."""

    listings: list[Listing]
    picture: Path
    models: list[Path]
    reports: list[Path]


def run_demo(out: Path, random_state: int = 0, verbose: int = 1) -> Demo:
    """Train a regressor and a classifier, compare one network with the ensemble, save models, a picture and reports."""
    how: dict[str, Any] = {"perturbation": FastGradientSign(0.01), "random_state": random_state, "verbose": verbose}
    regressor, patients, progression = _fitted(DeepEnsembleRegressor(early_stopping=True, **how), load_diabetes)
    classifier, images, digits = _fitted(DeepEnsembleClassifier(max_epochs=30, **how), load_digits, stratify=True)
    prediction, classes = regressor.ensemble_.mixture(patients), classifier.predict_distribution(images)
    sure, certain = np.argsort(prediction.stddev.numpy()), np.argsort(-classes.confidence.numpy())
    one = [regressor.ensemble_.subset(1).mixture(patients), classifier.ensemble_.subset(1).mixture(images)]
    target, label = torch.from_numpy(progression), torch.from_numpy(digits)
    listings = [
        Listing(
            "Diabetes (regression), test rows",
            ["", "NLL", "RMSE", "inside the 90 % interval"],
            [["one network", *_regression_scores(one[0], target)],
             [f"ensemble of {prediction.n_members}", *_regression_scores(prediction, target)]],
        ),
        Listing(
            "Digits (classification), test rows",
            ["", "NLL", "accuracy", "Brier"],
            [["one network", *_classification_scores(one[1], label)],
             [f"ensemble of {classes.n_members}", *_classification_scores(classes, label)]],
        ),
        _patients("Patients it is surest about", prediction, progression, sure[:4]),
        _patients("Patients it is least sure about", prediction, progression, sure[:-5:-1]),
        _images("Digits it is surest about", classes, digits, certain[:4]),
        _images("Digits it is least sure about", classes, digits, certain[:-5:-1]),
    ]  # fmt: skip
    models = [out / "diabetes-model", out / "digits-model"]
    regressor.save(models[0])
    classifier.save(models[1])
    surest = "Digits: the surest and, below, the least sure of the test images"
    rows = [
        Row([_predictions(prediction, progression), _coverage(prediction, target)], height=4.6, widths=(1.8, 1)),
        Row(_digits(classes, images, digits, certain[:_SHOWN]), surest, 1.8),
        Row(_digits(classes, images, digits, certain[: -_SHOWN - 1 : -1]), "", 1.8),
    ]
    reports = [
        regressor.report(patients, progression).save(out / "diabetes.html"),
        classifier.report(images, digits).save(out / "digits.html"),
    ]
    return Demo(listings, save_figure(Figure(rows), out / "demo.png"), models, reports)


def _fitted(model: Any, load: Callable[..., Any], stratify: bool = False) -> tuple[Any, np.ndarray, np.ndarray]:
    """The model, trained on three quarters of the rows; and the inputs and targets of the others."""
    X, y = load(return_X_y=True)
    strata = y if stratify else None
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=model.random_state, stratify=strata
    )
    return model.fit(X_train, y_train), X_test, y_test


def _regression_scores(prediction: Mixture, target: torch.Tensor) -> list[str]:
    nll, rmse = negative_log_likelihood(prediction, target), root_mean_squared_error(target, prediction.mean)
    return [f"{nll:.3f}", f"{rmse:.2f}", f"{interval_coverage(prediction, target, 0.9):.1%}"]


def _classification_scores(prediction: Mixture, label: torch.Tensor) -> list[str]:
    nll, score = negative_log_likelihood(prediction, label), brier_score(prediction, label)
    return [f"{nll:.4f}", f"{accuracy(prediction, label):.1%}", f"{score:.5f}"]


def _patients(title: str, prediction: Mixture, actual: np.ndarray, rows: np.ndarray) -> Listing:
    deviations = [each.sqrt().numpy() for each in (prediction.variance, prediction.aleatoric, prediction.epistemic)]
    mean = prediction.mean.numpy()
    lines = [
        [f"{mean[i]:.0f} ± {deviations[0][i]:.0f}", f"{deviations[1][i]:.0f}", f"{deviations[2][i]:.0f}", f"{actual[i]:.0f}"]
        for i in rows.tolist()
    ]
    return Listing(title, ["predicted", "of that noise", "of that disagreement", "actual"], lines)


def _images(title: str, classes: Mixture, labels: np.ndarray, rows: np.ndarray) -> Listing:
    confidence, guess, disagreement = (each.numpy() for each in (classes.confidence, classes.mode, classes.disagreement))
    lines = [[f"{guess[i]}", f"{confidence[i]:.1%}", f"{disagreement[i]:.3f}", f"{labels[i]}"] for i in rows.tolist()]
    return Listing(title, ["predicted", "confidence", "disagreement", "actual"], lines)


def _predictions(prediction: Mixture, actual: np.ndarray) -> Panel:
    order = np.argsort(prediction.mean.numpy())
    place, chosen = np.arange(len(order)), prediction[torch.from_numpy(order)]
    low, high = (chosen.icdf(torch.tensor(level)).numpy() for level in (0.05, 0.95))
    actual = actual[order]
    outside = (actual < low) | (actual > high)
    return Panel(
        [
            Band(place, low, high, "90 % interval"),
            Line(place, chosen.mean.numpy(), "predicted mean"),
            Points(place[~outside], actual[~outside], "actual, inside", "muted", marker="."),
            Points(place[outside], actual[outside], "actual, outside", "other", marker="x"),
        ],
        "Diabetes: progression after one year, test patients by prediction",
        "test patient, from the lowest to the highest prediction",
        "disease progression",
    )


def _coverage(prediction: Mixture, target: torch.Tensor) -> Panel:
    observed = [interval_coverage(prediction, target, level) for level in _LEVELS.tolist()]
    ideal, ours = Line([0, 1], [0, 1], "ideal", "muted"), Line(_LEVELS, observed, "ensemble", markers=True)
    title, labels = "Does a p % interval hold p %?", ("expected share inside the interval", "observed share on test rows")
    return Panel([ideal, ours], title, *labels, (0, 1), (0, 1), square=True)


def _digits(classes: Mixture, images: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> list[Panel]:
    confidence, guess, differ = classes.confidence.numpy(), classes.mode.numpy(), classes.disagreement.numpy()
    titles = [f"{guess[i]} ({confidence[i]:.1%})\nis {labels[i]}, disagr. {differ[i]:.2f}" for i in rows.tolist()]
    return [Panel([Image(images[i].reshape(8, 8))], title) for i, title in zip(rows.tolist(), titles, strict=True)]

"""The main job in a minute, on data embedded in scikit-learn."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, Mixture
from deep_ensembles._terminal import Listing
from deep_ensembles.paper.figures import save_figure
from deep_ensembles.report import Batch, evaluate
from deep_ensembles.report.charts import Figure, Image, Panel, Row, evaluation_charts
from deep_ensembles.report.words import level

_SHOWN = 8
_PATIENT = ["predicted", "of that noise", "of that disagreement", "actual"]
_DIGIT = ["predicted", "confidence", "disagreement", "actual"]
# What is listed of an evaluation's scores, and how it is called.
_NUMBER_SCORES = {"NLL": "NLL", "RMSE": "RMSE", f"{level(0.9)} coverage": "inside the 90 % interval"}
_CLASS_SCORES = {"NLL": "NLL", "Accuracy": "accuracy", "Brier score": "Brier"}


def run_demo(out: Path, random_state: int = 0) -> list[Listing | str]:
    """Train a regressor and a classifier, compare one network with the ensemble, save models, a picture and reports.

    Returns:
        What to show: listings, and where the files are.
    """
    how: dict[str, Any] = {"effort": "fast", "random_state": random_state, "verbose": 1}
    regressor, patients, progression = _fitted(DeepEnsembleRegressor(**how), load_diabetes)
    classifier, images, digits = _fitted(DeepEnsembleClassifier(**how), load_digits, stratify=True)
    prediction, classes = regressor.predict_distribution(patients), classifier.predict_distribution(images)
    sure, certain = np.argsort(prediction.stddev.numpy()).tolist(), np.argsort(-classes.confidence.numpy()).tolist()
    about_patients, about_digits = _about_patients(prediction, progression), _about_digits(classes, digits)
    reports = {"diabetes": regressor.report(patients, progression), "digits": classifier.report(images, digits)}
    for (name, report), model in zip(reports.items(), (regressor, classifier), strict=True):
        model.save(out / f"{name}-model")
        report.save(out / f"{name}.html")
    charts, panels = evaluation_charts(reports["diabetes"].evaluation), _digits(images, about_digits)
    predicted = charts["rows"]._replace(x_label="actual", y_label="predicted, with 90 % interval")
    shares = charts["calibration"]._replace(x_label="wanted share of rows inside", y_label="observed share")
    rows = [
        Row([predicted, shares], "Diabetes: progression after one year, test patients", 4.6, (1.8, 1)),
        Row([panels[i] for i in certain[:_SHOWN]], "Digits: the surest and, below, the least sure of the test images", 1.8),
        Row([panels[i] for i in certain[: -_SHOWN - 1 : -1]], "", 1.8),
    ]
    return [
        _scores("Diabetes (regression), test rows", regressor, patients, progression, _NUMBER_SCORES),
        _scores("Digits (classification), test rows", classifier, images, digits, _CLASS_SCORES),
        Listing("Patients it is surest about", _PATIENT, [about_patients[i] for i in sure[:4]]),
        Listing("Patients it is least sure about", _PATIENT, [about_patients[i] for i in sure[:-5:-1]]),
        Listing("Digits it is surest about", _DIGIT, [about_digits[i] for i in certain[:4]]),
        Listing("Digits it is least sure about", _DIGIT, [about_digits[i] for i in certain[:-5:-1]]),
        f"picture  {save_figure(Figure(rows), out / 'demo.png')}",
        *(f"model    {out / name}-model" for name in reports),
        *(f"report   {out / name}.html  (open it in a browser)" for name in reports),
    ]


def _fitted(model: Any, load: Callable[..., Any], stratify: bool = False) -> tuple[Any, np.ndarray, np.ndarray]:
    """The model, trained on three quarters of the rows; and the inputs and targets of the others."""
    X, y = load(return_X_y=True)
    how = {"test_size": 0.25, "random_state": model.random_state, "stratify": y if stratify else None}
    X_train, X_test, y_train, y_test = train_test_split(X, y, **how)
    return model.fit(X_train, y_train), X_test, y_test


def _scores(title: str, model: Any, X: np.ndarray, y: np.ndarray, names: Mapping[str, str]) -> Listing:
    """One network beside the ensemble, recalibrated as it is."""
    ensemble = model.ensemble_
    single = replace(ensemble.subset(1), recalibration=ensemble.recalibration)
    evaluation = evaluate(Batch(ensemble(X), y, single(X)))
    scores = [evaluation.score(name) for name in names]
    rows = [["one network", *(score.text(score.single) for score in scores)]]
    rows.append([f"ensemble of {ensemble.n_members}", *(score.text(score.ensemble) for score in scores)])
    return Listing(title, ["", *names.values()], rows)


def _about_patients(prediction: Mixture, actual: np.ndarray) -> list[list[str]]:
    deviations = (prediction.stddev, prediction.aleatoric.sqrt(), prediction.epistemic.sqrt())
    numbers = np.column_stack([prediction.mean, *deviations, actual])
    return [[f"{mean:.0f} ± {std:.0f}", *(f"{number:.0f}" for number in others)] for mean, std, *others in numbers]


def _about_digits(classes: Mixture, labels: np.ndarray) -> list[list[str]]:
    numbers = zip(classes.mode, classes.confidence, classes.disagreement, labels, strict=True)
    return [[f"{guess}", f"{sure:.1%}", f"{differ:.3f}", f"{label}"] for guess, sure, differ, label in numbers]


def _digits(images: np.ndarray, about: list[list[str]]) -> list[Panel]:
    titles = [f"{guess} ({sure})\nis {label}, disagr. {differ}" for guess, sure, differ, label in about]
    return [Panel([Image(image.reshape(8, 8))], title) for image, title in zip(images, titles, strict=True)]

"""The public names, pinned: adding or losing one is a decision."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from _processes import printed

import deep_ensembles

NAMES = [
    "Adam",
    "AdamW",
    "Bernoulli",
    "Bootstrap",
    "Categorical",
    "Checkpoint",
    "ComplementaryFolds",
    "Constant",
    "Cosine",
    "CrossValidation",
    "DeepEnsembleClassifier",
    "DeepEnsembleRegressor",
    "Ensemble",
    "FastGradientSign",
    "Gamma",
    "GaussianMixture",
    "Grow",
    "InProcess",
    "Laplace",
    "LogNormal",
    "LogitNormal",
    "Looped",
    "Mixture",
    "ModelFileError",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "Ordinal",
    "ParquetRows",
    "Point",
    "Poisson",
    "Processes",
    "ProjectedGradient",
    "Quantiles",
    "RandomSign",
    "Ray",
    "Recipe",
    "RobustScaling",
    "Stacked",
    "StudentT",
    "Subsample",
    "TrainingDiverged",
    "VirtualAdversarial",
    "ZeroInflated",
    "beta_nll",
    "brier",
    "censored",
    "cross_validate",
    "crps",
    "energy_score",
    "extend_ensemble",
    "fit_ensemble",
    "interval_score",
    "load",
    "log_score",
    "mlp",
    "periodic_mlp",
    "pinball",
    "squared_error",
]
INSTALLED = [name for name in NAMES if name != "Ray" or find_spec("ray")]  # an extra
ROOMS = {
    "metrics": [
        *("accuracy", "accuracy_confidence_curve", "adaptive_calibration_error", "area_under_risk_coverage", "brier_score"),
        *("censored_brier_score", "censored_negative_log_likelihood", "concordance_index", "expected_calibration_error"),
        *("integrated_brier_score", "interval_coverage", "negative_log_likelihood", "ood_detection"),
        *(
            "probability_integral_transform",
            "reliability_diagram",
            "risk_coverage_curve",
            "summed_brier_score",
            "threshold_for_accuracy",
            "top_k_error",
        ),
    ],
    "recalibration": [
        *("Conformal", "FitRecalibration", "Isotonic", "Prediction", "Recalibrated", "Recalibration", "Temperature"),
        *("VarianceScaling", "choose", "conformal", "isotonic", "temperature", "variance_scaling"),
    ],
}


def test_names_are_pinned() -> None:
    assert deep_ensembles.__all__ == NAMES


@pytest.mark.parametrize("room", ROOMS)
def test_names_of_a_room_are_pinned(room: str) -> None:
    module = importlib.import_module(f"deep_ensembles.{room}")
    assert module.__all__ == ROOMS[room]
    assert all(hasattr(module, name) for name in ROOMS[room])


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse((Path(deep_ensembles.__path__[0]) / "__init__.pyi").read_text("utf-8"))
    (listed,) = (ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert listed == NAMES


@pytest.mark.parametrize("name", INSTALLED)
def test_every_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(deep_ensembles, name)
    assert value.__doc__
    assert name in dir(deep_ensembles)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = deep_ensembles.nonsense


def test_importing_does_nothing() -> None:
    code = "import sys, deep_ensembles; print('torch' in sys.modules, deep_ensembles.__version__)"
    assert printed(code).split() == ["False", deep_ensembles.__version__]


def test_loading_everything_leaves_torch_as_it_was() -> None:
    code = (
        "import torch; state = lambda: (torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(),"
        " torch.get_rng_state().tolist(), torch.is_grad_enabled());"
        "before = state(); import deep_ensembles;"
        f"[getattr(deep_ensembles, n) for n in {INSTALLED}]; assert state() == before"
    )
    printed(code)


def test_the_citation_names_this_version() -> None:
    citation = Path(__file__).parent.parent / "CITATION.cff"
    assert f"\nversion: {deep_ensembles.__version__}\n" in citation.read_text("utf-8")

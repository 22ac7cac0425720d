"""Models from files: whatever kind was saved comes back."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from deep_ensembles._checks import require
from deep_ensembles._files import ModelFileError, model_file_errors, read_model
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.heads import HeadFunction
from deep_ensembles.training import Recipe


def load(
    path: str | os.PathLike[str],
    *,
    network: Callable[..., nn.Module] | None = None,
    head: HeadFunction | None = None,
    device: str | torch.device = "auto",
) -> Any:
    """The model in a folder that `save` wrote: an estimator, a `TableModel`, or an `Ensemble`.

    What is loaded can predict, and nothing else happens: no code and no path in the folder is followed.

    Arguments:
        path: the folder.
        network: the factory, if the model was built from your own module.
        head: the head, if it was your own.
        device: where to put it.
    """
    target = Recipe(device=device).torch_device()
    with model_file_errors(path):
        config, tensors = read_model(path)
        # Other parts are imported for the kinds that need them: scikit-learn and pyarrow take a second.
        if config.get("kind") == "Ensemble":
            return Ensemble.from_file(config["ensemble"], tensors, network, head, target)
        require(config.get("ensemble", {}).get("parts") is None, "parts", "those of an `Ensemble`", config.get("kind"))
        if config.get("kind") == "TableModel":
            from deep_ensembles.tabular.model import TableModel

            return TableModel.from_file(config, Ensemble.from_file(config["ensemble"], tensors, network, head, target))
        if config.get("kind") in ("DeepEnsembleRegressor", "DeepEnsembleClassifier"):
            return _estimator(config, tensors, network, head, target)
        raise ModelFileError(f"{path} holds a {config.get('kind')!r:.50}, which this version does not know")


def _estimator(
    config: dict[str, Any], tensors: dict[str, torch.Tensor], network: Any, head: Any, device: torch.device
) -> Any:
    from deep_ensembles import estimators

    described, factory = config["ensemble"], network
    if network is not None:
        factory = estimators.user_network(network, config["fitted"]["n_features_in_"], described["n_outputs"])
    kind = getattr(estimators, config["kind"])
    model = kind.from_file(config, Ensemble.from_file(described, tensors, factory, head, device))
    given = {"network": network, "head": head}
    return model.set_params(**{name: value for name, value in given.items() if value is not None})

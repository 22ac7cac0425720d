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
        kind, described, build = config.get("kind"), config.get("ensemble", {}), network
        # Other parts are imported for the kinds that need them: scikit-learn and pyarrow take a second.
        if kind == "Ensemble":
            return Ensemble.from_file(config["ensemble"], tensors, network, head, target)
        require(described.get("parts") is None, "parts", "those of an `Ensemble`", kind)
        if kind == "TableModel":
            from deep_ensembles.tabular.model import TableModel

            return TableModel.from_file(config, Ensemble.from_file(config["ensemble"], tensors, network, head, target))
        if kind not in ("DeepEnsembleRegressor", "DeepEnsembleClassifier"):
            raise ModelFileError(f"{path} holds a {kind!r:.50}, which this version does not know")
        from deep_ensembles import estimators

        if network is not None:
            build = estimators.user_network(network, config["fitted"]["n_features_in_"], config["ensemble"]["n_outputs"])
        ensemble = Ensemble.from_file(config["ensemble"], tensors, build, head, target)
        given = {name: value for name, value in (("network", network), ("head", head)) if value is not None}
        return getattr(estimators, kind).from_file(config, ensemble).set_params(**given)

"""Models from files: whatever kind was saved comes back."""

import os
from collections.abc import Callable
from dataclasses import replace
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

            models = []
            for number, part in enumerate([config, *config.get("beside", [])]):
                named = [(*name.rpartition("|")[::2], tensor) for name, tensor in tensors.items()]  # as `TableModel` does
                own = {name: tensor for place, name, tensor in named if place == (str(number) if number else "")}
                models.append(TableModel.from_file(part, Ensemble.from_file(part["ensemble"], own, network, head, target)))
            return replace(models[0], beside=tuple(models[1:]))
        if kind not in ("DeepEnsembleRegressor", "DeepEnsembleClassifier"):
            raise ModelFileError(f"{path} holds a {kind!r:.50}, which this version does not know")
        from deep_ensembles import estimators

        if network is not None:
            build = estimators.user_network(network, described["feature_shape"][0], described["n_outputs"])
        ensemble = Ensemble.from_file(config["ensemble"], tensors, build, head, target)
        given = {name: value for name, value in (("network", network), ("head", head)) if value is not None}
        return getattr(estimators, kind).from_file(config, ensemble).set_params(**given)

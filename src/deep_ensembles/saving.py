"""Models from files: whatever kind was saved comes back."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from deep_ensembles._files import ModelFileError, read_model
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.estimators import DeepEnsembleClassifier, DeepEnsembleRegressor, NetworkFactory
from deep_ensembles.heads import HeadFunction
from deep_ensembles.training import Recipe

_KINDS: dict[str, type[DeepEnsembleRegressor] | type[DeepEnsembleClassifier]] = {
    each.__name__: each for each in (DeepEnsembleRegressor, DeepEnsembleClassifier)
}


def load(
    path: str | os.PathLike[str],
    *,
    network: NetworkFactory | None = None,
    head: HeadFunction | None = None,
    device: str | torch.device = "auto",
) -> Any:
    """The model in a folder that `save` wrote: an estimator, a `TableModel`, or an `Ensemble`.

    Arguments:
        path: the folder.
        network: the factory, if the model was built from your own module.
        head: the head, if it was your own.
        device: where to put it.
    """
    config, tensors = read_model(path)
    kind = config.get("kind")
    if kind not in ("Ensemble", "TableModel", *_KINDS):
        raise ModelFileError(f"{path} holds a {kind!r}, which this version does not know")
    target = Recipe(device=device).torch_device()
    factory: Any = network
    if kind in _KINDS and network is not None:
        shell = _KINDS[kind](network=network)
        outputs = config["ensemble"]["n_outputs"]
        factory = shell.network_factory(config["fitted"]["n_features_in_"], outputs, n_rows=0)
    ensemble = Ensemble.from_file(config["ensemble"], tensors, factory, head, target)
    if kind == "Ensemble":
        return ensemble
    if kind == "TableModel":
        # Loaded now, as it needs pyarrow, which other models do not.
        return importlib.import_module("deep_ensembles.tabular").TableModel.from_file(config, ensemble)
    model = _KINDS[kind].from_file(config, ensemble)
    given = {"network": network, "head": head}
    return model.set_params(**{name: value for name, value in given.items() if value is not None})

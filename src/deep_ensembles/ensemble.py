"""A fitted ensemble: members, head and units together; inputs → a mixture."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._checks import check_integer, require
from deep_ensembles._files import ModelFileError, write_model
from deep_ensembles._random import Purpose, RandomState, run_seeds, torch_seed
from deep_ensembles.distributions import rebuilt, rescaled
from deep_ensembles.heads import HeadFunction
from deep_ensembles.members import Factory, Members, concatenated_members, rebuild
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import FitRecalibration, Prediction, Recalibration, choose
from deep_ensembles.settings import NotSaved, describe, restore
from deep_ensembles.training import Standardization
from deep_ensembles.training.parts import InputParts, NetworkFactory, count_rows, input_batches

_BATCH_ELEMENTS = 2**20
_BATCH_ROWS, _BATCH_ROWS_OF_GPU = 512, 16384  # what a cache holds; a GPU takes more
_PASSES = 16  # whose outputs become one prediction: quantiles take many small operations, whatever the number of rows
# What a model file may ask for: numbers in a row, in a row that a network is tried on, and outputs.
_MOST_FEATURES, _MOST_TRIED, _MOST_OUTPUTS = 2**26, 2**19, 2**22
_GROUPS = ("parameter", "buffer", "standardization")  # of the tensors of a model file
_LONGEST_NETWORK = 2**16  # characters that say how a network is built


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """Networks trained on the same task, combined as a mixture; made by `fit_ensemble`.

    Arguments:
        members: the networks.
        head: raw output → distribution.
        standardization: the units of each member.
        feature_shape: the shape of one input row; of a dict or tuple, how many numbers it has.
        n_outputs: how many raw outputs a network has.
        network: plain data that says how networks are built (see `settings`), for the model file.
        seeds: the seed of each member.
        weights: the weight of each member in the mixture; uniform by default.
        history: `[2, member, epoch]`: training loss and held-out score, NaN where there is none.
        recalibration: what held-out rows have put right, applied to every prediction; none by default.
        parts: what an input is made of, where networks take a dict or tuple of tensors.
        out_of_fold_members: `[k, row]`: k members that were not trained on each of the training rows; None where a row has
            none.
        out_of_fold_raw: `[k, row, raw]`: their raw outputs for it, where those are not of the weights that were kept: a row
            that helped to choose these is predicted at the epoch that other rows chose.
        out_of_fold_rows: the numbers of those training rows, where only a sample of them is held in memory.
    """

    members: Members
    head: HeadFunction
    standardization: Standardization
    feature_shape: tuple[int, ...]
    n_outputs: int
    network: Any = None
    seeds: tuple[int, ...] = ()
    weights: Tensor | None = None
    history: np.ndarray | None = None
    recalibration: Recalibration | None = None
    parts: InputParts | None = None
    out_of_fold_members: np.ndarray | None = None
    out_of_fold_raw: Tensor | None = None
    out_of_fold_rows: np.ndarray | None = None
    origin: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"origin": None}  # holds a user's functions, which seldom can be pickled

    @property
    def n_members(self) -> int:
        """How many networks there are."""
        return len(self.members)

    def __repr__(self) -> str:
        module: Any = self.members.modules[0]
        kind = type(module if self.parts is None else module.network)
        return f"Ensemble({self.n_members} × {kind.__name__}, head={self.head}, {self.members.kind})"

    def __call__(self, inputs: Any, batch_size: int | None = None) -> Prediction:
        """The prediction for new inputs in the units of the targets: a mixture, recalibrated if the ensemble is.

        Arguments:
            inputs: as for `fit_ensemble`; a dataset's items may be inputs alone.
            batch_size: rows per pass; the default bounds memory.
        """
        return self._recalibrated(self.mixture(inputs, batch_size))

    def mixture(self, inputs: Any, batch_size: int | None = None) -> Mixture:
        """The mixture of the members as they were trained, whatever the recalibration."""
        return self._mixture(self._raw(inputs, batch_size))

    def _recalibrated(self, mixture: Mixture) -> Prediction:
        return mixture if self.recalibration is None else self.recalibration(mixture)

    def recalibrated(self, inputs: Any, target: Any, fit: FitRecalibration = choose) -> Ensemble:
        """The ensemble with a recalibration fitted on rows that no member has seen.

        Arguments:
            fit: `variance_scaling`, `temperature`, `isotonic` or `conformal`; by default whichever the rows prefer.
        """
        return dataclasses.replace(self, recalibration=fit(self.mixture(inputs), target))

    def out_of_fold(self, inputs: Any) -> Mixture:
        """Each training row predicted by the members that were not trained on it, which is free where members hold rows out.

        With early stopping, each half of a member's held-out rows is predicted as of the epoch that was best for the other
        half, so that the choice of an epoch flatters no row.

        Arguments:
            inputs: the inputs that the ensemble was trained on, in the same order; of `out_of_fold_rows`, if there are such.
        """
        if self.out_of_fold_members is None:
            raise ValueError("some rows were seen by every member; train with `folds=ComplementaryFolds()`")
        n, expected = count_rows(inputs, self.parts), self.out_of_fold_members.shape[1]
        require(n == expected, "inputs", f"the {expected} training rows", f"{n} rows")
        members, rows = torch.from_numpy(self.out_of_fold_members), torch.arange(expected)
        kept = self.out_of_fold_raw
        if kept is None or bool(kept.isnan().any()):
            raw = self._raw(inputs, None)
        else:  # what members say of rows that they have seen is of no use
            raw = kept.new_zeros(self.n_members, expected, *kept.shape[2:])
        if kept is not None:
            raw[members, rows] = torch.where(kept.isnan(), raw[members, rows], kept.to(raw))
        weights = None if self.weights is None else self.weights[members[:, 0]]
        return Mixture(rebuilt(self._mixture(raw).components, lambda parameter: parameter[members, rows]), weights)

    def _raw(self, inputs: Any, batch_size: int | None) -> Tensor:
        """All raw outputs `[member, row, raw]`."""
        return torch.cat([self.members(seen) for seen in self._seen_batches(inputs, batch_size)], dim=1)

    def _mixture(self, raw: Tensor, repeats: int = 1) -> Mixture:
        """The mixture for raw outputs `[member · repeat, row, raw]`, in the units of the targets."""
        distribution, precise = self.head(raw), torch.float32 if raw.device.type == "mps" else torch.float64
        shift, scale = self.standardization.target_shift, self.standardization.target_scale
        if shift is not None and scale is not None:
            units = (unit.to(raw.device, precise).unsqueeze(1).repeat_interleave(repeats, 0) for unit in (shift, scale))
            distribution = rescaled(distribution, *units)
        elif not isinstance(distribution, torch.distributions.Categorical):
            distribution = rebuilt(distribution, lambda parameter: parameter.to(precise))
        return Mixture(distribution, None if self.weights is None else self.weights.repeat_interleave(repeats))

    def sampled(
        self, inputs: Any, n_samples: int, random_state: RandomState = None, batch_size: int | None = None
    ) -> Mixture:
        """The mixture of `n_samples` draws of each member with dropout left on: Monte Carlo dropout.

        References:
            Gal & Ghahramani (2016).
        """
        check_integer("n_samples", n_samples, low=1)
        seeds = run_seeds(random_state, n_samples * self.n_members)
        raws = []
        for number, seen in enumerate(self._seen_batches(inputs, batch_size)):
            own = [torch_seed(seed, Purpose.NOISE, number) for seed in seeds]
            draws = [self.members.sample(seen, own[i::n_samples]) for i in range(n_samples)]
            raws.append(torch.stack(draws, dim=1).flatten(0, 1))  # [member · sample, row, raw]
        return self._mixture(torch.cat(raws, dim=1), n_samples)

    def batches(self, inputs: Any, batch_size: int | None = None) -> Iterator[Prediction]:
        """Predictions for consecutive batches of rows, for results that must not be held all at once."""
        raws = map(self.members, self._seen_batches(inputs, batch_size))
        while several := list(islice(raws, _PASSES if batch_size is None else 1)):
            yield self._recalibrated(self._mixture(torch.cat(several, dim=1)))

    def subset(self, members: int | Sequence[int]) -> Ensemble:
        """An ensemble of the first so many members, or of these; without the recalibration, which was for all of them."""
        chosen = list(range(members)) if isinstance(members, int) else list(members)
        require(bool(chosen) and all(0 <= m < self.n_members for m in chosen), "members",
                f"members from 0 to {self.n_members - 1}, at least one", members)  # fmt: skip
        return self._with_members(
            members=self.members.select(chosen),
            standardization=self.standardization.select(chosen),
            seeds=tuple(self.seeds[m] for m in chosen),
            weights=None if self.weights is None else self.weights[chosen],
            history=None if self.history is None else self.history[:, chosen],
        )

    def _with_members(self, **parts: Any) -> Ensemble:
        """The ensemble with other members, without what was known of its own together."""
        unknown: dict[str, Any] = dict.fromkeys(("recalibration", "out_of_fold_members", "out_of_fold_raw", "origin"))
        return dataclasses.replace(self, **unknown | parts)

    @classmethod
    def joined(cls, ensembles: Sequence[Ensemble], shares: Sequence[float]) -> Ensemble:
        """Ensembles of the same architecture, head and rows as one; without recalibration.

        Arguments:
            shares: the weight of each of them, given to its members in equal parts.
        """
        first, counts = ensembles[0], [ensemble.n_members for ensemble in ensembles]
        kinds = [(repr(ensemble.members.modules[0]), ensemble.head) for ensemble in ensembles]
        require(all(kind == kinds[0] for kind in kinds), "ensembles", "of one architecture and head", ensembles)
        starts = np.cumsum([0, *counts[:-1]])
        unseen = [e.out_of_fold_members if e.out_of_fold_members is None else e.out_of_fold_members + start
                  for e, start in zip(ensembles, starts, strict=True)]  # fmt: skip
        return first._with_members(
            members=concatenated_members([ensemble.members for ensemble in ensembles]),
            standardization=Standardization.stack([ensemble.standardization for ensemble in ensembles], torch.cat),
            network=[ensemble.network for ensemble in ensembles],
            seeds=tuple(seed for ensemble in ensembles for seed in ensemble.seeds),
            weights=torch.from_numpy(np.repeat(np.divide(shares, counts), counts)),
            history=_concatenated(np.concatenate, [ensemble.history for ensemble in ensembles], 1),
            out_of_fold_members=_concatenated(np.concatenate, unseen),
            out_of_fold_raw=_concatenated(torch.cat, [ensemble.out_of_fold_raw for ensemble in ensembles]),
        )

    def to(self, device: str | torch.device) -> Ensemble:
        """The same ensemble on another device."""
        return dataclasses.replace(self, members=self.members.to(torch.device(device)))

    def _seen_batches(self, inputs: Any, batch_size: int | None) -> Iterator[Tensor]:
        """Inputs as each member sees them, `[member, batch, *features]`, in batches of bounded size."""
        check_integer("batch_size", batch_size, low=1, optional=True)
        most = _BATCH_ROWS if self.members.device.type == "cpu" else _BATCH_ROWS_OF_GPU
        size = batch_size or max(1, min(most, _BATCH_ELEMENTS // max(1, math.prod(self.feature_shape))))
        shared = self.standardization.shared
        for batch in input_batches(inputs, size, self.parts):
            if tuple(batch.shape[1:]) != self.feature_shape:
                raise ValueError(f"`inputs` must have shape {['n', *self.feature_shape]}, got {list(batch.shape)}")
            dtype = self.members.parameters.flat.dtype
            seen = self.standardization.inputs(batch[None], dtype, slice(0, 1) if shared else slice(None))
            yield seen.to(self.members.device).expand(self.n_members, *seen.shape[1:])

    # -- model files ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder that `deep_ensembles.load` reads."""
        write_model(path, {"kind": "Ensemble", "ensemble": self.config()}, self.tensors())

    def config(self) -> dict[str, Any]:
        """Everything but the tensors, as plain data."""
        return {
            "members": self.members.kind,
            "n_members": self.n_members,
            "seeds": [str(seed) for seed in self.seeds],
            "head": describe(self.head),
            "recalibration": describe(self.recalibration),
            "network": self.network,
            "architecture": repr(self.members.modules[0]),
            "feature_shape": list(self.feature_shape),
            "n_outputs": self.n_outputs,
        } | ({} if self.parts is None else {"parts": dataclasses.asdict(self.parts)})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors, by name."""
        parts = (self.members.parameters.views, self.members.buffers, self.standardization.tensors())
        groups = zip(_GROUPS, parts, strict=True)
        named = {f"{group}.{name}": tensor for group, part in groups for name, tensor in part.items()}
        named |= {} if self.weights is None else {"weights": self.weights}
        return named | ({} if self.history is None else {"history": torch.from_numpy(self.history)})

    @classmethod
    def from_file(
        cls, config: dict[str, Any], tensors: dict[str, Tensor], network: Factory | None, head: Any, device: torch.device
    ) -> Ensemble:
        """The ensemble that `config` and `tensors` describe, if they agree."""
        require(len(repr(config["network"])) < _LONGEST_NETWORK, "network", "described in fewer words", "…")
        described = config["network"][0] if isinstance(config["network"], list) else config["network"]
        build = _restored("network", described, "pass `load(path, network=factory)`") if network is None else network
        named, trained = (re.sub(" at 0x[0-9a-f]+", "", str(what)) for what in (describe(head), config["head"]))
        if head is not None and named != trained:
            raise ModelFileError(f"the head is not the one that was trained, {trained[:100]}, but {named[:100]}")
        head = _restored("head", config["head"], "pass `load(path, head=...)`") if head is None else head
        recalibration = _restored("recalibration", config.get("recalibration"), "no file can hold it")
        seeds, features = _checked_sizes(config)
        _check_tensors(tensors, len(seeds), features)
        structure = None if config.get("parts") is None else InputParts.from_file(config["parts"], features)
        build = build if structure is None else NetworkFactory(build, structure)
        parts = {group: _part(tensors, f"{group}.") for group in _GROUPS}
        trusted, example = network is not None, torch.zeros(1).expand(2, *features)
        members = rebuild(build, seeds, config["members"], parts["parameter"], parts["buffer"], example, trusted=trusted)
        if trusted and (built := repr(members.modules[0])) != config["architecture"]:
            raise ModelFileError(f"the network is not the one that was trained, {config['architecture']}, but {built}")
        ensemble = cls(
            members=members.to(device),
            head=head,
            standardization=Standardization(**parts["standardization"]),
            feature_shape=features,
            n_outputs=config["n_outputs"],
            network=config["network"],
            seeds=seeds,
            weights=tensors.get("weights"),
            history=tensors["history"].numpy() if "history" in tensors else None,
            recalibration=recalibration,
            parts=structure,
        )
        ensemble._check_prediction(trusted)
        return ensemble

    def _check_prediction(self, trusted: bool) -> None:
        """Predict a row, to see whether network, head, units and recalibration fit together.

        A caller's network may want inputs of another kind than numbers, and is not called.
        """
        raw = torch.zeros(self.n_members, 1, self.n_outputs, device=self.members.device)
        if not trusted and math.prod(self.feature_shape) <= _MOST_TRIED:
            dtype = self.members.parameters.flat.dtype
            raw = self.members(torch.zeros(self.n_members, 1, *self.feature_shape, dtype=dtype, device=raw.device))
        require(raw.shape == (self.n_members, 1, self.n_outputs), "n_outputs", f"{raw.shape[-1]}", self.n_outputs)
        require(bool(raw.isfinite().all()), "model", "one that predicts finite numbers", "NaN or infinity")
        event, mixture = self.head(raw).event_shape, self._mixture(raw)
        require((mixture.batch_shape, mixture.event_shape) == ((1,), event), "standardization", "of the head's targets",
                [list(tensor.shape) for tensor in self.standardization.tensors().values()])  # fmt: skip
        self._recalibrated(mixture)


def _concatenated(join: Callable[..., Any], parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays or tensors as one; None where there is none for some."""
    return None if any(part is None for part in parts) else join(parts, axis)


def _restored(name: str, data: Any, cure: str) -> Any:
    """What a model file describes, unless it was a user's own."""
    value = restore(data)
    if isinstance(value, NotSaved):
        raise ModelFileError(f"the model has your own {name}, {value.description}; {cure}")
    return value


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checked_sizes(config: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The seeds and the shape of a row, in a configuration whose numbers can be right."""
    features, n_outputs, seeds = config["feature_shape"], config["n_outputs"], tuple(map(int, config["seeds"]))
    possible = all(type(size) is int and size >= 1 for size in (n_outputs, *features)) and len(features) < 10
    possible = possible and math.prod(features) <= _MOST_FEATURES and n_outputs <= _MOST_OUTPUTS
    require(possible, "feature_shape", "of possible sizes", [*features, n_outputs])
    known = [str(seed) for seed in seeds if 0 <= seed < 2**64]
    require(known == config["seeds"] and len(known) == config["n_members"], "seeds", "one number per member", known)
    return seeds, tuple(features)


def _check_tensors(tensors: dict[str, Tensor], n_members: int, features: tuple[int, ...]) -> None:
    """Stored tensors must belong to so many members and rows of that shape, and be finite but for the history."""
    for name, tensor in tensors.items():
        group, _, field = name.partition(".")
        require(group in _GROUPS if field else name in ("weights", "history"), "tensor", "one that a model has", name)
        members = tensor.shape[1:2] if name == "history" else tensor.shape[:1]
        require(members == (n_members,), name, f"of {n_members} members", list(tensor.shape))
        if group != "buffer":
            finite = name == "history" or bool(tensor.isfinite().all())
            require(tensor.is_floating_point() and finite, name, "finite numbers", f"NaN, infinity or {tensor.dtype}")
        if name.startswith("standardization.input"):
            sizes = zip(tensor.shape[1:], features, strict=False)
            fits = tensor.dim() == 1 + len(features) and all(size in (1, feature) for size, feature in sizes)
            require(fits, name, f"of rows of shape {list(features)}", list(tensor.shape))
        if group == "standardization" and name.endswith(("_scale", "_shift")):
            both = {f"{name[:-6]}_scale", f"{name[:-6]}_shift"} <= set(tensors)
            require(both, name, "a shift beside a scale", list(tensors))
            require(name.endswith("_shift") or bool((tensor > 0).all()), name, "more than 0", "less")
    history = tensors.get("history")
    require(history is None or (history.dim() == 3 and len(history) == 2), "history", "of shape [2, member, epoch]", history)

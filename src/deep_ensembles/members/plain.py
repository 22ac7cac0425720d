"""Members that are plain multi-layer perceptrons: batched matrix products and a backward pass by hand."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from deep_ensembles._random import torch_generators
from deep_ensembles.members._base import Members, hooks
from deep_ensembles.members._layers import LAYERS, Tensors, make_layers, through
from deep_ensembles.networks.periodic_mlp import Vectors


def is_plain(module: nn.Module) -> bool:
    """Whether a network is a sequence of layers that are known here (see `LAYERS`), and skips of such."""
    if type(module) is not nn.Sequential or any(any(hooks(part)) for part in module.modules()):
        return False  # one that does more than it says
    places, weights = (list(named(remove_duplicate=False)) for named in (module.named_modules, module.named_parameters))
    if len(places) > len(list(module.modules())) or len(weights) > len(list(module.parameters())):
        return False  # a layer or a weight that stands in two places
    layers = [part for _, part in places[1:]]
    known = all(type(layer) in LAYERS for layer in layers) and all(weight.requires_grad for _, weight in weights)
    norms = [layer for layer in layers if isinstance(layer, nn.BatchNorm1d)]
    usual = all(norm.affine and norm.track_running_stats and norm.momentum is not None for norm in norms)
    usual = usual and all(getattr(layer, "approximate", "none") == "none" for layer in layers)
    return known and usual and isinstance(module[-1], nn.Linear)


class Plain(Members):
    """About four times less time per step than automatic differentiation on small networks, where overhead rules."""

    kind: ClassVar[str] = "plain"
    uses_autograd: ClassVar[bool] = False

    def _bind(self, parameters: dict[str, Tensor]) -> None:
        module = self.modules[0]
        self._layers = make_layers(module, Tensors(parameters, self._gradients, self._buffers))
        self._layers[-1].is_last = True  # type: ignore[attr-defined]
        trained = [i for i, part in enumerate(module.children()) if any(True for _ in part.parameters())]
        self._n_fixed = trained[0]  # layers at the front that have nothing to learn
        drops = [getattr(part, "p", 1) > 0 for part in module.modules() if isinstance(part, (Vectors, nn.Dropout))]
        self.traits.needs_seeds = any(drops)

    def sample(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        with torch.no_grad():
            return through(self._layers, "evaluate", inputs, torch_generators(seeds, inputs.device))

    def forward(self, inputs: Tensor, seeds: Sequence[int], input_gradient: bool = False) -> Tensor:
        generators = torch_generators(seeds, inputs.device) if self.traits.needs_seeds else []
        self._input_gradient = input_gradient
        return through(self._layers, "forward", inputs.detach(), generators)

    def backward(self, raw_gradient: Tensor, accumulate: bool = False) -> Tensor | None:
        gradient: Any = raw_gradient
        stop = 0 if self._input_gradient else self._n_fixed
        for number in range(len(self._layers) - 1, stop - 1, -1):
            needed = self._input_gradient or number > stop
            gradient = self._layers[number].backward(gradient, accumulate, needed)
        return gradient.clone() if self._input_gradient else None  # the next step writes over it

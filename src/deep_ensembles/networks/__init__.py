"""Networks: functions that build an `nn.Module`."""

from deep_ensembles.networks.image_networks import convnet, inception, vgg
from deep_ensembles.networks.mlp import mlp
from deep_ensembles.networks.periodic_mlp import periodic_mlp

__all__ = ["convnet", "inception", "mlp", "periodic_mlp", "vgg"]

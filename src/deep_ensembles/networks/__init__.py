"""Networks: functions that build an `nn.Module`. One file per architecture."""

from deep_ensembles.networks.convnet import convnet
from deep_ensembles.networks.inception import inception
from deep_ensembles.networks.mlp import mlp
from deep_ensembles.networks.periodic_mlp import periodic_mlp
from deep_ensembles.networks.vgg import vgg

__all__ = ["convnet", "inception", "mlp", "periodic_mlp", "vgg"]

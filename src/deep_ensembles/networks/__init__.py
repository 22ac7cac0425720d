"""Networks: functions that build an `nn.Module`. One file per architecture."""

from deep_ensembles.networks.mlp import mlp

__all__ = ["mlp"]

"""Heads: raw network outputs → a predictive distribution. One file per head."""

from deep_ensembles.heads._base import Head, HeadFunction, rescaled
from deep_ensembles.heads.categorical import Categorical
from deep_ensembles.heads.normal import Normal
from deep_ensembles.heads.point import Delta, Point

__all__ = ["Categorical", "Delta", "Head", "HeadFunction", "Normal", "Point", "rescaled"]

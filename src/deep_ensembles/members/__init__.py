"""Members: M networks as one. The fastest way that a network allows is chosen by `assemble`."""

from deep_ensembles.members._assemble import Factory, assemble, new_modules, rebuild
from deep_ensembles.members._base import Members, concatenated_members, copy_members, copy_module
from deep_ensembles.members.any_network import Looped, Stacked
from deep_ensembles.members.plain import Plain

__all__ = [
    "Factory", "Looped", "Members", "Plain", "Stacked", "assemble", "concatenated_members", "copy_members", "copy_module",
    "new_modules", "rebuild",
]  # fmt: skip

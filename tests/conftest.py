"""Small networks are fastest on one thread, above all where other programs run."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

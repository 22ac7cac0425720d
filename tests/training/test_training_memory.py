"""Large rows, such as pictures, must not be held several times over."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from deep_ensembles import fit_ensemble, mlp
from deep_ensembles.training.batches import BatchLoader
from deep_ensembles.training.data import _CHUNK_NUMBERS, InMemory, Moments, Standardization, Streamed, row_statistics

PICTURES = torch.rand(400, 3, 64, 64, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(400) % 7


@pytest.mark.parametrize(
    "rows", [InMemory(PICTURES, LABELS), Streamed(TensorDataset(PICTURES, LABELS))], ids=["memory", "streamed"]
)
def test_pictures_are_looked_at_few_at_a_time(rows):
    chunks = list(rows.chunks(np.arange(400)))
    assert max(inputs.numel() for inputs, _, _ in chunks) <= _CHUNK_NUMBERS
    assert torch.equal(torch.cat([inputs for inputs, _, _ in chunks]), PICTURES)
    whole, found = Moments.of(PICTURES), row_statistics(rows, np.arange(400), True).standardization
    torch.testing.assert_close(found.input_scale, whole.pooled().scale().expand_as(whole.mean))


def test_a_picture_larger_than_a_chunk_is_a_chunk():
    rows = InMemory(torch.zeros(3, _CHUNK_NUMBERS + 1), torch.zeros(3))
    assert [len(inputs) for inputs, _, _ in rows.chunks(np.arange(3))] == [1, 1, 1]


def test_tables_are_looked_at_thousands_at_a_time():
    rows = InMemory(torch.zeros(10_000, 100), torch.zeros(10_000))
    assert [len(inputs) for inputs, _, _ in rows.chunks(np.arange(10_000))] == [8192, 1808]


def test_rows_that_need_no_change_are_not_copied():
    loader = BatchLoader(InMemory(PICTURES, LABELS), Standardization(), [1.0], [0], PICTURES)
    assert loader.prepared.inputs.data_ptr() == PICTURES.data_ptr()


def test_columns_are_turned_into_rows_once():
    table = torch.rand(7, 400).T
    loader = BatchLoader(InMemory(table, LABELS), Standardization(), [1.0], [0], table)
    assert loader.prepared.inputs.is_contiguous()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_a_number_that_is_not_finite_is_found_without_a_copy(name, value):
    data = {"inputs": np.ones((9, 2), np.float32), "targets": np.ones(9)}
    data[name][7] = value
    with pytest.raises(ValueError, match=f"`{name}` must be finite, got NaN or infinity"):
        fit_ensemble(functools.partial(mlp, 2, 2), **data)


TRAIN = """
import resource, torch
from torch import nn
from deep_ensembles import fit_ensemble

torch.set_num_threads(1)
pictures, labels = torch.rand(4000, 3, 64, 64), torch.arange(4000) % 10
build = lambda: nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
fit = lambda rows: fit_ensemble(build, pictures[:rows], labels[:rows], n_members=2, max_epochs=1, standardize_inputs=False)
fit(400)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fit(4000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / pictures.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_training_on_pictures_takes_little_more_memory_than_they_do():
    told = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True).stdout
    assert float(told) < 1.5  # times the pictures' own; each copy in float64 would be 2

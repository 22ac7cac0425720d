"""Run all benchmarks, or those named on the command line, and print one line per figure."""

from __future__ import annotations

import argparse
import os

import torch

from benchmarks.busy_cores import busy_cores
from benchmarks.default_step import default_step
from benchmarks.hundred_runs import concrete_splits, hundred_runs
from benchmarks.images import vgg_step, wide_adversarial
from benchmarks.linear_growth import linear_growth
from benchmarks.measuring import HEADER, Line
from benchmarks.one_scikit_learn_mlp import one_scikit_learn_mlp
from benchmarks.prediction_memory import prediction_memory
from benchmarks.processes import processes
from benchmarks.small_ensemble import small_ensemble, small_ensemble_adversarial
from benchmarks.starting import command_start, import_cost
from benchmarks.student_t_step import student_t_step
from benchmarks.tables import tables
from benchmarks.wide_batch_norm import wide_batch_norm

# Read by OpenMP and MKL when torch is loaded, and inherited by subprocesses.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


BENCHMARKS = {
    each.__name__: each
    for each in (
        small_ensemble,
        small_ensemble_adversarial,
        hundred_runs,
        concrete_splits,
        wide_batch_norm,
        wide_adversarial,
        vgg_step,
        default_step,
        student_t_step,
        one_scikit_learn_mlp,
        import_cost,
        command_start,
        linear_growth,
        prediction_memory,
        processes,
        busy_cores,
        tables,
    )
}


def main() -> None:
    torch.set_num_threads(1)
    names = _names()
    print(HEADER, flush=True)
    reached = [line.reached for name in names for line in _lines(name)]
    print(f"{sum(reached)} of {len(reached)} reached")


def _names() -> list[str]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return names


def _lines(name: str) -> list[Line]:
    """The lines of one benchmark, printed; one that fails is told and does not end the others."""
    try:
        lines = BENCHMARKS[name]()
    except Exception as error:
        lines = [Line(name, failure=f"{type(error).__name__}: {error}")]
    for line in lines:
        print(line, flush=True)
    return lines


if __name__ == "__main__":
    main()

"""What the package adds to the imports that it needs, and how long the command line's help takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Line, side_by_side

NEEDED = "import torch, sklearn.base"
OURS = f"{NEEDED}; import deep_ensembles; deep_ensembles.DeepEnsembleRegressor"


def import_cost() -> list[Line]:
    """New processes, in turn; the figures are the difference of the medians, and the median."""
    ours, other, help_seconds = side_by_side(
        lambda: _run(sys.executable, "-c", OURS),
        lambda: _run(sys.executable, "-c", NEEDED),
        lambda: _run(str(Path(sys.executable).with_name("deep-ensembles")), "--help"),
        repeats=7,
    )
    return [
        Line("import_cost", ours, other, ours - other, 0.3, at_most=True, figure_unit="s"),
        Line("import_cost_help", help_seconds, None, help_seconds, 0.7, at_most=True, figure_unit="s"),
    ]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

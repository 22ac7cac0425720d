"""A bar on a terminal, silence elsewhere, and nothing imported for either."""

from __future__ import annotations

import subprocess
import sys

import pytest
from _processes import not_on_windows, shown_by

from deep_ensembles._terminal import progress

SCRIPT = """
import numpy as np
from deep_ensembles import DeepEnsembleRegressor
X = np.random.default_rng(0).normal(size=(200, 2))
DeepEnsembleRegressor(n_members=3, max_epochs=4, verbose={verbose}, random_state=0).fit(X, X[:, 0])
"""


def stderr_of(verbose: int, terminal: bool) -> str:
    return shown_by([sys.executable, "-c", SCRIPT.format(verbose=verbose)], terminal)


@not_on_windows
def test_a_bar_on_a_terminal() -> None:
    shown = stderr_of(verbose=2, terminal=True)
    for word in ("training", "epoch", "4/4", "members", "score", "left"):
        assert word in shown


@not_on_windows
@pytest.mark.parametrize(("verbose", "terminal"), [(2, False), (0, True)])
def test_silence_otherwise(verbose: int, terminal: bool) -> None:
    assert stderr_of(verbose, terminal) == ""


BAR = """
from deep_ensembles._terminal import progress
with progress("reading", None, "{unit}") as update:
    update(advance=1_000_000, total=2_000_000, note="the first half")
    update(completed=2_000_000)
"""


@pytest.mark.parametrize(("unit", "shown"), [("rows", "2000000/2000000"), ("bytes", "2.0/2.0 MB")])
def test_a_bar_counts_in_its_unit(unit: str, shown: str) -> None:
    terminal = shown_by([sys.executable, "-c", BAR.format(unit=unit)], True)
    for word in ("reading", "the first half", shown):
        assert word in terminal
    assert shown_by([sys.executable, "-c", BAR.format(unit=unit)], False) == ""


def test_what_shows_nothing_imports_nothing() -> None:
    code = "import sys; from deep_ensembles import _terminal; _terminal.Listing('', []); print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_a_pipe_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("deep_ensembles._terminal.time.monotonic", lambda: now)
    with progress("training\x1b[31m", 100, "epochs") as update:
        for _ in range(100):
            now += 1.0
            update(advance=1, note="loss 1")
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [f"training\\u001b[31m: {n} of 100 epochs, {n} s" for n in (10, 40, 70, 100)]
    with progress("predicting", None, "rows", verbose=0) as update:
        now += 100
        update(advance=1)
    assert capsys.readouterr().err == ""

"""Out of memory, a full disk, Ctrl-C and being told to end: a sentence, exit code 1, nothing half-written."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _commands import DROP, QUICK, done, refused, run
from _processes import not_on_windows, started

import deep_ensembles.tabular.predict  # noqa: F401 (before what it imports is replaced)

SHORT = "there is not enough memory; close other programs, or take fewer rows or columns; "
ANEW = "nothing was written, and the same command starts anew"
CODE = "import sys; from deep_ensembles.cli import app; app(sys.argv[1:])"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def command_of(name: str, folder: Path, out: Path) -> list[Any]:
    """A command, what it writes under `out`."""
    fit = ["fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", out / "m"]
    commands = {
        "fit": fit,
        "fit --report": [*fit, "--report", out / "r.html"],
        "predict": ["predict", folder / "price-model", folder / "new.csv", "--out", out / "p.csv"],
        "predict .csv.gz": ["predict", folder / "price-model", folder / "new.csv", "--out", out / "p.csv.gz"],
        "predict .parquet": ["predict", folder / "price-model", folder / "new.csv", "--out", out / "p.parquet"],
        "evaluate": ["evaluate", folder / "price-model", folder / "new.csv", "--report", out / "r.html"],
        "compare": ["compare", folder / "houses.csv", "--target", "price", *DROP, "--effort", "fast"],
        "explain": ["explain", folder / "price-model", folder / "new.csv"],
    }
    return commands[name]


COMMANDS = ("fit", "predict", "evaluate", "compare", "explain")


def no_memory_in_numpy() -> None:
    np.empty(10**15)


def no_memory_in_torch() -> None:
    torch.empty(10**15)


@pytest.mark.parametrize("allocate", [no_memory_in_numpy, no_memory_in_torch])
@pytest.mark.parametrize("command", COMMANDS)
def test_out_of_memory(command: str, allocate: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "evaluate" if command == "explain" else command
    monkeypatch.setattr(f"deep_ensembles.tabular.{home}.{command}_table", lambda *given, **others: allocate())
    said = refused(*command_of(command, folder, tmp_path))
    assert said.startswith(SHORT)
    if command != "compare":  # which keeps folds, and says so
        assert said == SHORT + (ANEW if command == "fit" else "nothing was written")
    assert names_in(tmp_path) == []


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """As a disk that is nearly full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@not_on_windows
@pytest.mark.parametrize("name", ["fit", "predict", "predict .csv.gz", "predict .parquet", "evaluate"])
def test_a_full_disk(name: str, folder: Path, tmp_path: Path) -> None:
    with files_of_at_most(3000):
        said = refused(*command_of(name, folder, tmp_path))
    left = ANEW if name == "fit" else "nothing was written"
    assert said.startswith("the disk is full, or a file may not be so large (")
    assert os.strerror(errno.EFBIG) in said
    assert said.endswith(f"); {left}")
    assert names_in(tmp_path) == []


def test_a_disk_that_is_too_full_for_the_page_keeps_the_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("deep_ensembles.report.Report.save", full)
    said = refused(*command_of("fit --report", folder, tmp_path))
    assert said.endswith(f"; {tmp_path / 'm'} was written before, and is whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]
    done("predict", tmp_path / "m", folder / "new.csv", "--out", tmp_path / "p.csv")


@pytest.mark.parametrize(("left", "says"), [("", f"stopped; {ANEW}\n"), ("-2", "stopped; the same command goes on from ")])
def test_stopped_fits_promise_only_what_is_there(
    left: str, says: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any, checkpoint: Any, **others: Any) -> None:
        if left:
            checkpoint.path.with_name(checkpoint.path.name + left).write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr("deep_ensembles.tabular.fit.fit_table", stopped)
    result = run(*command_of("fit", folder, tmp_path))
    assert (result.exit_code, result.stderr.startswith(says)) == (1, True)


@not_on_windows
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP] if hasattr(signal, "SIGHUP") else [signal.SIGTERM])
def test_who_is_told_to_end_stops_as_by_ctrl_c(
    number: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*given: Any, **others: Any) -> None:
        signal.raise_signal(number)

    before = signal.signal(number, signal.SIG_DFL)  # whoever starts the tests may have it ignored
    try:
        monkeypatch.setattr("deep_ensembles.tabular.predict.predict_table", ended)
        result = run(*command_of("predict", folder, tmp_path))
        assert (result.exit_code, result.stderr) == (1, "stopped; nothing was written\n")
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


LONG = ["--members", "2", "--max-epochs", "100000", "--seed", "1", "--effort", "fast"]


@not_on_windows
@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT], [signal.SIGINT, signal.SIGTERM]])
def test_a_training_that_is_ended_leaves_what_it_says(numbers: list[int], folder: Path, tmp_path: Path) -> None:
    """Ended once, it writes its state first; ended twice it may not have, and says so."""
    fit = [folder / "houses.csv", "--target", "price", *DROP, *LONG, "--out", tmp_path / "m"]
    command = [sys.executable, "-c", CODE, "fit", *map(str, fit)]
    with started(command, stdout=-1, stderr=-1, text=True) as process:  # type: ignore[call-overload]
        while "rows are used" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(3)
        for number in numbers:
            process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    # A second signal may come when the sentence has been said and Python itself is ending, which it then says too.
    assert process.returncode == 1 or (len(numbers) > 1 and process.returncode == -numbers[1])
    names = names_in(tmp_path)
    assert all(re.fullmatch(r"\.m\.[0-9a-f]{12}\.checkpoint", name) for name in names)
    goes_on = f"stopped; the same command goes on from what it left beside {tmp_path / 'm'}\n"
    says = goes_on if names else f"stopped; {ANEW}\n"
    assert errors.startswith(says) if len(numbers) > 1 else errors == says
    assert names or len(numbers) > 1

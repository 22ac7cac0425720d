"""The command line and the demo."""

from __future__ import annotations

from pathlib import Path

from _processes import printed
from typer.testing import CliRunner

import deep_ensembles
from deep_ensembles import load
from deep_ensembles.cli import app


def test_version_and_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == f"deep-ensembles {deep_ensembles.__version__}"
    assert "demo" in runner.invoke(app, ["--help"]).output
    assert runner.invoke(app, ["nonsense"]).exit_code == 2


def test_help_does_not_load_torch() -> None:
    code = "import sys; from deep_ensembles.cli import app; print('torch' in sys.modules)"
    assert printed(code).strip() == "False"


def test_demo(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for word in ("NLL", "RMSE", "Brier", "accuracy", "ensemble of 5", "one network", "least sure"):
        assert word in result.output
    assert (tmp_path / "out" / "demo.png").stat().st_size > 20_000
    assert load(tmp_path / "out" / "diabetes-model").predict([[0.0] * 10]).shape == (1,)
    assert load(tmp_path / "out" / "digits-model").predict([[0.0] * 64]).shape == (1,)


def test_what_a_user_can_mend_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out" / "diabetes-model").mkdir(parents=True)
    (tmp_path / "out" / "diabetes-model" / "notes.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "not a model folder" in result.stderr
    assert "Traceback" not in result.output

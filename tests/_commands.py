"""Commands run in this process, and what they print."""

from __future__ import annotations

from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from deep_ensembles.cli import app

QUICK = ["--members", "2", "--max-epochs", "2", "--effort", "fast"]
DROP = ["--drop", "number,owner,year,speed"]


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def done(*arguments: Any) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: Any) -> str:
    """The one sentence on standard error."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")

"""No command writes over what it reads, into a model, or over a model that was not given up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from _commands import DROP, QUICK, done, refused, run


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> Path:
    """Copies of a table, a model and what fitting it printed."""
    for name in ("houses.csv", "price.txt"):
        shutil.copy(folder / name, tmp_path / name)
    shutil.copytree(folder / "price-model", tmp_path / "model")
    return tmp_path


def fit_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*given: Any, **others: Any) -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("deep_ensembles.tabular.fit.fit_table", reached)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict model houses.csv --out houses.csv", "is read by the same command"),
        ("predict model houses.csv --out model/p.csv", "is inside the model folder"),
        ("predict model parts --out parts/p.csv", "is inside"),
        ("evaluate model houses.csv --report houses.csv", "must end in .html"),
        ("evaluate model houses.csv --report model/r.html", "is inside the model folder"),
        ("evaluate model houses.csv --report model", "must end in .html"),
        ("fit houses.csv --target price --out new --report houses.csv", "must end in .html"),
        ("fit houses.csv --target price --out new --report new/r.html", "is inside"),
        ("fit houses.csv --target price --out new --report model/r.html", "is inside the model folder"),
        ("fit houses.csv --config settings.html --out new --report settings.html", "is read by the same command"),
        ("fit houses.csv --target price --out houses.csv", "is read by the same command"),
        ("fit houses.csv --config price.txt --out price.txt --force", "is read by the same command"),
        ("fit houses.csv --target price --out model/inner", "is inside the model folder"),
        ("fit houses.csv --target price --out parts --force", "exists and is not a model folder"),
        ("fit houses.csv --target price --out .", "exists and is not a model folder"),
        ("fit houses.csv --target price --out model", "holds a model already; write to another folder, or replace it"),
    ],
)
def test_nothing_is_lost(command: str, words: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "parts").mkdir()
    shutil.copy(place / "houses.csv", place / "parts" / "1.csv")
    shutil.copy(place / "price.txt", place / "settings.html")
    before = files_in(place)
    fit_is_not_reached(monkeypatch)
    monkeypatch.chdir(place)
    assert words in refused(*command.split())
    assert files_in(place) == before


def test_force_replaces_a_model(place: Path) -> None:
    command = ["fit", place / "houses.csv", "--target", "price", *DROP, *QUICK, "--seed", "1", "--out", place / "model"]
    before = files_in(place / "model")
    assert "holds a model already" in refused(*command)
    assert files_in(place / "model") == before
    done(*command, "--force")
    assert files_in(place / "model")["config.json"] != before["config.json"]


def test_a_stopped_fit_that_replaces_a_model_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state beside the model says that it was to be replaced; that of other settings does not."""
    command = ["fit", place / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", place / "model"]

    def stopped(*given: Any, checkpoint: Any, **others: Any) -> None:
        checkpoint.path.with_name(checkpoint.path.name + "-1").write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr("deep_ensembles.tabular.fit.fit_table", stopped)

    assert run(*command, "--force").exit_code == 130
    assert run(*command).exit_code == 130
    assert "holds a model already" in refused(*command, "--seed", "3")

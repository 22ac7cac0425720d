"""No command writes over what it reads, into a model, or over a model that was not given up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from _commands import DROP, QUICK, done, refused, run
from _made_tables import houses, write
from _processes import not_on_windows


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
        ("fit houses.csv --target price --out new.html --report new.html", "--out and --report name the same place"),
        ("fit houses.csv --target price --out new --report model/r.html", "is inside the model folder"),
        ("fit houses.csv --config settings.html --out new --report settings.html", "is read by the same command"),
        ("fit houses.csv --target price --out houses.csv", "is read by the same command"),
        ("fit houses.csv --config price.txt --out price.txt --force", "is read by the same command"),
        ("fit houses.csv --target price --out model/inner", "is inside the model folder"),
        ("fit houses.csv --target price --out parts --force", "exists and is not a model folder"),
        ("fit houses.csv --target price --out .", "exists and is not a model folder"),
        ("fit houses.csv --target price --out model", "holds a model already; write to another folder, or replace it"),
        ("fit houses.csv --target price --out full --force", "holds a model and notes.txt, which is no part of it"),
        ("predict model houses.csv --out other.csv", "is there and holds no predictions"),
        ("predict model houses.csv --out other.parquet", "is there and holds no predictions"),
        ("predict model --row size=1,colour=red,yard=2 --out other.csv", "is there and holds no predictions"),
        ("predict model houses.csv --out mine.csv", "has a column `notes`, which would be lost"),
        ("predict model --row size=1,colour=red,yard=2 --out mine.csv", "has a column `notes`, which would be lost"),
        ("predict model --row size=1,colour=red,yard=2 --out model/p.csv", "is inside the model folder"),
        ("predict model parts --out more", "is there and holds no predictions"),
        ("predict model parts --out parts", "parts"),
        ("predict model parts --out model", "model"),
        ("predict model houses.csv --out model", "model"),
        ("evaluate model houses.csv --report index.html", "is there and holds no report"),
        ("fit houses.csv --target price --out new --report index.html", "is there and holds no report"),
    ],
)
def test_nothing_is_lost(command: str, words: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("parts", "more"):
        (place / folder).mkdir()
        shutil.copy(place / "houses.csv", place / folder / "1.csv")
    shutil.copy(place / "houses.csv", place / "other.csv")
    write(houses(), place / "other.parquet")
    (place / "index.html").write_text("<html>Home</html>")
    (place / "mine.csv").write_text("mean,std,aleatoric_std,epistemic_std,lower,upper,notes\n1,1,1,0,0,2,call them\n")
    shutil.copytree(place / "model", place / "full")
    (place / "full" / "notes.txt").write_text("mine")
    shutil.copy(place / "price.txt", place / "settings.html")
    before = files_in(place)
    fit_is_not_reached(monkeypatch)
    monkeypatch.chdir(place)
    assert words in refused(*command.split())
    assert files_in(place) == before


LINKS = {
    "soft.csv": "houses.csv", "up.csv": "../outside.csv", "dangling.csv": "nowhere.csv", "page.html": "houses.csv",
    "away": "parts", "by-link": "model", "here": ".",
}  # fmt: skip


@not_on_windows
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict model houses.csv --out soft.csv", "is a link to another file"),
        ("predict model soft.csv --out houses.csv", "is read by the same command"),
        ("predict model houses.csv --out hard.csv", "is read by the same command"),
        ("predict model hard.csv --out here/houses.csv", "is read by the same command"),
        ("predict model houses.csv --out up.csv", "is a link to another file"),
        ("predict model houses.csv --out dangling.csv", "is a link to another file"),
        ("predict model parts --out part.csv", "is read by the same command"),
        ("predict model parts --out away/p.csv", "is inside"),
        ("predict model away --out parts/p.csv", "is inside"),
        ("predict model away --out away", "write to another folder"),
        ("predict model houses.csv --out by-link/p.csv", "is inside the model folder"),
        ("predict by-link houses.csv --out by-link/deep/p.csv", "is inside the model folder"),
        ("evaluate model houses.csv --report page.html", "is a link to another file"),
        ("evaluate model houses.csv --report by-link/r.html", "is inside the model folder"),
        ("fit houses.csv --target price --out by-link", "holds a model already"),
        ("fit houses.csv --target price --out away --force", "exists and is not a model folder"),
        ("fit parts --target price --out away/m", "is inside"),
        ("fit away --target price --out parts/m", "is inside"),
        ("fit houses.csv --target price --out soft.csv --force", "is read by the same command"),
        ("fit hard.csv --target price --out new --report new/r.html", "is inside"),
    ],
)
def test_nothing_is_lost_through_links(command: str, words: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "parts").mkdir()
    shutil.copy(place / "houses.csv", place / "parts" / "1.csv")
    for name, target in LINKS.items():
        (place / name).symlink_to(target)
    (place / "hard.csv").hardlink_to(place / "houses.csv")
    (place / "part.csv").hardlink_to(place / "parts" / "1.csv")
    before = files_in(place)
    fit_is_not_reached(monkeypatch)
    monkeypatch.chdir(place)
    assert words in refused(*command.split())
    assert files_in(place) == before


def test_names_that_a_file_system_takes_for_the_same_are_the_same(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows; where letters differ, another file is written."""
    monkeypatch.chdir(place)
    before = (place / "houses.csv").read_bytes()
    result = run("predict", "model", "houses.csv", "--out", "HOUSES.CSV")
    assert result.exit_code == int((place / "Houses.csv").exists())
    assert (place / "houses.csv").read_bytes() == before


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

    assert run(*command, "--force").exit_code == 1
    assert run(*command).exit_code == 1
    assert "holds a model already" in refused(*command, "--seed", "3")

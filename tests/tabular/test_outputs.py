"""Where tables, pages and models may be written: nothing that is read or kept is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from _processes import not_on_windows

from deep_ensembles._files import ModelFileError
from deep_ensembles.columns import TableError
from deep_ensembles.tabular import FittedTable
from deep_ensembles.tabular.outputs import CLASS_OUTPUTS, NUMBER_OUTPUTS
from deep_ensembles.tabular.writing import _PREDICTION, PAGES, TABLES, check_output


@pytest.fixture
def place(tmp_path: Path, numbers: FittedTable) -> Path:
    """A table, a folder of parts, a model, and something else."""
    (tmp_path / "letter.txt").write_text("dear")
    (tmp_path / "new.csv").write_text("a\n1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.csv").write_text("a\n1\n")
    numbers.model.save(tmp_path / "model")
    return tmp_path


def test_new_places_are_free(place: Path) -> None:
    read = [place / "new.csv", place / "parts"]
    for name in ("p.csv", "p.TSV", "deep/er/p.csv.gz", "parts-too/p.parquet"):
        check_output(place / name, TABLES, inputs=read)
    check_output(place / "r.html", PAGES, inputs=[*read, place / "model"])
    check_output(place / "another", inputs=read)
    (place / "empty").mkdir()
    check_output(place / "empty", inputs=read)


def test_an_earlier_file_of_its_kind_is_replaced(place: Path) -> None:
    (place / "p.csv").write_text("mean,std,aleatoric_std,epistemic_std\n1,2,1,1\n")
    (place / "two.csv").write_text("label_a,confidence_a,entropy_a,disagreement_a,p_no_a\nno,1,0,0,1\n")
    (place / "empty.csv").touch()
    for name in ("p.csv", "two.csv", "empty.csv"):
        check_output(place / name, TABLES, inputs=[place / "new.csv"])


def test_an_earlier_file_of_another_kind_is_not(place: Path) -> None:
    (place / "index.html").write_text("<html><body>Home</body></html>")
    (place / "data.csv").write_text("mean radius,label\n1,2\n")
    (place / "mine.csv").write_text("treatment,mean,std,comment\na,1,2,good\n")
    (place / "labels.jsonl").write_text('{"image": "a.png", "label": "cat", "confidence": 0.9, "entropy": 0.1}\n')
    (place / "words.csv").write_bytes(bytes(range(256)))
    (place / "half.parquet").write_bytes(b"PAR1")
    for name, endings, what in (
        ("index.html", PAGES, "report"), ("data.csv", TABLES, "predictions"), ("words.csv", TABLES, "predictions"),
        ("half.parquet", TABLES, "predictions"), ("mine.csv", TABLES, "predictions"),
        ("labels.jsonl", TABLES, "predictions"),
    ):  # fmt: skip
        with pytest.raises(TableError, match=f"{name} is there and holds no {what}; name another file, or delete it first$"):
            check_output(place / name, endings)


@pytest.mark.parametrize(
    ("name", "endings", "words"),
    [
        ("new.csv", TABLES, r"new.csv is read by the same command; write to another place$"),
        ("parts/../new.csv", TABLES, "is read by the same command"),
        ("parts/p.csv", TABLES, "p.csv is inside .*parts, which is read or written as a whole; write to another folder$"),
        ("parts/r.html", PAGES, "is inside .*parts, which is read"),
        ("parts/deep/p.csv", TABLES, "is inside .*parts, which is read"),
        ("parts", (), "parts is read by the same command"),
        ("parts/model", (), "is inside .*parts, which is read"),
        ("model/p.csv", TABLES, "is inside the model folder .*model, which holds nothing else; write to another one$"),
        ("model/deep/r.html", PAGES, "is inside the model folder"),
        ("model/inner", (), "is inside the model folder"),
        ("r.txt", PAGES, r"r.txt must end in .html$"),
        ("model", PAGES, "model must end in .html$"),
        ("p.xlsx", TABLES, r"p.xlsx must end in one of .csv, .tsv, .parquet, .jsonl, .csv.gz, .tsv.gz, which says how"),
        ("letter.txt/p.csv", TABLES, r"cannot be written: .*letter.txt is not a folder$"),
        ("model", (), "model holds a model already; write to another folder, or replace it with --force$"),
    ],
)
def test_what_would_be_lost_is_refused(name: str, endings: tuple[str, ...], words: str, place: Path) -> None:
    with pytest.raises(TableError, match=words):
        check_output(place / name, endings, inputs=[place / "new.csv", place / "parts"])


def test_a_folder_is_not_replaced_by_a_file(place: Path) -> None:
    (place / "taken.csv").mkdir()
    with pytest.raises(TableError, match=r"taken.csv is a folder; name a file to write$"):
        check_output(place / "taken.csv", TABLES)


def test_a_model_is_replaced_when_asked_and_nothing_else_is(place: Path) -> None:
    check_output(place / "model", replace=True)
    for name in ("parts", "new.csv", "letter.txt"):
        with pytest.raises(ModelFileError, match="exists and is not a model folder; choose another path"):
            check_output(place / name, replace=True)


@not_on_windows
def test_the_same_file_under_another_name_is_refused(place: Path) -> None:
    (place / "soft.csv").symlink_to("new.csv")
    (place / "away").symlink_to("parts", target_is_directory=True)
    (place / "by-link").symlink_to("model", target_is_directory=True)
    os.link(place / "new.csv", place / "hard.csv")
    os.link(place / "parts" / "1.csv", place / "part.csv")
    read = [place / "new.csv", place / "parts"]
    for name, words in (
        ("soft.csv", "is a link to another file; write to a file of its own"),
        ("hard.csv", "is read by the same command"),
        ("part.csv", "is read by the same command"),
        ("away/p.csv", "is inside"),
        ("by-link/p.csv", "is inside the model folder"),
    ):
        with pytest.raises(TableError, match=words):
            check_output(place / name, TABLES, inputs=read)
    with pytest.raises(TableError, match="is read by the same command"):
        check_output(place / "new.csv", TABLES, inputs=[place / "soft.csv"])


@not_on_windows
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_is_read_only_is_named_before_any_work(place: Path) -> None:
    (place / "parts").chmod(0o500)
    with pytest.raises(TableError, match=r"cannot be written: .*parts is read-only"):
        check_output(place / "parts" / "p.csv", TABLES)


@pytest.mark.parametrize("output", [*NUMBER_OUTPUTS, *CLASS_OUTPUTS], ids=lambda output: output.name)
def test_every_column_of_predictions_may_be_replaced_by_others(output: Any) -> None:
    name = output.name.replace("<level>", "0.1").replace("<class>", "red")
    assert _PREDICTION.match(name)
    assert _PREDICTION.match(f"{name}_price")  # of several targets
    assert not _PREDICTION.match("notes")

"""What a model folder says of itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sklearn.datasets import load_diabetes

from deep_ensembles import DeepEnsembleRegressor, __version__
from deep_ensembles._files import ModelFileError
from deep_ensembles.tabular import FittedTable, ModelSummary, show_model

OLD_MODELS = Path(__file__).parents[1] / "models"


def text_of(summary: ModelSummary) -> str:
    return "\n".join(part if isinstance(part, str) else part.text(200) for part in summary.listings())


def test_all_that_is_known_of_a_table_is_told(numbers: FittedTable, tmp_path: Path) -> None:
    numbers.model.save(tmp_path / "my model")
    summary = show_model(tmp_path / "my model")
    told = json.loads(json.dumps(summary.as_dict(), allow_nan=False))
    assert (told["kind"], told["target"], told["task"], told["classes"]) == ("TableModel", "price", "regression", [])
    assert told["rows"] == {"trained": 160, "held_out": 40}
    assert [(column["name"], column["kind"]) for column in told["columns"]] == [
        ("size", "number"),
        ("colour", "category"),
        ("yard", "number"),
    ]
    assert told["left_out"]["owner"] == "as asked"
    assert told["held_out_scores"] == numbers.model.facts["held_out_scores"]
    assert told["chosen"]["n_members"] == told["networks"] == 3
    assert told["version"] == __version__
    assert told["bytes"] == sum(path.stat().st_size for path in (tmp_path / "my model").iterdir())
    lines = text_of(summary)
    for words in (
        "price (regression)",
        "160 rows; 40 more held out",
        "kB",
        f"deep-ensembles {__version__}",
        "category, 3 levels",
    ):
        assert words in lines
    place = tmp_path / "my model"
    assert f"predict   deep-ensembles predict '{place}' new.csv --out predictions.csv" in lines
    assert f"evaluate  deep-ensembles evaluate '{place}' known.csv --report report.html" in lines
    assert f"python    from deep_ensembles import load; model = load('{place}'); model(frame)" in lines


def test_classes_are_told(classes: FittedTable, tmp_path: Path) -> None:
    classes.model.save(tmp_path / "m")
    assert "2: fast, slow" in text_of(show_model(tmp_path / "m"))


def test_models_of_arrays_are_told_in_short(tmp_path: Path) -> None:
    X, y = load_diabetes(return_X_y=True)
    DeepEnsembleRegressor(2, hidden_sizes=(4,), max_epochs=1, random_state=0).fit(X, y).save(tmp_path / "m")
    lines = text_of(show_model(tmp_path / "m"))
    assert "DeepEnsembleRegressor" in lines
    assert "predict" not in lines.replace("predicts", "")


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in OLD_MODELS.rglob("config.json")), ids=lambda path: path.name
)
def test_old_models_are_told(folder: Path) -> None:
    assert "size on disk" in text_of(show_model(folder))


def test_what_is_no_model_is_refused(numbers: FittedTable, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"is not a complete model folder: config.json is missing"):
        show_model(tmp_path)
    numbers.model.save(tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"is not a complete model folder: model.safetensors is missing"):
        show_model(tmp_path / "half")
    config = tmp_path / "m" / "config.json"
    config.write_text(config.read_text().replace("price", "prize"))
    with pytest.raises(ModelFileError, match="is damaged or was changed"):
        show_model(tmp_path / "m")


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_shares_among_scores_are_told_in_per_cent(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fitted = request.getfixturevalue(kind)
    fitted.model.save(tmp_path / "model")
    scores = next(
        each for each in show_model(tmp_path / "model").listings() if getattr(each, "title", "") == "Held-out scores"
    )
    shares = {score.name: score.share for score in fitted.evaluation.scores}
    assert {name: text.endswith(" %") for name, text in scores.rows} == {name: shares[name] for name, _ in scores.rows}

"""The quality benchmark: cells are run once, records become a page, and its parts say what they should."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal

ROOT = Path(__file__).parent.parent
CELLS = ("--sets", "few-numbers,few-rows", "--methods", "laplace,class-shares", "--splits", "0")


@pytest.fixture(scope="module")
def quality() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    from benchmarks.quality import __main__, goals, laplace, records, regressors, scores, summary

    yield SimpleNamespace(
        main=__main__.main, goals=goals, laplace=laplace, records=records, regressors=regressors, scores=scores,
        summary=summary,
    )  # fmt: skip
    sys.path.remove(str(ROOT))


def record(table: str, method: str, split: int, nll: float, seconds: float = 1.0, **scores: float) -> dict[str, Any]:
    about = {"table": table, "method": method, "split": split, "rows": {"train": 900, "test": 100}, "versions": {}}
    return {**about, "scores": {"nll": nll, **scores}, "seconds": {"fit": seconds, "fit_cpu": seconds, "predict": 0.1}}


def test_cells_are_run_once_and_become_a_page(quality: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, page = tmp_path / "records", tmp_path / "quality.md"
    assert quality.main([*CELLS, "--records", str(records)]) == 0
    assert "few-numbers, split 0, laplace: nll" in capsys.readouterr().err
    files = sorted(path.relative_to(records).as_posix() for path in records.rglob("*.json"))
    assert files == ["few-numbers/laplace/0.json", "few-rows/class-shares/0.json"]
    before = {file: (records / file).stat().st_mtime_ns for file in files}
    assert quality.main([*CELLS, "--records", str(records)]) == 0
    assert "2 cells, 2 of them there" in capsys.readouterr().err
    assert {file: (records / file).stat().st_mtime_ns for file in files} == before

    assert quality.main(["--records", str(records), "--page", str(page)]) == 0
    text = page.read_text("utf-8")
    scores = json.loads((records / files[1]).read_text())["scores"]
    assert "from 2 records" in text
    assert f"| class shares | – | – | – | – | – | – | – | – | – | **{scores['nll']:.3f}** (1) | – |" in text
    assert f"{scores['nll_of_truth']:.3f}" in text


def test_a_cell_that_fails_is_told_and_leaves_no_record(quality: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(quality.records, "_scores", lambda *arguments: 1 / 0)
    assert quality.main([*CELLS, "--records", str(tmp_path)]) == 1
    assert "failed: ZeroDivisionError" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_slow_peers_are_run_on_the_first_splits_alone(quality: Any, tmp_path: Path) -> None:
    for split in range(5):
        path = tmp_path / "yacht" / "ngboost" / f"{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record("yacht", "ngboost", split, 1.0, seconds=150.0)))
    cells = list(quality.records.cells(["yacht"], ["ngboost", "catboost", "ours"], None))
    left = [cell for cell in cells if quality.records.why_skipped(cell, tmp_path) is None]
    assert {cell.method.name for cell in left} == {"catboost", "ours"}
    assert len(left) == 40


def test_goals_say_what_holds_what_does_not_and_what_is_open(quality: Any) -> None:
    ours = [record("yacht", "ours", split, -0.9 + 0.01 * split, coverage_90=0.8) for split in range(5)]
    peers = [record("yacht", name, split, 0.5) for name in ("ngboost", "catboost") for split in range(5)]
    found = {goal.statement: goal for goal in quality.goals.goals(quality.summary.Results(ours + peers))}
    assert found["NLL below NGBoost and CatBoost"].holds["yacht"] is True
    assert found["the same, significantly below both"].holds["yacht"] is True
    assert found["NLL below NGBoost and CatBoost"].verdict == "open"
    assert found["90 % intervals hold between 87 and 94 %"].verdict == "not reached"
    assert found["NLL at or below TabPFN's"].holds["yacht"] is True


def test_infinite_scores_are_kept(quality: Any) -> None:
    assert quality.records._rounded({"nll": float("inf"), "crps": None, "rmse": 1 / 3}) == {
        "nll": "inf", "crps": None, "rmse": 0.3333333,
    }  # fmt: skip
    results = quality.summary.Results([record("yacht", "ours", 0, "inf")])  # type: ignore[arg-type]
    assert results.mean("yacht", "ours", "nll") == float("inf")


def test_quantiles_become_a_distribution_with_finite_scores(quality: Any) -> None:
    levels = torch.from_numpy(quality.regressors.LEVELS)
    values = Normal(0.0, 1.0).icdf(levels).double().numpy()[None].repeat(2, 0)
    values[1] = 3.0  # all equal, as trees can say
    found = quality.regressors.interpolated(values, shortest=np.array([0.1, 0.1]), least=1e-3)
    assert found.cdf(torch.from_numpy(values[:, 2]))[0].item() == pytest.approx(levels[2].item(), abs=1e-6)
    scores = quality.scores.regression_scores(found, np.array([8.0, -8.0]))
    assert all(np.isfinite(value) for value in scores.values())


def test_the_last_layer_finds_weights_and_noise(quality: Any) -> None:
    generator = np.random.default_rng(0)
    features = np.concatenate([generator.normal(size=(2000, 3)), np.ones((2000, 1))], axis=1)
    targets = features @ [1.0, -2.0, 0.0, 0.5] + 0.3 * generator.normal(size=2000)
    mean, _, noise = quality.laplace.most_probable(features, targets)
    assert mean == pytest.approx([1.0, -2.0, 0.0, 0.5], abs=0.03)
    assert noise == pytest.approx(0.09, rel=0.1)


def test_the_probability_of_a_cell_is_exact_in_both_tails(quality: Any) -> None:
    standard = Normal(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    found = [
        quality.scores.cell_log_probability(standard, torch.tensor([y], dtype=torch.float64), 0.01) for y in (-12.0, 12.0)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] == pytest.approx(standard.log_prob(torch.tensor(12.0)).item() + np.log(0.01), abs=0.01)

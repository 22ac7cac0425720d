"""Reproducing: every printed number from the saved predictions, resuming, selecting, and saying what is wrong."""

from __future__ import annotations

import csv
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from _made_home import make_home
from _processes import started
from scipy.integrate import quad
from scipy.special import logsumexp

from deep_ensembles.execution import InProcess, Processes
from deep_ensembles.paper import experiments
from deep_ensembles.paper import reproduce as reproducing
from deep_ensembles.paper.datasets import DatasetError
from deep_ensembles.paper.experiments import ARRAYS, EXPERIMENTS, Experiment
from deep_ensembles.paper.experiments.uci_regression import printed, within
from deep_ensembles.paper.reproduce import reproduce
from deep_ensembles.report.splits import over_splits, paired


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    folder = make_home(tmp_path / "data", "yacht", "protein")
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All methods on two made sets, once."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEP_ENSEMBLES_DATA", str(make_home(folder / "data", "yacht", "protein")))
        found = reproduce("uci-regression", scale="smoke", out=folder / "runs", execution=InProcess())
    return found, folder / "runs" / "uci_regression"


def saved(root: Path, dataset: str, training: str) -> dict[str, np.ndarray]:
    (folder,) = [path for path in root.iterdir() if path.is_dir() and path.name.rsplit("-", 1)[0] == f"{dataset}-{training}"]
    return dict(np.load(folder / ARRAYS))


def recomputed(arrays: dict[str, np.ndarray], members: int) -> dict[str, list[float]]:
    """NLL, mixture NLL, RMSE and coverage with NumPy and SciPy alone."""
    scores: dict[str, list[float]] = {"rmse": [], "nll": [], "nll_mixture": [], "coverage_90": []}
    for split in np.unique(arrays["split"]):
        rows = arrays["split"] == split
        y, mean, std = arrays["target"][rows], arrays["mean"][:members, rows], arrays["std"][:members, rows]
        centre = mean.mean(0)
        spread = np.sqrt((std**2 + mean**2).mean(0) - centre**2)
        scores["rmse"].append(np.sqrt(((y - centre) ** 2).mean()))
        scores["nll"].append(-scipy.stats.norm.logpdf(y, centre, spread).mean())
        if std.any():
            logs = scipy.stats.norm.logpdf(y, mean, std)
            scores["nll_mixture"].append(-(logsumexp(logs, axis=0) - np.log(members)).mean())
            below = scipy.stats.norm.cdf(y, mean, std).mean(0)
        else:
            below = scipy.stats.norm.cdf(y, centre, spread)
        scores["coverage_90"].append(((below >= 0.05) & (below <= 0.95)).mean())
    return {name: values for name, values in scores.items() if values}


METHODS = [("pbp", "PBP", 1), ("mc-dropout", "MC-dropout", 100), ("mse", "MSE-5", 5), ("mse", "MSE-10", 10),
           ("ml", "ML-1", 1), ("ml", "ML-5", 5), ("ml-at", "ML-1+AT", 1), ("ml-at", "ML-5+AT", 5),
           ("ml-as-written", "ML-5 (rate 0.1)", 5)]  # fmt: skip


@pytest.mark.parametrize(("training", "method", "members"), METHODS, ids=[method for _, method, _ in METHODS])
def test_every_number_follows_from_the_saved_predictions(everything, training, method, members):
    _, root = everything
    rows = json.loads((root / "summary.json").read_text())["rows"]
    for dataset in ("yacht", "protein"):
        told = {row["metric"]: row for row in rows if (row["dataset"], row["method"]) == (dataset, method)}
        found = recomputed(saved(root, dataset, training), members)
        assert set(told) == {*found, "crps"}
        for metric, values in found.items():
            assert told[metric]["mean"] == pytest.approx(np.mean(values), abs=1e-6)
            assert told[metric]["sd"] == pytest.approx(np.std(values, ddof=1), abs=1e-6)
            assert told[metric]["se"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(len(values)), abs=1e-6)
            assert told[metric]["paper"] == printed(metric, dataset, method)[0]


def test_crps_is_the_integral(everything):
    _, root = everything
    arrays = saved(root, "yacht", "ml")
    rows = np.flatnonzero(arrays["split"] == 0)

    def integral(row: int) -> float:
        y, mean, std = arrays["target"][row], arrays["mean"][:5, row], arrays["std"][:5, row]
        low, high = min(y, (mean - 12 * std).min()), max(y, (mean + 12 * std).max())
        cdf = lambda z: scipy.stats.norm.cdf(z, mean, std).mean()  # noqa: E731
        left, _ = quad(lambda z: cdf(z) ** 2, low, y, limit=200)
        right, _ = quad(lambda z: (1 - cdf(z)) ** 2, y, high, limit=200)
        return left + right

    (cell,) = [path for path in root.glob("yacht-ml-????????") if path.is_dir()]
    told = json.loads((cell / "result.json").read_text())["methods"]["ML-5"]["scores"]["crps"][0]
    assert told == pytest.approx(np.mean([integral(row) for row in rows]), abs=1e-5)


def test_paired_differences_are_those_of_the_splits(everything):
    found, root = everything
    wanted = {"dataset": "yacht", "method": "ML-5", "against": "ML-1", "metric": "nll"}
    (gap,) = [each for each in found.summary.differences if wanted.items() <= each.items()]
    arrays = saved(root, "yacht", "ml")
    gaps = np.array(recomputed(arrays, 5)["nll"]) - np.array(recomputed(arrays, 1)["nll"])
    assert gap["mean"] == pytest.approx(gaps.mean(), abs=1e-6)
    assert gap["lower_on"] == (gaps < 0).sum()


def test_files_are_what_was_returned(everything):
    found, root = everything
    told = json.loads((root / "summary.json").read_text())
    assert [claim["holds"] for claim in told["claims"]] == [claim.holds for claim in found.summary.claims]
    with open(root / "summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mean"]) for row in rows] == pytest.approx([row["mean"] for row in told["rows"]])
    assert (root / "summary.txt").read_text() == found.text
    for kind in ("svg", "png"):
        assert (root / f"uci_regression.{kind}").stat().st_size > 5000


def test_what_is_finished_is_not_run_again(home, tmp_path, monkeypatch):
    ran = []
    real = reproducing._run_cell
    monkeypatch.setattr(reproducing, "_run_cell", lambda *each: (ran.append(each[2].name), real(*each)))
    ask = {"scale": "smoke", "out": tmp_path / "runs", "methods": ["ML-5"], "only": ["yacht"], "execution": InProcess()}
    first = reproduce("uci_regression", **ask)
    assert ran == ["yacht-ml"]
    assert reproduce("uci_regression", **ask).summary.rows == first.summary.rows
    assert reproduce("uci_regression", **{**ask, "methods": ["ml-1"]}).summary.rows[0]["method"] == "ML-1"
    assert ran == ["yacht-ml"]
    reproduce("uci_regression", **ask, force=True)
    assert len(ran) == 2
    reproduce("uci_regression", **ask, seed=1)
    assert len(ran) == 3
    make_home(home, "yacht", seed=5)
    reproduce("uci_regression", **ask)
    assert len(ran) == 4


def test_two_jobs_give_what_one_gives(home, tmp_path):
    ask = {"scale": "smoke", "methods": ["ML-5", "PBP"]}
    one = reproduce("uci_regression", **ask, out=tmp_path / "one", execution=InProcess())
    two = reproduce("uci_regression", **ask, out=tmp_path / "two", execution=Processes(2))
    assert one.summary.rows == two.summary.rows


def test_the_calibration_takes_the_paper_set_if_it_is_here(home, tmp_path):
    ask = {"scale": "smoke", "out": tmp_path / "runs", "execution": InProcess()}
    found = reproduce("regression-calibration", **ask)
    assert {row["dataset"] for row in found.summary.rows} == {"protein"}
    make_home(home, "year-prediction-msd", splits=1)
    found = reproduce("regression-calibration", **ask)
    assert {row["dataset"] for row in found.summary.rows} == {"year-prediction-msd"}


def test_calibration_counts_what_is_inside(home, tmp_path):
    found = reproduce("regression-calibration", scale="smoke", out=tmp_path / "runs", execution=InProcess())
    arrays = saved(tmp_path / "runs" / "regression_calibration", "protein", "mse")
    mean, std = arrays["mean"][:5].mean(0), arrays["mean"][:5].std(0)
    inside = np.abs(arrays["target"] - mean) <= scipy.stats.norm.ppf(0.9) * std
    (told,) = [r for r in found.summary.rows if (r["method"], r["metric"]) == ("MSE-5", "coverage_80")]
    assert told["mean"] == pytest.approx(inside.mean())


def test_the_toy_figure_needs_no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path / "nothing"))
    found = reproduce("toy-regression", scale="smoke", out=tmp_path, execution=InProcess())
    assert {row["method"] for row in found.summary.rows} == {"MSE-5", "ML-1", "ML-1+AT", "ML-5+AT"}
    assert (tmp_path / "toy_regression" / "toy_regression.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"only": ["pluto"]}, "`only` must be among .*yacht"),
        ({"only": ["concrete"]}, "deep-ensembles data fetch concrete"),
        ({"methods": ["magic"]}, "`methods` must be among .*ML-5"),
        ({"scale": "huge"}, "`scale` must be one of smoke, laptop, paper"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_bad_wishes_are_told(home, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        reproduce("uci_regression", out=tmp_path, **settings)


def test_without_any_data_it_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path / "nothing"))
    with pytest.raises(DatasetError, match="data fetch boston-housing"):
        reproduce("uci_regression", out=tmp_path)
    with pytest.raises(ValueError, match="one of toy_regression"):
        reproduce("nothing", out=tmp_path)


def test_sets_that_are_missing_are_told(everything):
    found, _ = everything
    assert any("data fetch concrete" in note for note in found.summary.notes)
    assert not any("year" in note for note in found.summary.notes)  # not wanted at this scale


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_experiments_have_one_shape(experiment):
    assert set(experiment.takes) == {"smoke", "laptop", "paper"}
    assert not experiment.cells_of or experiment.cells_of in EXPERIMENTS


def test_every_experiment_of_every_file_can_be_named():
    files = [
        importlib.import_module(file.name) for file in pkgutil.iter_modules(experiments.__path__, f"{experiments.__name__}.")
    ]
    known = [thing for file in files for thing in vars(file).values() if isinstance(thing, Experiment)]
    assert {experiment.name: experiment for experiment in known} == EXPERIMENTS


def test_within_the_spread():
    assert within("nll", "kin8nm", "ML-5", -1.181, 20)
    assert not within("nll", "kin8nm", "ML-5", -1.17, 20)
    assert within("nll", "yacht", "PBP", 1.63 + 0.1, 20)  # ± 0.02 is a standard error
    assert within("crps", "yacht", "ML-5", 0.1, 20) is None


def test_paired_test_is_scipys_where_splits_share_nothing():
    generator = np.random.default_rng(0)
    ours, other = generator.normal(size=12), generator.normal(0.5, size=12)
    found = paired(ours.tolist(), other.tolist(), 0.0)
    assert found["p_value"] == pytest.approx(scipy.stats.ttest_rel(ours, other).pvalue)
    assert paired(ours.tolist(), other.tolist(), 0.2)["p_value"] > found["p_value"]
    assert np.isnan(over_splits([1.0])["sd"])


def all_gone(group: int) -> bool:
    """Whether no process of a group is left, a few seconds on."""
    for _ in range(100):
        states = subprocess.run(["ps", "-eo", "pgid,stat"], capture_output=True, text=True, check=True).stdout.split("\n")
        if not any(line.split()[0] == str(group) and "Z" not in line.split()[1] for line in states if line.strip()):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_where_it_was(home, tmp_path):
    """SIGKILL at several moments, of the command and with it its workers; then the same numbers as undisturbed."""
    command = [
        sys.executable,
        "-c",
        "from deep_ensembles.cli import app; app()",
        "reproduce",
        "uci-regression",
        "--scale",
        "smoke",
    ]
    undisturbed = subprocess.run([*command, "--out", str(tmp_path / "whole")], capture_output=True, check=True, text=True)
    for seconds in (4.0, 5.0, 6.0, 7.0, 8.0):
        killed = [*command, "--out", str(tmp_path / "killed")]
        with started(killed, stdout=subprocess.DEVNULL, start_new_session=True) as process:
            time.sleep(seconds)
        assert all_gone(process.pid)
    marks = list((tmp_path / "killed" / "uci_regression").glob("*/DONE"))
    before = {mark: mark.stat().st_mtime_ns for mark in marks}
    after = subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, check=True, text=True)
    assert before == {mark: mark.stat().st_mtime_ns for mark in marks}
    tables = [told.stdout.partition("wrote  ")[0] for told in (after, undisturbed)]
    assert tables[0] == tables[1] != ""


@pytest.mark.slow
def test_year_prediction_at_full_shape_in_bounded_memory(tmp_path):
    """515 345 × 90 made rows through load, choice of the rate, training, prediction and scores, below 3 GB."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((515_345, 90), dtype=np.float32)
    y = (1998 + 5 * X[:, 0] + generator.normal(scale=8, size=len(X))).round().astype(np.float32)
    (tmp_path / "uci").mkdir()
    np.savez(
        tmp_path / "uci" / "year-prediction-msd.npz", X=X, y=y, test_index_0=np.arange(463_715, 515_345, dtype=np.int32)
    )
    del X
    code = (
        "import json, pathlib, resource\n"
        "from deep_ensembles.paper.experiments._regression import regression_cell, run_regression\n"
        "cells = [regression_cell('year-prediction-msd', way, 0, epochs=1) for way in ('ml', 'mse')]\n"
        "found = [run_regression(cell, pathlib.Path())[0] for cell in cells]\n"
        "scores = [found[0]['methods']['ML-5']['scores'], found[1]['methods']['MSE-5']['scores']]\n"
        "print(json.dumps([scores, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))\n"
    )
    # On busy cores two threads wait for each other far longer than they work.
    environment = {**os.environ, "DEEP_ENSEMBLES_DATA": str(tmp_path), "OMP_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment)
    (learned, points), gigabytes = json.loads(told.stdout)
    assert gigabytes < 3
    assert learned["rmse"][0] == pytest.approx(8, abs=0.4)
    assert points["rmse"][0] == pytest.approx(8, abs=0.4)
    assert learned["nll"][0] == pytest.approx(3.5, abs=0.1)  # log 8 + ½ log 2πe
    assert points["coverage_90"][0] < 0.5

"""The experiments on images, at smoke scale on made images: numbers from saved predictions, ensembles trained once."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from _made_home import make_images
from PIL import Image
from sklearn.metrics import log_loss, roc_auc_score

from deep_ensembles import load
from deep_ensembles.execution import InProcess
from deep_ensembles.paper.datasets import DatasetError
from deep_ensembles.paper.datasets.images import IDX, write_idx
from deep_ensembles.paper.experiments import ARRAYS, EXPERIMENTS, Selection
from deep_ensembles.paper.experiments._classification import METHODS, is_folder, of_classes, pictures
from deep_ensembles.paper.experiments.ensemble_size import SETTINGS
from deep_ensembles.paper.reproduce import reproduce

SHORT = {name: method.short for name, method in METHODS.items()}
ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT = METHODS


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def out(home, tmp_path_factory) -> Path:
    """All experiments on MNIST and its unknown classes, once."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEP_ENSEMBLES_DATA", str(home))
        patch.setitem(SETTINGS["mnist"], "smoke", {"members": 2, "epochs": 15, "learning_rate": 0.003})
        for name in ("known_unknown_classes", "mnist_ensemble_size", "accuracy_confidence", "most_and_least_certain"):
            reproduce(name, scale="smoke", out=folder, execution=InProcess())
    return folder


def rows(out: Path, name: str) -> list[dict]:
    return json.loads((out / name / "summary.json").read_text())["rows"]


def saved(out: Path, pattern: str) -> dict[str, np.ndarray]:
    (folder,) = out.glob(pattern)
    return dict(np.load(folder / ARRAYS))


@pytest.mark.parametrize("method", METHODS)
def test_scores_by_size_follow_from_the_saved_probabilities(out, method):
    arrays = saved(out, f"mnist_ensemble_size/mnist-mlp-3-{SHORT[method]}-*")
    truth = np.eye(10)[arrays["label"]]
    for members in (1, 2):
        mean = arrays["probabilities"][:members].astype(np.float64).mean(0)
        told = {row["metric"]: row["value"] for row in rows(out, "mnist_ensemble_size")
                if (row["method"], row["members"]) == (method, members)}  # fmt: skip
        assert told["error"] == pytest.approx((mean.argmax(1) != arrays["label"]).mean())
        assert told["nll"] == pytest.approx(log_loss(arrays["label"], mean / mean.sum(1, keepdims=True)), rel=1e-4)
        assert told["brier"] == pytest.approx(((mean - truth) ** 2).mean(), rel=1e-4)
    assert told["error"] < 0.5  # the made digits can be learnt


def test_the_kept_model_gives_the_saved_predictions(out, home):
    (folder,) = out.glob("mnist_ensemble_size/mnist-mlp-3-plain-*")
    ensemble = load(folder / "model")
    raw = gzip.decompress((home / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    images = np.frombuffer(raw, np.uint8).reshape(60, 784).astype(np.float32) / 255
    found = ensemble(images).components.probs.float().numpy()
    assert np.allclose(found, saved(out, "mnist_ensemble_size/mnist-mlp-3-plain-*")["probabilities"], atol=1e-6)
    assert not (folder / "checkpoint.safetensors").exists()


def test_ensembles_are_trained_once_for_all_experiments(out):
    assert len(list(out.glob("mnist_ensemble_size/mnist-mlp-3-plain-*"))) == 1
    assert not list(out.glob("known_unknown_classes/*/model"))


def test_unknown_classes_are_asked_about_once_for_all_experiments(out):
    for name in ("accuracy_confidence", "most_and_least_certain"):
        assert not [path for path in (out / name).iterdir() if path.is_dir()]
        told = json.loads((out / name / "summary.json").read_text())["cells"]
        assert all((out / each["experiment"] / each["folder"] / ARRAYS).is_file() for each in told)
        assert {each["experiment"] for each in told} == {"known_unknown_classes"}


def test_what_is_shared_is_made_by_whoever_comes_first(home, tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    found = reproduce("accuracy_confidence", scale="smoke", methods=[ENSEMBLE], out=tmp_path, execution=InProcess())
    assert {row["method"] for row in found.summary.rows} == {ENSEMBLE}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}
    reproduce("known_unknown_classes", scale="smoke", methods=[ENSEMBLE], out=tmp_path, execution=InProcess())
    assert before.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}.items()


def test_detection_is_that_of_scikit_learn(out):
    known = saved(out, "mnist_ensemble_size/mnist-mlp-3-plain-*")["probabilities"][:1].astype(np.float64).mean(0)
    unknown = saved(out, "known_unknown_classes/mnist-notmnist-plain-*")["probabilities"][:1].astype(np.float64).mean(0)
    entropy = [-(p * np.log(np.maximum(p, 1e-38))).sum(1) for p in (known, unknown)]
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    wanted = {"dataset": "mnist → notmnist", "method": ENSEMBLE, "metric": "AUROC, entropy"}
    (told,) = [row["value"] for row in rows(out, "known_unknown_classes") if wanted.items() <= row.items()]
    assert told == pytest.approx(roc_auc_score(truth, np.concatenate(entropy)), abs=1e-6)
    assert {row["dataset"] for row in rows(out, "known_unknown_classes")} == {"mnist → notmnist", "mnist → fashion-mnist"}


def test_accuracy_above_a_confidence_counts_unknown_cases_as_wrong(out):
    known = saved(out, "mnist_ensemble_size/mnist-mlp-3-dropout-*")
    found = {row["metric"]: row for row in rows(out, "accuracy_confidence") if row["method"] == DROPOUT}
    right = (known["probabilities"][0].argmax(1) == known["label"]).sum()
    assert found["accuracy at τ = 0.0"]["value"] == pytest.approx(right / 120)  # 60 known, as many unknown
    assert found["accuracy at τ = 0.0"]["kept"] == 1


@pytest.mark.parametrize(
    "name", ["mnist_ensemble_size", "known_unknown_classes", "accuracy_confidence", "most_and_least_certain"]
)
def test_figures_are_drawn_twice(out, name):
    vectors, pixels = (sorted(path.stem for path in (out / name).glob(f"*.{kind}")) for kind in ("svg", "png"))
    assert vectors == pixels != []


@pytest.mark.parametrize("name", ["svhn_ensemble_size", "imagenet_ensemble_size"])
def test_colour_images(home, tmp_path, monkeypatch, name):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    found = reproduce(name, scale="smoke", out=tmp_path, methods=[ENSEMBLE], execution=InProcess())
    assert {row["members"] for row in found.summary.rows} == {1, 2}
    top_5 = [row["value"] for row in found.summary.rows if row["metric"] == "top_5_error"]
    assert all(0 <= value <= 1 for value in top_5)
    for table in found.summary.listings:
        words = {word for column in table.columns for word in column.split()}
        assert words <= set(table.text().split())  # none is broken in two


def test_dogs_are_known_and_the_others_not(home, tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    found = reproduce(
        "known-unknown-classes",
        scale="smoke",
        only=["tiny-imagenet"],
        methods=[ENSEMBLE],
        out=tmp_path,
        execution=InProcess(),
    )
    assert {row["dataset"] for row in found.summary.rows} == {"dogs → non-dogs (tiny-imagenet)"}
    assert saved(tmp_path, "known_unknown_classes/tiny-imagenet-*")["probabilities"].shape == (2, 16, 2)
    assert saved(tmp_path, "imagenet_ensemble_size/tiny-imagenet-*")["probabilities"].shape == (2, 8, 2)


def test_a_network_may_have_settings_of_its_own(home, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    asked = Selection("laptop", ("mnist",), (ENSEMBLE,), ("mlp-2", "convnet"))
    mlp_2, convnet = (cell.config for cell in EXPERIMENTS["mnist_ensemble_size"].cells(asked))
    assert (mlp_2["members"], mlp_2["rows"], convnet["members"], convnet["rows"]) == (15, None, 5, 20_000)
    assert mlp_2["learning_rate"] == convnet["learning_rate"]


def test_unknown_classes_that_are_not_here_are_told_before_training(tmp_path, monkeypatch):
    home = make_images(tmp_path / "home")
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    ask = {"scale": "smoke", "methods": [ENSEMBLE], "out": tmp_path / "runs", "execution": InProcess()}
    shutil.rmtree(home / "notmnist")
    with pytest.raises(DatasetError, match="data fetch notmnist"):
        reproduce("accuracy-confidence", **ask)
    assert not list((tmp_path / "runs").rglob("model"))
    found = reproduce("known-unknown-classes", **ask)
    assert {row["dataset"] for row in found.summary.rows} == {"mnist → fashion-mnist"}
    assert found.summary.notes == ["notmnist is not here and was left out; run: deep-ensembles data fetch notmnist"]
    shutil.rmtree(home / "fashion-mnist")
    for name in ("known-unknown-classes", "most-and-least-certain"):
        with pytest.raises(DatasetError, match="notmnist, the unknown classes, is not in"):
            reproduce(name, **ask)


def test_choosing_classes_numbers_them_anew():
    images, labels = np.arange(6)[:, None], np.array([0, 1, 2, 0, 1, 2])
    inside, numbers = of_classes(images, labels, ("a", "b", "c"), ["c", "a"])
    assert inside[:, 0].tolist() == [0, 2, 3, 5]
    assert numbers.tolist() == [1, 0, 1, 0]
    assert of_classes(images, labels, ("a", "b", "c"), ["c", "a"], others=True)[1].tolist() == [1, 1]


def test_a_folder_of_pictures_with_a_broken_one_and_a_network_of_ones_own(home, tmp_path):
    folder = tmp_path / "birds"
    with zipfile.ZipFile(home / "tiny-imagenet" / "tiny-imagenet-subset.zip") as archive:
        archive.extractall(folder)
    (folder / "train" / "n03" / "0.JPEG").write_bytes(b"no picture")
    ask = {
        "scale": "smoke",
        "only": [str(folder)],
        "networks": ["_made_home:tiny_network"],
        "out": tmp_path / "runs",
        "execution": InProcess(),
    }
    with pytest.warns(UserWarning, match="n03.0.JPEG"):
        found = reproduce("imagenet-ensemble-size", **ask)
    assert {(row["dataset"], row["network"]) for row in found.summary.rows} == {(str(folder), "_made_home:tiny_network")}
    arrays = saved(tmp_path / "runs", "imagenet_ensemble_size/birds-_made_home.tiny_network-plain-*")
    assert arrays["probabilities"].shape == (2, 24, 6)


def put_pictures(folder: Path, **counts: int) -> Path:
    """Pictures in class folders: `train_a=3` for three of class a to train on."""
    for name, count in counts.items():
        path = folder.joinpath(*name.split("_"))
        path.mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (20, 16), (40 * i, 100, 0)).save(path / f"{i}.png")
    return folder


def test_classes_are_numbered_by_the_training_pictures(tmp_path):
    folder = put_pictures(tmp_path / "fruit", train_a=4, train_b=3, train_c=2, train_d=0, val_a=1, val_c=2, val_d=0)
    config = {"dataset": str(folder), "classes": None, "rows": None, "image_size": 16}
    train, test = (pictures(config, part) for part in ("train", "test"))
    assert (train.n_classes, train.labels.tolist()) == (3, [0, 0, 0, 0, 1, 1, 1, 2, 2])
    assert (test.n_classes, test.labels.tolist()) == (3, [0, 2, 2])
    few = pictures({**config, "rows": 4}, "train")
    assert [number for _, number in few.inputs.files] == few.labels.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train_a": 1, "train_b": 1, "val_a": 1, "val_c": 1}, "of class c in 'val', but none in 'train'"),
        ({"train_a": 1, "val_a": 1}, "at least two classes to tell apart, got a"),
        ({"train_a": 1, "train_b": 1}, "no class folders with pictures in 'val'"),
        ({"val_a": 1}, "no class folders with pictures in 'train'"),
    ],
)
def test_folders_that_cannot_be_learnt_from_are_told_before_training(tmp_path, counts, message):
    folder = put_pictures(tmp_path / "fruit", **counts)
    with pytest.raises(DatasetError, match=message):
        reproduce("imagenet-ensemble-size", scale="smoke", only=[str(folder)], out=tmp_path / "runs", execution=InProcess())
    assert not list((tmp_path / "runs").rglob("model"))


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(
        ValueError, match="among tiny-imagenet, or a folder or zip of pictures that is there, got '/nowhere'"
    ):
        reproduce("imagenet-ensemble-size", scale="smoke", only=["/nowhere"], out=tmp_path)


def test_wrong_labels_leave_every_number_finite(tmp_path, monkeypatch):
    home = make_images(tmp_path / "home")
    labels = (np.arange(200) % 10).astype(np.uint8)
    wrong = np.random.default_rng(0).permutation(200)[:40]
    labels[wrong] = np.roll(labels[wrong], 1)
    write_idx(home / "mnist" / f"train{IDX[1]}", labels)
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    monkeypatch.setitem(SETTINGS["mnist"], "smoke", {"members": 2, "epochs": 15, "learning_rate": 0.003})
    found = reproduce("mnist-ensemble-size", scale="smoke", out=tmp_path, execution=InProcess())
    assert all(np.isfinite(row["value"]) for row in found.summary.rows)
    assert all(row["value"] < 0.5 for row in found.summary.rows if row["metric"] == "error")


def test_a_name_is_a_name_even_beside_a_folder_called_so(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_folder("mnist")
    (tmp_path / "birds").mkdir()
    assert is_folder("birds")


def test_networks_that_are_not_there_are_told(home, tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    with pytest.raises(ValueError, match="`networks` must be among mlp-3"):
        reproduce("mnist-ensemble-size", scale="smoke", networks=["resnet"], out=tmp_path)
    ask = {"scale": "smoke", "methods": [ENSEMBLE], "execution": InProcess()}
    with pytest.raises(ValueError, match="`network` must name something that can be imported"):
        reproduce("mnist-ensemble-size", networks=["nowhere:net"], out=tmp_path, **ask)


def test_an_ensemble_may_be_spread_over_cells(home, tmp_path, monkeypatch):
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(home))
    spread = {"members": 2, "members_per_cell": 1, "epochs": 1, "learning_rate": 0.003, "width": 0.0625}
    monkeypatch.setitem(SETTINGS["tiny-imagenet"], "smoke", spread)
    found = reproduce("imagenet-ensemble-size", scale="smoke", out=tmp_path, execution=InProcess())
    parts = [dict(np.load(path)) for path in sorted(tmp_path.glob("imagenet_ensemble_size/*/predictions.npz"))]
    assert [part["probabilities"].shape for part in parts] == [(1, 24, 6), (1, 24, 6)]
    assert not np.array_equal(parts[0]["probabilities"], parts[1]["probabilities"])
    mean = np.concatenate([part["probabilities"] for part in parts]).astype(np.float64).mean(0)
    (nll,) = [row["value"] for row in found.summary.rows if (row["metric"], row["members"]) == ("nll", 2)]
    assert nll == pytest.approx(-np.log(mean[np.arange(24), parts[0]["label"]]).mean(), rel=1e-5)

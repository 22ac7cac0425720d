"""A data home with small made tables under the benchmark's names."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

from deep_ensembles.paper.datasets.images import IDX, write_idx


def make_home(folder: Path, *names: str, rows: int = 90, features: int = 4, splits: int = 3, seed: int = 0) -> Path:
    """Tables of `rows` × `features`, with as many splits as wanted."""
    generator = np.random.default_rng(seed)
    for name in names:
        X = generator.normal(size=(rows, features))
        y = X[:, 0] ** 2 + generator.normal(scale=0.3, size=rows)
        tests = {f"test_index_{i}": generator.permutation(rows)[: rows // 6].astype(np.int32) for i in range(splits)}
        path = folder / "uci" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=X, y=y, **tests)
    return folder


def make_images(folder: Path, seed: int = 0) -> Path:
    """Small sets of images under the names of the real ones: digits that can be learnt, and others."""
    generator = np.random.default_rng(seed)
    for name, stem, rows in (
        ("mnist", "train", 200),
        ("mnist", "t10k", 60),
        ("notmnist", "t10k", 80),
        ("fashion-mnist", "t10k", 50),
    ):
        labels = (np.arange(rows) % 10).astype(np.uint8)
        images = generator.integers(0, 60, (rows, 28, 28), dtype=np.uint8)
        if name == "mnist":
            for image, label in zip(images, labels, strict=True):
                image[2 * label : 2 * label + 4, 4:24] += 180
        (folder / name).mkdir(parents=True, exist_ok=True)
        for content, ending in ((images, IDX[0]), (labels, IDX[1])):
            write_idx(folder / name / f"{stem}{ending}", content)
    for name, part, rows in (("svhn", "train", 60), ("svhn", "test", 30), ("cifar10", "test", 30)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{part}-images.npy", generator.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8))
        np.save(folder / name / f"{part}-labels.npy", (np.arange(rows) % 10).astype(np.uint8))
    return make_pictures(folder, generator)


def make_pictures(folder: Path, generator: np.random.Generator) -> Path:
    """A zip of JPEGs in class folders, two classes of them dogs."""
    classes = {"n01": "dog", "n02": "dog", "n03": "non-dog", "n04": "non-dog", "n05": "non-dog", "n06": "non-dog"}
    (folder / "tiny-imagenet").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "tiny-imagenet" / "tiny-imagenet-subset.zip", "w") as archive:
        for part, rows in (("train", 8), ("val", 4)):
            for name in classes:
                for i in range(rows):
                    buffer = io.BytesIO()
                    Image.fromarray(generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
                    archive.writestr(f"{part}/{name}/{i}.JPEG", buffer.getvalue())
    lines = [f"{name}\t{group}\t{name}" for name, group in classes.items()]
    (folder / "tiny-imagenet" / "classes.tsv").write_text("wnid\tgroup\tname\n" + "\n".join(lines) + "\n")
    return folder


def tiny_network(num_classes: int) -> nn.Module:
    """A network of a user's own."""
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(num_classes))

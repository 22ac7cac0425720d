"""Imports point one way: a layer sees only what stands before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import deep_ensembles

PACKAGE = Path(deep_ensembles.__file__).parent

# Lowest first; parts of one layer don't see each other.
LAYERS = [
    {"_random", "_checks", "_statistics", "_distributions", "_files", "_arrow", "panels", "tables", "progress"},
    {"heads", "mixture", "networks", "standardization", "segments", "schedules", "optimizers", "checkpoint", "records"},
    {"scoring", "perturbations", "members", "rows", "model_files", "datasets", "columns", "table_files"},
    {"criterion", "feed", "runs", "metrics", "table_schema"},
    {"algorithm", "recalibration", "stack", "standing"},
    {"naming", "report"},
    {"preparation", "ensemble"},
    {"training"},
    {"fitting"},
    {"estimators"},
    {"loading", "baselines", "execution"},
    {"experiments", "tabular"},
    {"demo", "reproduce"},
    {"cli"},
]
# Users call these with what they need by name.
DOORS = ("fit_ensemble", "cross_validate", "reproduce", "fit", "predict", "compare")
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
ALONE = {
    "typer": {"cli/__init__.py", "cli/_paper.py", "cli/_tables.py", "cli/_talk.py"},
    "matplotlib": {"report/figures.py"},
    "jinja2": {"report/page.py"},
    "pooch": {"datasets/_fetch.py"},
    "pyarrow": {"_arrow.py"},
    "PIL": {"datasets/_pictures.py"},
    "pickle": {"datasets/_inert_pickle.py"},
    "ray": {"execution/ray.py"},
    "fastapi": {"serve.py"},
}


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide direction"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    assert part in LEVEL, f"{part} has no place among the layers"
    for name in imports(ast.parse(path.read_text())):
        head, *rest = name.split(".")
        if head != "deep_ensembles" or not rest or (other := rest[0]) == part:
            continue
        if other in LEVEL:
            assert LEVEL[other] < LEVEL[part], f"{path.name} imports {other}, which does not stand below {part}"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_import_inside_a_function(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = [name for name in imports(node) if name.startswith("deep_ensembles")]
            assert not inner, f"{path.name}: {inner} inside {getattr(node, 'name', 'a lambda')}"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_file(path: Path) -> None:
    names = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
    for library, homes in ALONE.items():
        assert library not in names or str(path.relative_to(PACKAGE)) in homes


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_functions_are_short_and_take_few_arguments(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno <= 80, f"{path.name}: {node.name} is too long"
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            few = len([name for name in names if name not in ("self", "cls")]) <= 8
            assert few or node.name in ("__init__", *DOORS), f"{path.name}: {node.name} takes too many arguments"


def test_every_layer_exists() -> None:
    found = {part_of(path) for path in files()}
    assert set(LEVEL) == found


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_global_torch_settings(path: Path) -> None:
    forbidden = {"manual_seed", "set_default_dtype", "set_num_threads", "use_deterministic_algorithms"}
    if path.name == "processes.py":
        forbidden -= {"set_num_threads"}  # of its own worker processes
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            assert node.attr not in forbidden, f"{path.name}: torch.{node.attr}"

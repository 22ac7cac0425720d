"""The house: rooms in one order, imports that point one way, files and functions of readable size. One test per rule."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import deep_ensembles

PACKAGE = Path(deep_ensembles.__file__).parent
FILES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
DOOR = "__init__.py"  # of the package: it names everything, and loads it when it is first used

# From the lowest to the highest: a room imports only rooms that stand before it, as in docs/architecture.md.
ROOMS = [
    *(
        "_checks",
        "_random",
        "_splits",
        "_files",
        "_terminal",
        "_arrow",
        "_tensors",
        "distributions",
    ),
    *("mixture", "heads", "networks", "perturbations", "scoring", "metrics", "recalibration", "members", "training"),
    *(
        "execution",
        "settings",
        "columns",
        "images",
        "ensemble",
        "growing",
        "fitting",
        "recipes",
        "selection",
        "report",
        "estimators",
        "baselines",
        "tabular",
    ),
    *("saving", "paper", "cli"),
]
OUTSIDE_THE_CORE = {"columns", "tabular", "report", "paper", "cli"}
# What starts quickly, or needs an extra for some data only, may import a part of the package when it needs it.
MAY_IMPORT_LATE = ("cli/", "saving.py", "estimators/_inputs.py")
# Users call these with what they need by name.
MANY_ARGUMENTS = ("__init__", "fit_ensemble", "cross_validate", "reproduce", "fit", "predict", "compare", "periodic_mlp")
ONLY_IN = {
    "typer": ("cli/",),
    "matplotlib": ("paper/figures.py",),
    "jinja2": ("report/page.py",),
    "pooch": ("paper/fetch.py",),
    "pyarrow": ("_arrow.py",),
    "PIL": ("images.py",),
    "pickle": ("execution/",),
    "cloudpickle": ("execution/_packing.py",),
    "ray": ("execution/ray.py",),
}
NAMED_BY_USERS = "paper/experiments/_classification.py"  # imports the network that a command names
GLOBAL_SETTINGS = {"manual_seed", "set_default_dtype", "set_num_threads", "use_deterministic_algorithms"}
MAY_SET_THREADS = ("training/resources.py", "cli/_tables.py")  # and puts it back; of a program of one's own


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import below a node: the module, and the name taken from it ("" for the module itself)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide direction"
            yield from ((node.module or "", alias.name) for alias in node.names)


def ours(tree: ast.AST) -> Iterator[list[str]]:
    """The imports of the package's own parts, as paths below it: room, module, …, name."""
    for module, name in imported(tree):
        if module.split(".")[0] == "deep_ensembles":
            home = deep_ensembles._HOMES.get(name, "") if module == "deep_ensembles" else ""
            yield [*module.split(".")[1:], *home.split(".")[: bool(home)], *([name] if name else [])]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def code_lines(file: str) -> int:
    """Lines of code, without docstrings, comments and blank lines."""
    text, documented = (PACKAGE / file).read_text("utf-8"), set()
    for node in ast.walk(FILES[file]):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in blank]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - documented)


def test_every_room_has_its_place() -> None:
    assert {room_of(file) for file in FILES if file != DOOR} == set(ROOMS)


def test_imports_point_one_way() -> None:
    rank = {room: place for place, room in enumerate(ROOMS)}
    upward = [f"{file} imports {path[0]}" for file, tree in FILES.items() if file != DOOR for path in ours(tree)
              if path and path[0] in rank and path[0] != room_of(file) and rank[path[0]] > rank[room_of(file)]]  # fmt: skip
    assert not upward


def test_nothing_is_imported_by_string() -> None:
    """But public names, which a door loads from its own room when they are first used, and what users name."""
    hidden = []
    for file, tree in FILES.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        own = [call.func for call in calls if ast.unparse(call.args[0]).startswith("f'{__name__}.")]
        allowed = own if file.endswith(DOOR) else []
        named = [node for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.Name)) and node not in allowed]
        names = {node.attr if isinstance(node, ast.Attribute) else node.id for node in named}
        hidden += [file] * (file != NAMED_BY_USERS and not names.isdisjoint({"import_module", "__import__"}))
    assert not hidden


def test_names_with_an_underscore_stay_in_their_room() -> None:
    private = [f"{file} imports {'.'.join(path)}" for file, tree in FILES.items() for path in ours(tree)
               if path and path[0] != room_of(file) and any(re.match("_[^_]", part) for part in path[1:])]  # fmt: skip
    assert not private


def test_no_import_inside_a_function() -> None:
    late = [f"{file}: {function.name}" for file, tree in FILES.items() if not file.startswith(MAY_IMPORT_LATE)
            for function in functions(tree) if list(ours(function))]  # fmt: skip
    assert not late


def test_heavy_libraries_stay_in_their_file() -> None:
    astray = [f"{file} imports {module}" for file, tree in FILES.items() for module, _ in imported(tree)
              if not file.startswith(ONLY_IN.get(module.split(".")[0], file))]  # fmt: skip
    assert not astray


def test_functions_are_short_and_take_few_arguments() -> None:
    long, wide = [], []
    for file, tree in FILES.items():
        for function in functions(tree):
            arguments = function.args
            names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            long += [f"{file}: {function.name}"] * ((function.end_lineno or 0) - function.lineno > 80)
            few = len([name for name in names if name not in ("self", "cls")]) <= 8
            wide += [f"{file}: {function.name}"] * (not few and function.name not in MANY_ARGUMENTS)
    assert not long
    assert not wide


def test_no_global_torch_settings() -> None:
    changed = [
        f"{file}: torch.{node.attr}"
        for file, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
        if node.attr in GLOBAL_SETTINGS and not (node.attr == "set_num_threads" and file in MAY_SET_THREADS)
    ]
    assert not changed


def test_the_house_stays_small() -> None:
    code = {file: code_lines(file) for file in FILES}
    imports = sum(
        (node.end_lineno or 0) - node.lineno + 1
        for tree in FILES.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    assert sum("/" not in file for file in FILES) <= 17
    assert max(len((PACKAGE / file).read_text("utf-8").splitlines()) for file in FILES) <= 400
    # 17 000 and 8 000 are wanted; training in processes, on clusters and from files larger than memory has gone beyond that.
    assert sum(code.values()) <= 17_490
    assert sum(lines for file, lines in code.items() if room_of(file) not in OUTSIDE_THE_CORE) <= 8_390
    assert imports <= 0.125 * sum(code.values())

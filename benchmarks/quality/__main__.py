"""Run the cells that have no record yet, or write the page from the records."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.page import write_page
from benchmarks.quality.records import METHODS, RECORDS, Cell, cells, read_all, run, why_skipped
from benchmarks.quality.tables import TABLES

NAMES = tuple(dict.fromkeys(method.name for methods in METHODS.values() for method in methods))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    if options.page is not None:
        write_page(options.page, read_all(options.records))
        _say(f"wrote {options.page}")
        return 0
    try:
        return _run_all(list(cells(options.sets, options.methods, options.splits)), options.records)
    except KeyboardInterrupt:
        _say("stopped; the same command goes on")
        return 130


def _run_all(chosen: Sequence[Cell], root: Path) -> int:
    """Run what is not there; a cell that fails is told and does not end the others."""
    missing = {cell.method.name: cell.method.why_not() for cell in chosen}
    for name, reason in missing.items():
        if reason is not None:
            _say(f"{name} is left out: {reason}")
    wanted = [cell for cell in chosen if missing[cell.method.name] is None]
    done = sum(cell.path(root).is_file() for cell in wanted)
    _say(f"{len(wanted)} cells, {done} of them there")
    failed = 0
    for number, cell in enumerate(wanted, start=1):
        if why_skipped(cell, root) is None:
            failed += not _run_one(f"[{number}/{len(wanted)}] {cell}", cell, root)
    _say(f"done, {failed} failed" if failed else "done")
    return int(failed > 0)


def _run_one(label: str, cell: Cell, root: Path) -> bool:
    start = time.perf_counter()
    try:
        record = run(cell, root)
    except Exception as error:
        _say(f"{label}: failed: {type(error).__name__}: {error}")
        return False
    _say(f"{label}: {_headline(record)}, {time.perf_counter() - start:.1f} s")
    return True


def _headline(record: dict[str, Any]) -> str:
    scores = record["scores"]
    name = "nll" if "nll" in scores else "rmse"
    return f"{name} {scores[name]:.3f}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--sets", type=_chosen(tuple(TABLES)), default=tuple(TABLES), help=", ".join(TABLES))
    parser.add_argument("--methods", type=_chosen(NAMES), help=", ".join(NAMES))
    parser.add_argument("--splits", type=_splits, help="such as 0-4 or 0,2,5; all by default")
    parser.add_argument("--records", type=Path, default=RECORDS, metavar="DIR", help="where records are kept")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write this page from the records, and run nothing")
    return parser.parse_args(arguments)


def _chosen(known: Sequence[str]) -> Any:
    def names(text: str) -> tuple[str, ...]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}; there are {', '.join(known)}")
        return tuple(text.split(","))

    return names


def _splits(text: str) -> list[int]:
    """Row numbers from "0-4", "3" or "0,2,5"."""
    try:
        ends = [tuple(map(int, part.split("-"))) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be such as 0-4 or 0,2,5, got {text!r}") from None
    return [split for part in ends for split in range(part[0], part[-1] + 1)]


if __name__ == "__main__":
    sys.exit(main())

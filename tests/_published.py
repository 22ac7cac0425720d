"""Made data in the formats in which the real data were published, and a small server for them."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles.paper.datasets import Card


def split_files(rows: int, features: int, splits: int, form: str = "%d", extra_columns: int = 0) -> dict[str, bytes]:
    """A folder of the benchmark: random numbers, a tenth of the rows in each test part."""
    generator = np.random.default_rng(rows)
    data = generator.normal(size=(rows, features + 1 + extra_columns))
    files = {
        "data.txt": _text(data, "%.17g"),
        "index_features.txt": _text(np.arange(features), form),
        "index_target.txt": _text(np.array([features]), form),
        "n_splits.txt": _text(np.array([splits]), form),
    }
    for split in range(splits):
        order = generator.permutation(rows)
        files[f"index_test_{split}.txt"] = _text(order[: rows // 10], form)
        files[f"index_train_{split}.txt"] = _text(order[rows // 10 :], form)
    return files


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_song_archive(path: Path, rows: int, features: int = 90, distinct: int = 5000) -> Path:
    """Years and timbres as text in a zip; the same `distinct` lines over and over."""
    generator = np.random.default_rng(0)
    years = generator.integers(1922, 2012, size=min(rows, distinct))
    timbres = generator.normal(0, 50, size=(len(years), features))
    lines = [",".join([str(year), *(f"{x:.5f}" for x in row)]) for year, row in zip(years, timbres, strict=True)]
    whole, rest = divmod(rows, len(lines))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        packed.open("YearPredictionMSD.txt", "w", force_zip64=True) as file,
    ):
        for count in [len(lines)] * whole + [rest]:
            file.write("".join(f"{line}\n" for line in lines[:count]).encode())
    return path


def _text(numbers: np.ndarray, form: str) -> bytes:
    return "".join(" ".join(form % value for value in np.atleast_1d(row)) + "\n" for row in numbers).encode()


@dataclass
class Server:
    """Serves `files`; those in `cut_short` break off halfway, those in `stuck` wait halfway until released."""

    address: str
    files: dict[str, bytes]
    cut_short: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    halfway: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"

    def card(self, card: Card, **changes: Any) -> Card:
        """The card with all its originals on this server."""
        originals = tuple(replace(each, url=self.url(each.file)) for each in card.originals)
        return replace(card, originals=originals, **changes)


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            here.asked.append(name)
            if name not in here.files:
                self.send_error(404)
                return
            content = here.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            if name in here.stuck:
                here.halfway.set()
                here.released.wait(30)
            if name not in here.cut_short:
                self.wfile.write(content[len(content) // 2 :])

        def log_message(self, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away is what some tests are about."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        here = Server(f"http://127.0.0.1:{server.server_port}", dict(files))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield here
        finally:
            here.released.set()
            server.shutdown()
            thread.join()

"""Fetching data sets, against a small server on this machine."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from _processes import shown_by, started
from _published import Server, serving, split_files, write_song_archive
from typer.testing import CliRunner

from deep_ensembles.cli import app
from deep_ensembles.paper import datasets
from deep_ensembles.paper.datasets import DatasetError, Original, card, uci
from deep_ensembles.paper.datasets.uci import YEAR
from deep_ensembles.paper.fetch import SUMS, download, fetch


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Has the yacht set at its published size."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yacht = card("yacht")
    with serving(split_files(yacht.rows, yacht.features, yacht.splits)) as server:
        yield server


def test_fetching_a_set(server: Server, tmp_path: Path) -> None:
    path = fetch(server.card(card("yacht")), tmp_path, retries=0)
    assert path == tmp_path / "uci" / "yacht.npz"
    assert sorted(server.asked) == sorted(server.files)
    dataset = uci("yacht", tmp_path)
    np.testing.assert_array_equal(dataset.targets, np.loadtxt(server.files["data.txt"].decode().splitlines())[:, 6])
    sums = (tmp_path / "originals" / "yacht" / SUMS).read_text().splitlines()
    assert f"{hashlib.sha256(server.files['data.txt']).hexdigest()}  data.txt" in sums
    assert len(sums) == len(server.files)
    fetch(server.card(card("yacht")), tmp_path, retries=0)
    assert len(server.asked) == len(server.files), "what is here is left alone"


def test_an_interrupted_fetch_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut_short = {"index_test_7.txt"}
    with pytest.raises(DatasetError, match=r"could not be downloaded .*run the same command again to go on"):
        fetch(server.card(card("yacht")), tmp_path, retries=0)
    folder = tmp_path / "originals" / "yacht"
    done = {path.name for path in folder.iterdir()} - {SUMS}
    assert done < set(server.files)
    assert "index_test_7.txt" not in done
    assert not (tmp_path / "uci").exists()
    server.cut_short, server.asked = set(), []
    fetch(server.card(card("yacht")), tmp_path, retries=0)
    assert set(server.asked) == set(server.files) - done
    assert uci("yacht", tmp_path).inputs.shape == (308, 6)


def test_a_killed_download_does_not_count(server: Server, tmp_path: Path) -> None:
    server.stuck = {"data.txt"}
    code = (
        "import sys; from pathlib import Path; from deep_ensembles.paper.datasets import Original;"
        "from deep_ensembles.paper.fetch import download; download(Original(sys.argv[1], 'data.txt'), Path(sys.argv[2]))"
    )
    with started([sys.executable, "-c", code, server.url("data.txt"), str(tmp_path)]):
        assert server.halfway.wait(60)
    server.released.set()
    assert not (tmp_path / "data.txt").exists()
    path = download(Original(server.url("data.txt"), "data.txt"), tmp_path, retries=0)
    assert path.read_bytes() == server.files["data.txt"]


def test_a_download_is_tried_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.cut_short = {"data.txt"}
    monkeypatch.setattr("time.sleep", lambda seconds: server.cut_short.clear())
    assert download(Original(server.url("data.txt"), "data.txt"), tmp_path, retries=1).is_file()
    assert server.asked == ["data.txt", "data.txt"]


def test_a_published_checksum_must_fit(server: Server, tmp_path: Path) -> None:
    content = server.files["data.txt"]
    right = Original(server.url("data.txt"), "data.txt", hashlib.sha256(content).hexdigest())
    with pytest.raises(DatasetError, match="does not have the published checksum 0000"):
        download(replace(right, checksum="0" * 64), tmp_path, retries=0)
    assert not (tmp_path / "data.txt").exists()
    (tmp_path / "data.txt").write_bytes(content[:100])
    assert download(right, tmp_path, retries=0).read_bytes() == content, "a damaged file is replaced"
    assert not (tmp_path / SUMS).exists()


def test_a_file_that_changes_later_is_noticed(server: Server, tmp_path: Path) -> None:
    original, before = Original(server.url("data.txt"), "data.txt"), server.files["data.txt"]
    download(original, tmp_path, retries=0)
    (tmp_path / "data.txt").write_bytes(before[:100])
    assert download(original, tmp_path, retries=0).read_bytes() == before, "changed here: downloaded again"
    (tmp_path / "data.txt").unlink()
    server.files["data.txt"] = before + b"1 2 3\n"
    with pytest.raises(DatasetError, match="is not the file that was downloaded before"):
        download(original, tmp_path, retries=0)


def test_a_set_with_a_wrong_file_is_not_converted(server: Server, tmp_path: Path) -> None:
    server.files["data.txt"] = server.files["data.txt"][:-200]
    with pytest.raises(DatasetError):
        fetch(server.card(card("yacht")), tmp_path, retries=0)
    assert not (tmp_path / "uci").exists()


def test_the_song_archive(server: Server, tmp_path: Path) -> None:
    archive = write_song_archive(tmp_path / "songs.zip", rows=52_000, features=2)
    songs = server.card(card(YEAR), rows=52_000, features=2)
    server.files[songs.originals[0].file] = archive.read_bytes()
    with pytest.raises(DatasetError, match="does not have the published checksum 06f801af"):
        fetch(songs, tmp_path, retries=0)
    trusted = replace(songs, originals=tuple(replace(each, checksum=None) for each in songs.originals))
    fetch(trusted, tmp_path, retries=0)
    dataset = uci(YEAR, tmp_path)
    assert dataset.inputs.dtype == np.float32
    assert [len(rows) for rows in dataset.splits[0]] == [52_000 - 51_630, 51_630]


def test_the_command(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path))
    monkeypatch.setitem(datasets._CARDS, "yacht", server.card(card("yacht")))
    runner = CliRunner()
    assert re.search(r"yacht .* no +uci/yacht.npz", runner.invoke(app, ["data", "list"]).stdout)
    result = runner.invoke(app, ["data", "fetch", "yacht", "toy_cubic"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [f"yacht  {tmp_path / 'uci' / 'yacht.npz'}", "toy_cubic  needs no file"]
    listed = runner.invoke(app, ["data", "list"])
    assert re.search(r"yacht .* yes +uci/yacht.npz", listed.stdout)
    assert f"data home  {tmp_path}" in listed.stdout
    assert listed.exit_code == 0


def test_the_command_says_what_is_wrong(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP_ENSEMBLES_DATA", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setitem(datasets._CARDS, "yacht", server.card(card("yacht")))
    runner = CliRunner()
    unknown = runner.invoke(app, ["data", "fetch", "yacht", "nonsense"])
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("error: `name` must be one of toy_cubic, boston-housing, concrete")
    assert server.asked == [], "names are checked before anything is downloaded"
    del server.files["index_target.txt"]
    missing = runner.invoke(app, ["data", "fetch", "yacht"])
    assert missing.exit_code == 1
    assert "index_target.txt could not be downloaded (404" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1
    assert runner.invoke(app, ["data", "fetch"]).exit_code == 2
    assert runner.invoke(app, ["data", "nonsense"]).exit_code == 2


def test_without_pooch_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pooch'] = None; from deep_ensembles.cli import app;"
        "assert 'numpy' not in sys.modules; app(sys.argv[1:])"
    )
    result = subprocess.run([sys.executable, "-c", code, "data", "fetch", "yacht"], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "error: downloads need pooch: pip install 'deep-ensembles[data]'\n"
    assert subprocess.run([sys.executable, "-c", code, "data", "list"], capture_output=True).returncode == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_a_terminal_and_silence_elsewhere(terminal: bool, server: Server, tmp_path: Path) -> None:
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path;"
        "from deep_ensembles.paper.datasets import card; from deep_ensembles.paper.fetch import fetch;"
        "yacht = card('yacht');"
        "originals = [replace(each, url=f'{sys.argv[1]}/{each.file}') for each in yacht.originals];"
        "fetch(replace(yacht, originals=tuple(originals)), Path(sys.argv[2]), retries=0)"
    )
    shown = shown_by([sys.executable, "-c", code, server.address, str(tmp_path)], terminal)
    assert ("yacht 44/44 index_test_19.txt" in shown) == terminal
    assert terminal or not shown
    assert uci("yacht", tmp_path).name == "yacht"

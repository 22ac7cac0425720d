"""Downloads of published originals; the only file that knows the download library.

A file counts as there only when it is complete and its checksum fits: it is downloaded beside its place and renamed. So a
fetch that was interrupted goes on with the files it lacks, and a converted set appears at once or not at all.

Checksums: where one is known, the file must have it. Where none is (the split files, whose address pins a Git commit), the
content is checked on conversion: row and column counts, finite numbers, splits that hold each row once. The checksum of what
came is then recorded in `SHA256SUMS` beside the files, and from then on the file must have that one, so that a file that
changes, here or where it is published, is noticed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deep_ensembles._files import write_atomically
from deep_ensembles._terminal import progress
from deep_ensembles.paper.datasets import Card, DatasetError, Original, file_sum

try:
    import pooch
except ImportError as error:
    raise ImportError("downloads need pooch: pip install 'deep-ensembles[data]'") from error

SUMS = "SHA256SUMS"
_CHUNK = 1 << 16


def fetch(card: Card, home: Path, retries: int = 2) -> Path | None:
    """Download a data set's originals into `<home>/originals/<name>` and convert them.

    Arguments:
        card: of the data set.
        home: the data home.
        retries: how often a failed download is tried again, a second or two later.

    Returns:
        The data set's file, or None if it is made on the spot. Nothing is downloaded if the file is there.
    """
    if card.file is None or card.convert is None:
        return None
    target = home / card.file
    if not target.is_file():
        folder = home / "originals" / card.name
        for number, original in enumerate(card.originals, start=1):
            with progress(f"{card.name} {number}/{len(card.originals)} {original.file}", None, "bytes") as update:
                download(original, folder, retries, _file_bar(update))
        card.convert(card, folder, target)
    return target


def download(original: Original, folder: Path, retries: int = 2, bar: Any = False) -> Path:
    """One original in its folder, complete and with the checksum that is known of it, downloaded if need be."""
    sums, file = _read_sums(folder / SUMS), original.file
    known = original.checksum or sums.get(file)
    registry = pooch.create(folder, "", registry={file: known}, urls={file: original.url}, retry_if_failed=retries)
    downloader, logger = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK), pooch.get_logger()
    try:
        with ExitStack() as undo:
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel("ERROR")  # no line per file; the bar says as much
            path = Path(registry.fetch(file, downloader=downloader))
    except ValueError as error:  # pooch's word for a checksum that does not fit
        raise DatasetError(_changed(original, folder)) from error
    except OSError as error:
        cure = "run the same command again to go on"
        raise DatasetError(f"{original.url} could not be downloaded ({_reason(error)}); {cure}") from error
    if known is None:
        sums[file] = file_sum(path)
        write_atomically(folder / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode())
    return path


def _reason(error: OSError) -> str:
    """A few words; what requests says of a lost connection fills a paragraph."""
    response = getattr(error, "response", None)
    return f"{response.status_code} {response.reason}" if response is not None else error.strerror or type(error).__name__


def _changed(original: Original, folder: Path) -> str:
    if original.checksum:
        return f"{original.url} does not have the published checksum {original.checksum}; nothing was kept"
    cure = f"if that is right, delete {folder} and fetch again"
    return f"{original.url} is not the file that was downloaded before, going by {folder / SUMS}; {cure}"


def _read_sums(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    return {file: checksum for checksum, _, file in (line.partition("  ") for line in lines) if file}


def _file_bar(update: Callable[..., None]) -> Any:
    """A progress bar as pooch asks for one; the end of the download clears it."""
    bar = SimpleNamespace(total=0, reset=lambda: update(completed=0), close=lambda: None)
    bar.update = lambda amount: update(advance=amount, total=bar.total or None)
    return bar

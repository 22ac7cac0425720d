"""In several processes of this machine at once."""

import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import joblib
import torch
from joblib.executor import get_memmapping_executor
from joblib.parallel import get_active_backend

from deep_ensembles._checks import check_integer, require
from deep_ensembles.execution._packing import outcome, packed, packed_apart, result_of, seldom, unpacked
from deep_ensembles.execution.in_process import Execution, InProcess, Report, Results, Work

_MOST_DEATHS = 10  # of workers, one after another, without an item that is done
_IDLE_SECONDS, _POLL_SECONDS = 300, 0.2
_LEAST_SECONDS = 10.0  # of a training that processes gain more for than it takes to start them
_WORKER = "DEEP_ENSEMBLES_WORKER"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Processes:
    """Works in processes of one thread each, which see the data in one file that all map into memory.

    They stay for a few minutes, so that the next work starts at once, and end when this process ends, however that is. Where
    one dies, all are replaced, and what they had begun is done again. Several GPUs are taken in turn.

    Arguments:
        jobs: how many at once; by default one per core that this process may use, or per GPU.
        least_seconds: trainings of less are done in this process.
    """

    jobs: int | None = None
    least_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_integer("jobs", self.jobs, low=1, optional=True)

    @property
    def workers(self) -> int:
        """How many items are worked on at once."""
        return self.jobs or torch.cuda.device_count() or joblib.cpu_count()

    def __call__(self, work: Work, items: Sequence[Any], report: Report | None = None) -> Results:
        left, deaths = dict(enumerate(map(packed, items))), 0
        how: dict[str, Any] = {"env": dict.fromkeys((*_THREADS, _WORKER), "1"), "initializer": _end_with}
        place = str(Path.cwd()), dict(os.environ) | how["env"]  # as they are now: workers may be older than a change of them
        with tempfile.TemporaryDirectory(prefix="deep-ensembles-", ignore_cleanup_errors=True) as folder:
            joblib.dump(packed_apart(work), f"{folder}/work")
            while left:
                pool = get_memmapping_executor(  # joblib's own, as `joblib.Parallel` finds a pool that loky made unusable
                    min(self.workers, len(items)), timeout=_IDLE_SECONDS, initargs=(os.getpid(),), **how
                )
                pending = {pool.submit(_do, folder, *entry, place, report is not None): entry[0] for entry in left.items()}
                try:
                    while pending:
                        finished, _ = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
                        for number, done, note in _told(folder, pending.values()) if report is not None else ():
                            cast(Report, report)(items[number], done, note)
                        for future in finished:
                            result, number = result_of(*future.result()), pending.pop(future)
                            deaths = 0
                            del left[number]
                            yield items[number], result
                except BrokenExecutor as error:
                    deaths += 1
                    if deaths == _MOST_DEATHS:
                        message = f"{deaths} worker processes died over the same work (out of memory?); use fewer processes"
                        raise RuntimeError(message) from error
                finally:
                    if pending:
                        pool.shutdown(kill_workers=True)


def chosen_execution(execution: Execution | None, n_jobs: int | str | None) -> Execution:
    """An execution that is given, or what joblib's convention asks for: `n_jobs`, or that of `joblib.parallel_config`.

    Trainings that are too short for processes to pay are done in this process, and all of them where it is itself one of
    several. None is one process, and "auto" one per core.
    """
    if execution is not None:
        return execution
    backend, configured = get_active_backend()
    n_jobs = configured if n_jobs in (None, "auto") and configured is not None else n_jobs
    if n_jobs is None or (n_jobs == "auto" and (backend.nesting_level or _WORKER in os.environ)):
        return InProcess()
    if n_jobs == "auto":
        return Processes(None, _LEAST_SECONDS)
    require(isinstance(n_jobs, int) and n_jobs != 0, "n_jobs", 'None, "auto" or a whole number, not 0', n_jobs)
    n = joblib.effective_n_jobs(n_jobs)
    return Processes(n, _LEAST_SECONDS) if n > 1 else InProcess()


def _end_with(parent: int) -> None:
    """Let a worker end with the process that started it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _do(folder: str, number: int, item: bytes, place: tuple[str, dict[str, str]], reports: bool) -> tuple[str, Any]:
    """Work on an item, in a worker that has the working folder and the environment of the one that asks; its outcome."""
    if (str(Path.cwd()), dict(os.environ)) != place:
        os.chdir(place[0])
        os.environ.clear()
        os.environ.update(place[1])
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    work = unpacked(*joblib.load(f"{folder}/work", mmap_mode="c"))

    def tell(done: int, note: str) -> None:
        Path(folder, str(number)).write_text(f"{done} {note}")

    return outcome(work, item, seldom(tell) if reports else None)


def _told(folder: str, numbers: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """What workers last told of items."""
    for number in numbers:
        place = Path(folder, str(number))
        done, _, note = (place.read_text() if place.exists() else "").partition(" ")
        if done:
            yield number, int(done), note

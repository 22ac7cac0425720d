"""In several processes of this machine at once."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from deep_ensembles._checks import check_integer


@dataclass(frozen=True)
class Processes:
    """Works in fresh processes that share this one's threads between them, and end when it ends, however that is.

    Arguments:
        jobs: how many at once; one per core by default.
    """

    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None:
            check_integer("jobs", self.jobs, low=1)

    def __call__(self, work: Callable[[Any], None], items: Sequence[Any]) -> Iterator[Any]:
        if not items:
            return
        jobs = min(self.jobs or os.cpu_count() or 1, len(items))
        threads = max(1, torch.get_num_threads() // jobs)
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (threads, os.getpid()))
        try:
            pending = {pool.submit(work, item): item for item in items}
            for finished in as_completed(pending):
                finished.result()
                yield pending[finished]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start(threads: int, parent: int) -> None:
    torch.set_num_threads(threads)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""On the machines of a Ray cluster; the only file that knows Ray."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep_ensembles._checks import check_number
from deep_ensembles.execution._packing import outcome, packed, packed_apart, result_of, seldom, unpacked
from deep_ensembles.execution.in_process import Report, Results, Work

try:
    import ray
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("a cluster needs Ray: pip install 'deep-ensembles[ray]'") from error

_POLL_SECONDS = 0.5
_MOST_LOSSES = 10  # of machines or processes over one item; errors of the work are raised at once


@dataclass(frozen=True)
class Ray:
    """Works as tasks of a cluster, on as many machines as it has; a task whose machine is lost is done again elsewhere.

    Data in memory are put once into Ray's object store; a dataset that reads files, such as `ImageFolder`, is opened by each
    worker, so its path must be one that all machines share. So must the path of a `Checkpoint`, from which a task that was
    lost goes on; or it is a URL.

    Arguments:
        address: of the cluster, as in "10.0.0.1:6379"; "auto" for that of this machine, "local" to start one here.
        cpus, gpus: what a task takes.
    """

    address: str = "auto"
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_number("cpus", self.cpus, low=0, above=True)
        check_number("gpus", self.gpus, low=0)

    @property
    def workers(self) -> int:
        """How many items are worked on at once."""
        self._connect()
        there = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = there.get("GPU", 0) / self.gpus if self.gpus else np.inf
        return max(1, int(min(there.get("CPU", 0) / self.cpus, gpus)))

    def __call__(self, work: Work, items: Sequence[Any], report: Report | None = None) -> Results:
        if not items:
            return
        self._connect()
        shared = ray.put(packed_apart(work))
        here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        inbox = None if report is None else Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        task: Any = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_MOST_LOSSES)(_do)
        pending = {task.remote(shared, number, packed(item), inbox): number for number, item in enumerate(items)}
        try:
            while pending:
                finished, _ = ray.wait(list(pending), timeout=None if inbox is None else _POLL_SECONDS)
                if report is not None and inbox is not None:
                    for number, done, note in inbox.get_nowait_batch(inbox.qsize()):
                        report(items[number], done, note)
                for reference in finished:
                    yield items[pending.pop(reference)], result_of(*ray.get(reference))
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"a machine or process was lost too often ({str(error).splitlines()[0]})") from error
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            if inbox is not None:
                inbox.shutdown(force=True)

    def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        try:
            if host[:1].isdigit() and not ray.is_initialized():
                socket.create_connection((host, int(port)), 10).close()  # Ray would try for minutes
            ray.init(self.address, ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
        except OSError as error:
            raise ValueError(f"`address` must be that of a running Ray cluster, got {self.address!r} ({error})") from error


def _do(shared: tuple[bytes, list[np.ndarray]], number: int, item: bytes, inbox: Any) -> tuple[str, Any]:
    """Work on an item, on the machine of a worker; its outcome."""
    report = None if inbox is None else seldom(lambda done, note: inbox.put((number, done, note)))
    content, arrays = shared
    own = [array.copy() for array in arrays]  # the store's are only to be read
    return outcome(lambda *arguments: unpacked(content, own)(*arguments), item, report)

"""On the machines of a Ray cluster; the only file that knows Ray."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deep_ensembles._checks import check_number

try:
    import ray
except ImportError as error:
    raise ImportError("a cluster needs Ray: pip install 'deep-ensembles[ray]'") from error


@dataclass(frozen=True)
class Ray:
    """Works as tasks of a cluster, on as many machines as it has; a task whose machine is lost is done again elsewhere.

    Files are left where the work leaves them: on several machines that must be a folder that all of them share.

    Arguments:
        address: of the cluster; "auto" for the one this machine belongs to, "local" to start one here.
        cpus, gpus: what a task takes.
    """

    address: str = "auto"
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_number("cpus", self.cpus, low=0, above=True)
        check_number("gpus", self.gpus, low=0)

    def __call__(self, work: Callable[[Any], None], items: Sequence[Any]) -> Iterator[Any]:
        try:
            ray.init(self.address, ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
        except ConnectionError as error:
            raise ValueError(f"`address` must be that of a running Ray cluster, got {self.address!r} ({error})") from error
        task: Any = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus)(lambda work, item: work(item))
        pending = {task.remote(work, item): item for item in items}
        try:
            while pending:
                (finished,), _ = ray.wait(list(pending), num_returns=1)
                item = pending.pop(finished)
                try:
                    ray.get(finished)
                except ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from error  # type: ignore[no-untyped-call]
                yield item
        finally:
            for unfinished in pending:
                ray.cancel(unfinished, force=True)

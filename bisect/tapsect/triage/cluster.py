"""Many jobs on a Ray cluster: Ray schedules them, and runs them again when a node is lost.

A task carries the digests of its files, not the files: each is put into the object store once, or
into a folder that driver and nodes share.  Only the driver writes to the history and to the
folder of findings, so that a task that ran twice counts once.

Nodes need this package, of the same version, and the engines.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from debugtaps import EnvironmentFailure, MissingPackage
from tapsect.triage.carried import Carrier, InFolder, perform, unpack
from tapsect.triage.job import Done, Job, Stopped
from tapsect.triage.supervise import finished

__all__ = ["Cluster"]

RETRIES = 5
"""How often a job is begun again after its node was lost."""
CONNECT_S = 5.0


class Cluster:
    """Runs jobs on a Ray cluster.

    Args:
        home: The folder of all findings, on this machine.
        address: ``auto``, ``host:port`` or ``ray://host:port``.
        shared: A folder, as fsspec names it; files travel through Ray's object store without it.

    Raises:
        MissingPackage: The extra ``ray`` is not installed.
        EnvironmentFailure: There is no cluster.
    """

    def __init__(self, home: Path, address: str, *, shared: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise MissingPackage(
                "--ray needs 'ray', which is not installed; pip install 'tapsect[ray]'"
            ) from None
        self.home = home
        self.carrier: Carrier = InObjects() if shared is None else InFolder(shared)
        _knock(address)
        try:
            ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
        except Exception as error:  # Ray raises what its layers raise
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EnvironmentFailure(
                f"no Ray cluster answers at {address} ({said}); start one, or leave --ray out."
            ) from None

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yields what became of each job, in the order they end; each exactly once."""
        import ray

        waiting: dict[Any, Job] = {}
        for job in jobs:
            known = finished(self.home, job.folder)
            if known is not None:
                yield Done(job.key, known)
                continue
            if (lacking := _lacking(job)) is not None:  # Ray would wait for it for ever
                yield Done(job.key, None, Stopped("failed", lacking))
                continue
            waiting[self._submit(job)] = job
        while waiting:
            (ended, *_), _ = ray.wait(list(waiting), num_returns=1)
            job = waiting.pop(ended)
            try:
                told = ray.get(ended)
            except ray.exceptions.RayError as error:
                said = f"the cluster lost it ({type(error).__name__})"
                yield Done(job.key, None, Stopped("died", said))
            else:
                yield self._done(job, told)

    def _submit(self, job: Job) -> Any:
        import ray

        there = {path: digest for path, digest in job.files.items() if Path(path).is_file()}
        files = {digest: self.carrier.give(digest, Path(path)) for path, digest in there.items()}
        task = ray.remote(perform).options(
            num_cpus=job.cpus, num_gpus=job.gpus, memory=job.limits.get("memory"),
            max_retries=RETRIES, retry_exceptions=False, name=job.entry,
        )  # fmt: skip
        return task.remote(job.to_json(), files, self.carrier)

    def _done(self, job: Job, told: Mapping[str, Any]) -> Done:
        if told["stopped"] is not None:
            return Done(job.key, None, Stopped(**told["stopped"]), told["seconds"])
        unpack(self.carrier.take(told["results"]), self.home / job.folder)
        return Done(job.key, finished(self.home, job.folder), None, told["seconds"])

    def close(self) -> None:
        """Leaves the cluster; what it still runs for us ends."""
        import ray

        ray.shutdown()


class InObjects:
    """Carries files through Ray's object store."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (InObjects, ())  # a task knows the files of its own

    def give(self, digest: str, path: Path) -> Any:
        """Returns a reference to a file's content, put into the store once."""
        import ray

        if digest not in self.given:
            self.given[digest] = ray.put(path.read_bytes())
        return self.given[digest]

    def fetch(self, reference: Any, path: Path) -> None:
        """Writes the content of a reference to ``path``."""
        import ray

        path.write_bytes(ray.get(reference))

    def send(self, name: str, content: bytes) -> Any:
        """Returns what brings the results of a task to the driver."""
        return content

    def take(self, reference: Any) -> bytes:
        """Returns what a task sent."""
        content: bytes = reference
        return content


def _lacking(job: Job) -> str | None:
    """Returns why no node of the cluster can ever take a job; ``None`` when one can."""
    import ray

    wanted = {"CPU": job.cpus, "GPU": job.gpus, "memory": job.limits.get("memory", 0.0)}
    for node in ray.nodes():
        held = node["Resources"]
        if node["Alive"] and all(held.get(name, 0.0) >= size for name, size in wanted.items()):
            return None
    told = f"{job.cpus:g} CPUs, {job.gpus:g} GPUs and {wanted['memory'] / 2**30:.1f} GiB"
    return f"no node of the cluster has {told}"


def _knock(address: str) -> None:
    """Checks that somebody listens: Ray itself would try for a long time."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host or "127.0.0.1", int(port)), CONNECT_S).close()
    except OSError as error:
        raise EnvironmentFailure(
            f"no Ray cluster answers at {address} ({error.strerror or error}); start one, or"
            " leave --ray out."
        ) from None

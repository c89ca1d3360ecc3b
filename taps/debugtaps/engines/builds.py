"""The parent's side of one session: runs, noise sweeps and what the session says of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from debugtaps.engines import worker
from debugtaps.engines.child import Reply
from debugtaps.engines.contract import Array, Feeds
from debugtaps.errors import InputError, WorkerError

if TYPE_CHECKING:
    from debugtaps.engines.host import Host

__all__ = ["Build", "Noise", "Sweep"]

Mode = Literal["uniform", "plus", "minus", "one"]
Noise = tuple[Mode, float, int]

_SHAPE_VALUES = 64

NO_FEEDS: Feeds = MappingProxyType({})
NO_WINDOWS: Mapping[str, tuple[str, int, Sequence[int]]] = MappingProxyType({})
NO_SHAKEN: Mapping[str, tuple[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sweep:
    """What noise did to the outputs of one session.

    Attributes:
        base: The outputs without noise.
        spread: For float outputs, the rms deviation from the base, element by element; infinite
            where ``kept`` is 0.  Empty when there were no runs.
        changed: For the others, which elements any run changed.
        kept: How many runs count, by output; one that raised or changed a shape does not.
        notes: Why runs were dropped, outputs left out.
    """

    base: dict[str, Array]
    spread: dict[str, Array]
    changed: dict[str, Array]
    kept: dict[str, int]
    notes: tuple[str, ...]


def checked(feeds: Feeds) -> dict[str, Array]:
    """Returns feeds as arrays that can travel.

    Raises:
        InputError: One holds records or objects that are not text.
    """
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    for name, array in arrays.items():
        if array.dtype == object:
            travels = all(isinstance(each, str | bytes) for each in array.flat)
        else:
            travels = array.dtype.kind in "SU" or worker.dtype_name(array.dtype) is not None
        if not travels:
            raise InputError(f"input {name!r} has the type {array.dtype}; give numbers or text")
    return arrays


def ranges(samples: Sequence[Feeds]) -> dict[str, dict[str, Any]]:
    """Returns what the data need of each input: ``min``, ``opt`` and ``max`` of its shape.

    Of small integer inputs, which may hold shapes, also the three as ``values``.  ``opt`` is the
    first sample's.  Inputs whose number of dimensions varies are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for sample in samples for name in sample):
        arrays = [np.asarray(sample[name]) for sample in samples if name in sample]
        if len({array.ndim for array in arrays}) != 1:
            continue
        shapes = [array.shape for array in arrays]
        found[name] = _ends(shapes)
        if (
            arrays[0].dtype.kind in "iu"
            and arrays[0].size <= _SHAPE_VALUES
            and len(set(shapes)) == 1
        ):
            told = _ends([array.reshape(-1).tolist() for array in arrays])
            found[name]["values"] = [told["min"], told["opt"], told["max"]]
    return found


def _ends(rows: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    columns = list(zip(*rows, strict=True))
    low, high = [int(min(c)) for c in columns], [int(max(c)) for c in columns]
    return {"min": low, "opt": [int(v) for v in rows[0]], "max": high}


class Build:
    """One session in the child of a host.

    Attributes:
        taps: The taps that were asked for.
        has: Which of ``save``, ``fusions``, ``kernels``, ``precisions`` and ``tactics`` the session
            offers.
        said: What the session's ``notes()`` tell of the build.
        notes: What was left out of answers, and why.
    """

    def __init__(
        self, host: Host, session: int, taps: Sequence[str], has: Sequence[str],
        said: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.taps = tuple(taps)
        self.has = frozenset(has)
        self.said = tuple(str(each) for each in said)
        self.notes: list[str] = []
        self._host = host
        self._session = session
        self._generation = host.generation

    def _ask(
        self,
        op: str,
        feeds: Feeds = NO_FEEDS,
        *,
        timeout: float | None = None,
        resident: str | None = None,
        **fields: Any,
    ) -> Reply:
        groups = {"feed": checked(feeds)}
        with self._host.lock:
            self._check()
            self._host.deliver(resident)
            request = {"op": op, "session": self._session, "resident": resident, **fields}
            reply = self._host.ask(request, groups, timeout=timeout)
        fresh = [*reply.header.get("notes", ()), *reply.header.get("said", ())]
        self.notes += [note for note in fresh if note not in self.notes]
        return reply

    def _check(self) -> None:
        if self._session < 0:
            raise WorkerError("this session was closed; build again")
        if not self._host.alive(self._generation):
            raise WorkerError(
                f"the session of {self._host.spec.spec!r} is gone: its process ended; build again"
            )

    def run(
        self,
        feeds: Feeds = NO_FEEDS,
        *,
        resident: str | None = None,
        names: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Runs once and returns the outputs by name.

        Args:
            feeds: Inputs; they stand over resident ones of the same name.
            resident: The key of feeds that ``Host.put`` keeps.
            names: Send only these back; all when not given.
            timeout: Seconds it may take.

        Raises:
            EngineFailure: The engine refused, died or was late.
            WorkerError: The session went with an earlier child.
        """
        self._host.runs += 1
        chosen = None if names is None else list(names)
        reply = self._ask("run", feeds, timeout=timeout, resident=resident, names=chosen)
        return dict(reply.arrays.get("output", {}))

    def time(self, feeds: Feeds, *, runs: int = 5, limit: float = 2.0) -> tuple[float, ...]:
        """Returns the seconds that runs take inside the child, without the way there and back.

        Args:
            feeds: Inputs.
            runs: How many runs.
            limit: Seconds after which no further run begins.

        Raises:
            EngineFailure: The engine refused, died or was late.
        """
        self._host.runs += runs
        reply = self._ask("time", feeds, runs=runs, limit=limit)
        return tuple(reply.header["seconds"])

    def sweep(
        self,
        feeds: Feeds = NO_FEEDS,
        *,
        pools: Mapping[str, tuple[int, str]],
        runs: Sequence[Mapping[str, Noise]],
        windows: Mapping[str, tuple[str, int, Sequence[int]]] = NO_WINDOWS,
        shaken: Mapping[str, tuple[str, int]] = NO_SHAKEN,
        resident: str | None = None,
        names: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Sweep:
        """Runs once on ones and once per entry of ``runs``, and returns the spread.

        Args:
            feeds: Inputs that are the same in every run.
            pools: The noise inputs: a vector of so many factors of that type.
            runs: For each run ``(mode, u, seed)`` by noise input; ones where it has none.
                ``uniform`` is 1 + u·(2r - 1), ``plus`` 1 + u, ``minus`` 1 - u, ``one`` 1.
            windows: Inputs that are fed with part of a pool: the pool, where, and the shape.
            shaken: Feeds that are multiplied by part of a pool: the pool and where.  A pool
                that either of them names is not fed itself.
            resident: The key of feeds that ``Host.put`` keeps.
            names: Only these outputs; all when not given.
            timeout: Seconds the whole may take.
        """
        self._host.runs += 1 + len(runs)
        reply = self._ask(
            "sweep",
            feeds,
            timeout=timeout,
            resident=resident,
            names=None if names is None else list(names),
            pools={name: [size, dtype] for name, (size, dtype) in pools.items()},
            runs=[{name: list(noise) for name, noise in run.items()} for run in runs],
            windows={name: [pool, at, list(shape)] for name, (pool, at, shape) in windows.items()},
            shaken={name: list(place) for name, place in shaken.items()},
        )
        groups = ("base", "spread", "changed")
        base, spread, changed = (dict(reply.arrays.get(group, {})) for group in groups)
        notes = (*reply.header["notes"], *reply.header["said"])
        return Sweep(base, spread, changed, dict(reply.header["kept"]), notes)

    def fusions(self) -> tuple[frozenset[str], ...]:
        """Returns sets of nodes that run as one kernel; empty when the engine does not say."""
        value = self._ask("ask", member="fusions").header["value"] or []
        return tuple(frozenset(str(node) for node in group) for group in value)

    def kernels(self) -> tuple[frozenset[str], ...]:
        """Returns the same where the engine has to build once more to tell."""
        value = self._ask("ask", member="kernels").header["value"] or []
        return tuple(frozenset(str(node) for node in group) for group in value)

    def precisions(self) -> dict[str, str]:
        """Returns type names by tensor or node; empty when the engine does not say."""
        value = self._ask("ask", member="precisions").header["value"] or {}
        return {str(name): str(kind) for name, kind in value.items()}

    def tactics(self) -> dict[str, str]:
        """Returns what the builder chose, by key; empty when the engine does not say."""
        value = self._ask("ask", member="tactics").header["value"] or {}
        return {str(key): str(choice) for key, choice in value.items()}

    def save(self, folder: Path) -> None:
        """Lets the session write its engine, plan, cache and log to ``folder``."""
        self._ask("save", folder=str(Path(folder).absolute()))

    def close(self) -> None:
        """Frees the session; harmless when it is gone already."""
        if self._session >= 0 and self._host.alive(self._generation):
            with contextlib.suppress(WorkerError):
                self._ask("close")
        self._session = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

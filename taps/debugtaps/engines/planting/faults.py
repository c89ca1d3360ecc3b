"""What a planted fault is: its kinds, the keys each kind takes, and when it strikes.

Pure data and decisions; ``rewrite`` puts the values into a model, ``planted`` the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

__all__ = ["EVENTS", "KINDS", "Counters", "Fault", "fault_keys", "parse"]

_FACTOR = ("scale", "error", "offset")
_FLAKY = ("rate", "seed", "sequence")
_EVENT = ("phase", "limit")

# Kind -> the keys it takes besides the common ones below.
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "value": _FACTOR,
        "element": (*_FACTOR, "index"),
        "channel": (*_FACTOR, "index", "axis"),
        "fusion": (*_FACTOR, "told"),
        "pattern": _FACTOR,
        "nonfinite": ("limit", "becomes"),
        "lost_nan": ("becomes",),
        "garbles_tap": (*_FACTOR, "tensor"),
        "wrong_shape": ("how", "axis"),
        "wrong_dtype": ("to",),
        "refuses_taps": ("tensors", "limit", "message"),
        "crash": (*_EVENT, "signal", "exit"),
        "hang": (*_EVENT, "seconds"),
        "build_error": ("limit", "message"),
        "run_error": ("limit", "message"),
        "out_of_memory": (*_EVENT, "message"),
        "flaky_build": (*_FLAKY, "of"),
        "flaky_run": (*_FLAKY, "of"),
    }
)
EVENTS = frozenset({"refuses_taps", "crash", "hang", "build_error", "run_error", "out_of_memory"})
_COMMON = ("kind", "nodes", "output", "when", "unless", "tactic")
_MAPPINGS = {
    "when": '{"above": 1.0}',
    "unless": '{"graph_optimization_level": "disable"}',
    "tactic": '{"Conv_7": "winograd"}',
    "of": '{"kind": "value", "nodes": "Conv_7"}',
}
_NODELESS = frozenset({"refuses_taps", "garbles_tap"})


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """One planted fault; two equal declarations are two faults.

    Attributes:
        kind: A key of ``KINDS``, never a flaky one: those mark the fault they wrap.
        nodes: The nodes that must all be there; the last one shows the fault.
        output: Which output of that node.
        when: Strikes only for data above a value: ``{"above": v}`` looks at the node's first
            input, ``{"input": name, "above": v}`` at that tensor.
        unless: Options of the inner engine that cure it, by name: a value or a list of values.
        tactic: What a build must have chosen, by key.
        flaky: Whether each build or each run draws anew, and with what.
        keys: The rest.
    """

    kind: str
    nodes: tuple[str, ...]
    output: int = 0
    when: Mapping[str, Any] | None = None
    unless: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tactic: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    flaky: Flaky | None = None
    keys: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_event(self) -> bool:
        """Whether it ends or refuses a build or a run, rather than changing values."""
        return self.kind in EVENTS

    @property
    def phase(self) -> str:
        """Where an event strikes."""
        fixed = {"refuses_taps": "build", "build_error": "build", "run_error": "run"}
        return fixed.get(self.kind) or str(self.keys.get("phase", "build"))

    @property
    def factor(self) -> float:
        """The factor on a wrong value."""
        wrong = "error" not in self.keys and "scale" not in self.keys and "offset" not in self.keys
        return float(self.keys.get("scale", 1.05 if wrong else 1.0)) * (
            1.0 + float(self.keys.get("error", 0.0))
        )

    @property
    def offset(self) -> float:
        """What is added to a wrong value."""
        return float(self.keys.get("offset", 0.0))

    def cured_by(self, options: Mapping[str, Any]) -> bool:
        """Returns whether an option of the inner engine cures it."""
        for name, cures in self.unless.items():
            values = cures if isinstance(cures, list | tuple) else [cures]
            if name in options and options[name] in values:
                return True
        return False

    def chosen(self, tactics: Mapping[str, str]) -> bool:
        """Returns whether a build chose what it takes for the fault to strike."""
        return all(tactics.get(key) == choice for key, choice in self.tactic.items())

    def sees(self, feeds: Mapping[str, Any]) -> bool:
        """Returns whether the feeds meet the condition of an event."""
        if self.when is None:
            return True
        name = self.when.get("input")
        looked_at = feeds.values() if name is None else [feeds[name]] if name in feeds else []
        return any(
            np.asarray(each).size and np.max(each) > self.when["above"] for each in looked_at
        )


@dataclass(frozen=True, slots=True)
class Flaky:
    """When a flaky fault strikes: by a fixed sequence, or with a rate by a seed.

    Attributes:
        per: Whether each build or each run decides.
        rate: The share that is struck.
        seed: The seed of the draw.
        sequence: Decisions in order, repeated from its start; empty to draw.
    """

    per: Literal["build", "run"]
    rate: float = 0.5
    seed: int = 0
    sequence: tuple[bool, ...] = ()

    def strikes(self, count: int) -> bool:
        """Returns the decision for the build or run of that number, from 0."""
        if self.sequence:
            return self.sequence[count % len(self.sequence)]
        return random.Random(f"{self.seed}/{count}").random() < self.rate


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(str(each) for each in value or ())


def fault_keys(kind: str) -> frozenset[str]:
    """Returns every key that a fault of that kind takes."""
    if kind not in KINDS:
        raise ValueError(f"no fault is called {kind!r}; kinds: {', '.join(KINDS)}")
    keys = {*_COMMON, *KINDS[kind]}
    if kind.startswith("flaky_"):  # the short form holds the keys of a value fault itself
        keys |= {*_FACTOR}
    return frozenset(keys)


def parse(raw: Mapping[str, Any]) -> Fault:
    """Returns the fault that a mapping declares.

    Raises:
        ValueError: The kind or a key is unknown, or what a kind needs is missing.
    """
    kind = str(raw.get("kind", "value"))
    odd = sorted(raw.keys() - fault_keys(kind))
    if odd:
        takes = ", ".join(sorted(fault_keys(kind)))
        raise ValueError(f"fault {kind!r} has no key {', '.join(odd)}; it takes {takes}")
    if kind.startswith("flaky_"):
        return _parse_flaky(kind, raw)
    nodes = _names(raw.get("nodes"))
    if not nodes and kind not in _NODELESS and kind not in EVENTS:
        raise ValueError(f"fault {kind!r} names no nodes")
    if kind == "garbles_tap" and "tensor" not in raw:
        raise ValueError("fault 'garbles_tap' names no tensor")
    if kind == "fusion" and len(nodes) < 2:
        raise ValueError("fault 'fusion' takes two nodes or more")
    _check_mappings(kind, raw)
    when = raw.get("when")
    if when is not None and "above" not in when:
        raise ValueError(f"the condition of fault {kind!r} is {dict(when)}; it needs 'above'")
    return Fault(
        kind=kind,
        nodes=nodes,
        output=int(raw.get("output", 0)),
        when=None if when is None else dict(when),
        unless=dict(raw.get("unless") or {}),
        tactic=dict(raw.get("tactic") or {}),
        keys={key: raw[key] for key in KINDS[kind] if key in raw},
    )


def _check_mappings(kind: str, raw: Mapping[str, Any]) -> None:
    """Raises ValueError when a key that holds a mapping holds something else."""
    for key, example in _MAPPINGS.items():
        value = raw.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(f"{key} of fault {kind!r} is {value!r}; it takes a mapping: {example}")


def _parse_flaky(kind: str, raw: Mapping[str, Any]) -> Fault:
    inner = raw.get("of")
    if inner is None:
        own = {key: value for key, value in raw.items() if key not in _FLAKY}
        inner = {**own, "kind": "value"}
    _check_mappings(kind, {**raw, "of": inner})
    fault = parse(inner)
    if fault.flaky is not None:
        raise ValueError(f"fault {kind!r} wraps another flaky fault")
    flaky = Flaky(
        per="build" if kind == "flaky_build" else "run",
        rate=float(raw.get("rate", 0.5)),
        seed=int(raw.get("seed", 0)),
        sequence=tuple(bool(each) for each in raw.get("sequence", ())),
    )
    if flaky.per == "run" and fault.is_event and fault.phase == "build":
        raise ValueError(f"a {fault.kind!r} during build cannot be flaky from run to run")
    return replace(fault, flaky=flaky)


class Counters:
    """Counts builds and runs; in a file when a folder is given, so that a crash keeps them."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "planted-counters.json"
        self._counts: dict[str, int] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def next(self, key: str) -> int:
        """Returns how often ``key`` was asked for before, by any process."""
        with self._alone():
            if self._file is not None and self._file.exists():
                self._counts = json.loads(self._file.read_text(encoding="utf-8"))
            count = self._counts.get(key, 0)
            self._counts[key] = count + 1
            if self._file is not None:
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps(self._counts), encoding="utf-8")
                os.replace(part, self._file)
        return count

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes from counting meanwhile."""
        if self._file is None:
            yield
            return
        with self._file.with_suffix(".lock").open("w") as lock:  # goes with the process
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def struck(faults: Sequence[Fault], per: str, counters: Counters) -> list[bool]:
    """Returns for each fault whether it takes part in this build, or in this run."""
    taken = []
    for number, fault in enumerate(faults):
        if fault.flaky is None or fault.flaky.per != per:
            taken.append(True)
        else:
            taken.append(fault.flaky.strikes(counters.next(f"{per}/{number}")))
    return taken

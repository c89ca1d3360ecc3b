"""A session with planted faults: which strike, what it says of itself, and how it is kept."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from debugtaps.engines.planting.faults import Counters, Fault, struck
from debugtaps.engines.planting.rewrite import Rewriter

__all__ = ["KEPT", "Built", "PlantedSession", "absences", "choices", "event_fires", "strike"]

KEPT = "planted.json"


@dataclass(frozen=True, slots=True)
class Built:
    """What one build decided.

    Attributes:
        active: The faults that take part, by their number.
        tactics: What was chosen, by key.
        taps: What is exposed.
    """

    active: Mapping[int, Fault]
    tactics: Mapping[str, str]
    taps: Sequence[str]

    def write(self, folder: Path, model: Path) -> None:
        """Writes it and the model to a folder."""
        onnx.save(onnx.load(str(model)), str(folder / "model.onnx"))
        kept = {
            "active": sorted(self.active), "tactics": dict(self.tactics), "taps": list(self.taps)
        }  # fmt: skip
        (folder / KEPT).write_text(json.dumps(kept), encoding="utf-8")


class PlantedSession:
    """Inner sessions, one for each set of flaky faults that may be off in a run."""

    def __init__(
        self,
        variants: Mapping[frozenset[Fault], Any],
        built: Built,
        model: Path,
        events: Sequence[Fault],
        counters: Counters,
        told: Sequence[frozenset[str]],
        absent: Sequence[str] = (),
    ) -> None:
        self._variants = dict(variants)
        self._built = built
        self._model = model
        self._active = list(built.active.values())
        self._events = events
        self._counters = counters
        self._told = list(told)
        self._absent = list(absent)

    def run(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Runs the inner session, unless an event strikes."""
        taken = struck(self._active, "run", self._counters)
        off = frozenset(f for f, takes in zip(self._active, taken, strict=True) if not takes)
        for fault in self._events:
            if fault not in off and fault.sees(feeds):
                strike(fault, ())
        outputs: Mapping[str, Any] = self._variants[off].run(feeds)
        return outputs

    def fusions(self) -> list[frozenset[str]]:
        """Returns what the inner session says, and the faults that are told."""
        first = next(iter(self._variants.values()))
        return [*getattr(first, "fusions", list)(), *self._told]

    def precisions(self) -> Mapping[str, str]:
        """Returns what the inner session says."""
        first = next(iter(self._variants.values()))
        said: Mapping[str, str] = getattr(first, "precisions", dict)()
        return said

    def tactics(self) -> dict[str, str]:
        """Returns what this build chose, by key."""
        return dict(self._built.tactics)

    def notes(self) -> list[str]:
        """Returns what the inner session says, and which faults this model has no place for."""
        first = next(iter(self._variants.values()))
        return [*getattr(first, "notes", list)(), *self._absent]

    def save(self, folder: Path) -> None:
        """Writes the model and what this build decided; ``Planted.load`` decides no more.

        The model is still where it was when it was built.
        """
        self._built.write(Path(folder), self._model)

    def close(self) -> None:
        """Frees the inner sessions."""
        for session in self._variants.values():
            session.close()
        self._variants.clear()


def absences(faults: Sequence[Fault], present: Rewriter) -> list[str]:
    """Returns, for every fault that cannot strike a model, which of its nodes the model lacks."""
    said = []
    for fault in faults:
        missing = present.missing(fault)
        if missing:
            listed = ", ".join(map(repr, missing))
            said.append(
                f"the planted fault {fault.kind!r} is absent: the model has no node {listed}"
            )
    return said


def choices(active: Sequence[Fault]) -> list[frozenset[Fault]]:
    """Returns every set of faults that a run may leave out."""
    flaky = [fault for fault in active if fault.flaky is not None and fault.flaky.per == "run"]
    sizes = range(len(flaky) + 1)
    return [frozenset(s) for size in sizes for s in itertools.combinations(flaky, size)]


def event_fires(fault: Fault, present: Rewriter, taps: Sequence[str]) -> bool:
    """Returns whether an event strikes a model with those taps."""
    if not fault.is_event or present.missing(fault):
        return False
    if "tensors" in fault.keys:
        return bool(set(fault.keys["tensors"]) & set(taps))
    least = -1 if fault.kind != "refuses_taps" else 0
    return len(taps) > int(fault.keys.get("limit", least))


def strike(fault: Fault, taps: Sequence[str]) -> None:
    """Ends, hangs or raises, as the fault says."""
    node = fault.nodes[-1] if fault.nodes else "?"
    if fault.kind == "crash":
        if "exit" in fault.keys:
            os._exit(int(fault.keys["exit"]))
        os.kill(os.getpid(), signal.Signals[str(fault.keys.get("signal", "SIGSEGV"))])
    if fault.kind in ("crash", "hang"):
        time.sleep(float(fault.keys.get("seconds", 86_400.0)))
        return
    if fault.kind == "out_of_memory":
        raise MemoryError(str(fault.keys.get("message", "planted: out of memory")))
    refused = f"cannot expose {len(taps)} tensors: {', '.join(list(taps)[:3])}"
    default = refused if fault.kind == "refuses_taps" else f"planted failure at node {node}"
    raise RuntimeError(str(fault.keys.get("message", default)).replace("{node}", node))

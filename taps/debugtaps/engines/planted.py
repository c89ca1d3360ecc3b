"""An engine with declared faults, on top of any other: the quarry of every test here.

The faults behave as real ones do: they sit at a node, they travel with it into extracted
sub-models, some vanish when looked at, some strike only now and then, some end the process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

# The worker loads this file by its path; the package may not be on the path of that process.
if importlib.util.find_spec("debugtaps") is None:
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from debugtaps.engines import registry, worker
from debugtaps.engines.planting.faults import Counters, Fault, fault_keys, parse, struck
from debugtaps.engines.planting.rewrite import Rewriter, node_key
from debugtaps.engines.planting.session import (
    KEPT,
    Built,
    PlantedSession,
    absences,
    choices,
    event_fires,
    strike,
)
from debugtaps.engines.planting.tactics import Chooser

__all__ = ["Planted"]


class Planted:
    """An engine that is wrong where it is told to be.

    ==============  =================================  ==========================================
    kind            keys                               what happens
    ==============  =================================  ==========================================
    value           scale, error, offset               the output is x·scale·(1+error) + offset
    element         the same, index                    one element is: flat index, or "largest"
    channel         the same, axis, index              one index of an axis is
    fusion          the same, told                     value at the last node, unless a tensor
                                                       between is exposed; told: ``fusions()``
                                                       names it
    pattern         the same                           value at the last node while all are there
    nonfinite       limit, becomes ("inf", "nan")      elements beyond ±limit become non-finite
    lost_nan        becomes (0)                        NaN becomes a number
    garbles_tap     tensor, scale, error, offset       a tap of it is wrong, the computation right
    wrong_shape     how (unsqueeze, row), axis         a dimension, or a row, too many
    wrong_dtype     to ("float16")                     the exposed copy has another type
    refuses_taps    tensors, limit, message            build raises on those taps, on more than
                                                       so many, on any
    crash           phase, limit, signal, exit         the process ends by a signal or exit code
    hang            phase, limit, seconds              no answer
    build_error     limit, message ({node})            build raises
    run_error       limit, message                     run raises
    out_of_memory   phase, limit, message              raises MemoryError
    flaky_build     of, rate, seed, sequence           fault ``of`` strikes in some builds only
    flaky_run       of, rate, seed, sequence           the same, by run
    ==============  =================================  ==========================================

    Every kind takes ``nodes`` (names, or the first output of a nameless node; a list or
    ``A,B``; *all* must be in the model, else the fault does not fire, as in a sub-model without
    them, and the session's notes say so), ``output`` (which output of the last node), ``when``
    (``{"above": v}``: only when the node's first input has a value above; ``{"input": name,
    "above": v}``: that tensor) and ``unless`` (options of the inner engine that cure it:
    ``{"graph_optimization_level": ["basic", "disable"]}``), ``tactic`` (``{"Conv_7":
    "winograd"}``: only in builds that chose so, see ``variants``).  A value fault without numbers
    has ``scale`` 1.05.  The ``limit`` of an event: only with more than so many taps.  A flaky
    fault without ``of`` is a value fault with its own keys.  ``phase`` is "build" (the default)
    or "run".

    Args:
        inner: The engine underneath, a specification.
        inner_options: Options for it.
        faults: The faults, one mapping each.
        state: A folder for the counters of flaky faults, so that they outlive a crash.
        strict: Raise when a model lacks a node that a fault names.
        variants: Names among which each build draws anew, by node; a fault with ``tactic`` strikes
            only in builds that drew it.
        seed: The seed of that draw; of a fault in the short form, too.
        tactics: Choices that are forced, by node.
        **options: ``kind=..., nodes=...`` declare one fault in the short form; what its kind
            does not take goes to the inner engine.
    """

    def __init__(
        self,
        inner: str = "ort",
        inner_options: Mapping[str, Any] | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
        state: str | None = None,
        strict: bool = False,  # noqa: FBT001, FBT002 - options come by keyword
        variants: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        tactics: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        declared = [dict(each) for each in faults]
        if "kind" in options:
            taken = fault_keys(str(options["kind"]))
            short = {key: options.pop(key) for key in list(options) if key in taken}
            declared.append({**short, **({"seed": seed} if "seed" in taken else {})})
        elif "nodes" in options:
            raise ValueError("nodes without kind: say which fault they have")
        self._options = {**(inner_options or {}), **options}
        self._raw = declared
        self._strict = strict
        self._counters = Counters(None if state is None else Path(state))
        self._chooser = Chooser(variants or {}, tactics or {}, seed, self._counters)
        faulty = [parse(each) for each in declared]
        self._faults = [fault for fault in faulty if not fault.cured_by(self._options)]
        spec = registry.resolve(inner, self._options)
        self._name = inner
        self._inner = worker.find_class(*spec.target)(**spec.options)

    @property
    def promotes_taps(self) -> bool:
        """As the inner engine has it."""
        return bool(getattr(self._inner, "promotes_taps", False))

    @property
    def builds_only(self) -> bool:
        """As the inner engine has it."""
        return bool(getattr(self._inner, "builds_only", False))

    @property
    def unit_roundoff(self) -> float | None:
        """As the inner engine has it."""
        u: float | None = getattr(self._inner, "unit_roundoff", None)
        return u

    def describe(self) -> dict[str, Any]:
        """Returns the faults and what the inner engine says of itself."""
        inner: Mapping[str, Any] = getattr(self._inner, "describe", dict)()
        return {**inner, "name": f"planted on {self._name}", "faults": self._raw}

    def knobs(self) -> Mapping[str, Any]:
        """Returns the settings of the inner engine."""
        knobs: Mapping[str, Any] = getattr(self._inner, "knobs", dict)()
        return knobs

    def build(self, model: Path, taps: Sequence[str] = ()) -> PlantedSession:
        """Builds the inner engine on a model with the faults in it."""
        path = Path(model)
        shell = onnx.load(str(path), load_external_data=False)
        self._refuse_missing(Rewriter(shell, taps))
        taken = struck(self._faults, "build", self._counters)
        tactics = self._chooser.choose(node_key(node) for node in shell.graph.node)
        active = {
            number: fault
            for number, (fault, takes) in enumerate(zip(self._faults, taken, strict=True))
            if takes and fault.chosen(tactics)
        }
        return self._session(path, shell, Built(active, tactics, taps))

    def load(self, folder: Path) -> PlantedSession:
        """Returns the session that ``save`` wrote: nothing is drawn again."""
        kept = json.loads((Path(folder) / KEPT).read_text(encoding="utf-8"))
        path = Path(folder) / "model.onnx"
        shell = onnx.load(str(path), load_external_data=False)
        active = {number: self._faults[number] for number in kept["active"]}
        return self._session(path, shell, Built(active, kept["tactics"], kept["taps"]))

    def _session(self, path: Path, shell: onnx.ModelProto, built: Built) -> PlantedSession:
        taps, active = built.taps, list(built.active.values())
        present = Rewriter(shell, taps)
        for fault in active:
            if fault.phase == "build" and event_fires(fault, present, taps):
                strike(fault, taps)
        variants = {
            off: self._variant(path, shell, taps, [f for f in active if f not in off])
            for off in choices(active)
        }
        runs = [f for f in active if f.phase == "run" and event_fires(f, present, taps)]
        told = [frozenset(f.nodes) for f in active if f.keys.get("told") and present.fires(f)]
        absent = absences(self._faults, present)
        return PlantedSession(variants, built, path, runs, self._counters, told, absent)

    def _refuse_missing(self, present: Rewriter) -> None:
        missing = {name for fault in self._faults for name in present.missing(fault)}
        if self._strict and missing:
            known = sorted({node_key(node) for node in present.model.graph.node})
            listed = ", ".join(known[:20])
            raise ValueError(f"no node {', '.join(sorted(missing))}; the model has {listed}")

    def _variant(
        self, path: Path, shell: onnx.ModelProto, taps: Sequence[str], faults: Sequence[Fault]
    ) -> Any:
        model = onnx.ModelProto()
        model.CopyFrom(shell)
        rewriter = Rewriter(model, taps)
        firing = [fault for fault in faults if not fault.is_event and rewriter.fires(fault)]
        if not firing:
            return self._inner.build(path, taps)
        for fault in firing:
            rewriter.apply(fault)
        with _beside(path, model) as changed:
            return self._inner.build(changed, taps)


@contextlib.contextmanager
def _beside(path: Path, model: onnx.ModelProto) -> Iterator[Path]:
    """Writes a model beside another one, where its weights are, for as long as it is needed."""
    handle, name = tempfile.mkstemp(prefix=".planted-", suffix=".onnx", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
        yield Path(name)
    finally:
        os.unlink(name)

"""``prepare`` for a torch model: eager run, export, taps promoted, each checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import ModelError, TapError
from debugtaps.export import Exported, export_torch
from debugtaps.graph import Graph, load_graph
from debugtaps.guard import mismatch
from debugtaps.plugins import boundaries, reference_functions
from debugtaps.preparation import TIMINGS, Made, Request
from debugtaps.promotion import Tapped, promote_taps
from debugtaps.recompute import Functions, constant_value, recompute, stands_alone
from debugtaps.recording import Recorder
from debugtaps.selection import Chosen, choose
from debugtaps.sources import write_sources
from debugtaps.torch_arrays import to_numpy
from debugtaps.torch_capture import TorchValues, feeds_of, obtain
from debugtaps.torch_file import TorchFile, load_torch_file
from debugtaps.torch_run import EagerRun, run_eager

__all__ = ["prepare_torch"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Case:
    """A model on its way: file, eager run, export, graph, and who computes."""

    file: TorchFile
    eager: EagerRun
    exported: Exported
    graph: Graph
    host: Host
    functions: Functions

    @property
    def given(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        return self.file.args, self.file.kwargs


def prepare_torch(request: Request, staged: Path) -> Made:
    """Writes the ONNX model and its sources to ``staged`` and returns the rest."""
    file = load_torch_file(request.model)
    eager = run_eager(file, taps=bool(request.debug_taps))
    recorder = Recorder(keep=False) if request.debug_taps else None
    exported = export_torch(file, staged, recorder=recorder)
    chosen = (
        choose(request.debug_taps, eager.recorder, exported.taps, file.path)
        if request.debug_taps
        else []
    )
    graph = load_graph(staged, staged.parent / "work")
    functions = reference_functions(request.plugin_references, exported.operators)
    with Host(resolve("ort-reference")) as host:
        case = _Case(file, eager, exported, graph, host, functions)
        outputs = _outputs(case)
        tapped = [_manual(case, each) for each in chosen]
        if request.plugin_taps:
            tapped += _plugins(case, request)
        manifest, values = promote_taps(staged, graph, tapped, exported.sources)
        notes = [*file.notes, *exported.notes, *_random(case), *_guard(case, tapped, outputs)]
    write_sources(staged, exported.sources)
    reference = {**outputs, **values, TIMINGS: eager.timings_ms}
    feeds = feeds_of(exported.program, case.given, list(graph.inputs))
    return Made(feeds, reference, manifest, tuple(notes))


def _outputs(case: _Case) -> dict[str, Array]:
    names, values = list(case.graph.outputs), case.eager.outputs
    if len(names) != len(values):
        raise ModelError(
            f"{case.file.path}: forward returns {len(values)} tensors, the exported model has "
            f"{len(names)} outputs; return each tensor once"
        )
    if TIMINGS in names:
        raise ModelError(f"{case.file.path}: an output is named {TIMINGS!r}; rename it")
    return dict(zip(names, values, strict=True))


def _manual(case: _Case, chosen: Chosen) -> Tapped:
    try:
        value = to_numpy(case.eager.recorder.values[chosen.name])
    except TapError as error:
        raise TapError(
            f"--debug-taps {chosen.name}: {chosen.place}: {error}; cast it before tap()"
        ) from None
    return Tapped(chosen.name, chosen.tensor, "manual", value, "torch", chosen.place)


def _plugins(case: _Case, request: Request) -> list[Tapped]:
    found = boundaries(case.graph, request.plugin_ops)
    if not found:
        return []
    known = obtain(
        case.exported.program, case.given, case.graph, case.host,
        wanted={b.tensor for b in found}, functions=case.functions,
    )  # fmt: skip
    return [_boundary(case, known, b.name, b.tensor) for b in found]


def _boundary(case: _Case, known: TorchValues, name: str, tensor: str) -> Tapped:
    if tensor in known.values:
        obtained = known.origins.get(tensor, "torch")
        origin = "torch" if obtained == "moved" else obtained
        return Tapped(name, tensor, "plugin", known.values[tensor], origin)
    if tensor in case.graph.constants:
        return Tapped(name, tensor, "plugin", constant_value(case.graph, tensor), "torch")
    reason = known.missing.get(tensor, "no value was found")
    return Tapped(name, tensor, "plugin", None, "none", reason=reason)


def _random(case: _Case) -> list[str]:
    names = [list(case.graph.outputs)[i] for i in case.eager.random]
    names += [f"tap {n}" for n in case.eager.random_taps]
    if not names:
        return []
    return [
        "forward is random: two runs of torch on the same inputs differ at "
        f"{', '.join(names[:8])}; the reference holds one of them, and no engine will give it"
    ]


def _guard(case: _Case, tapped: Sequence[Tapped], outputs: Mapping[str, Array]) -> list[str]:
    """Runs the exported model once and compares; returns what should be known.

    Raises:
        TapError: A manual tap does not hold the tapped value.
    """
    manual = {t.name: t for t in tapped if t.kind == "manual"}
    wanted = [*(t.tensor for t in manual.values()), *outputs]
    feeds = feeds_of(case.exported.program, case.given, list(case.graph.inputs))
    alone = {t for n in case.graph.nodes if stands_alone(n, case.graph) for t in n.writes}
    known = dict(feeds)
    if alone:  # what a plugin computes is not ours to check
        caught = obtain(case.exported.program, case.given, case.graph, case.host, wanted=alone,
                        functions=case.functions)  # fmt: skip
        known.update({t: v for t, v in caught.values.items() if t in alone})
    ran = recompute(case.graph, known, wanted, case.host, functions=case.functions)
    have = {**known, **ran.values}
    notes = []
    for name, tap in manual.items():
        if tap.tensor not in have or tap.value is None or name in case.eager.random_taps:
            if tap.tensor in ran.missing:
                notes.append(f"tap {name} was not checked against ONNX Runtime: "
                             f"{ran.missing[tap.tensor]}")  # fmt: skip
            continue
        how = mismatch(tap.value, have[tap.tensor])
        if how:
            raise TapError(_lost(name, tap, how))
    wrong = [] if case.eager.random else [
        (n, how) for n, v in outputs.items() if n in have and (how := mismatch(v, have[n]))
    ]  # fmt: skip
    notes += [
        f"the exported model does not compute what torch computes: output {n}: {how}; "
        f"tapsect bisect {case.file.path.name} finds the operator"
        for n, how in wrong
    ]
    return notes


def _lost(name: str, tap: Tapped, how: str) -> str:
    return (
        f"--debug-taps {name}: {tap.source}: the exported tensor {tap.tensor!r} does not hold the "
        f"tapped value ({how}): a rewrite gave its name to another value, or an operator before "
        "it is exported wrongly; tap a value nearer to the inputs to see which"
    )

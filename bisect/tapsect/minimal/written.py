"""What stands on the disk at the end: the reduced model, the case, the result."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tapsect
from debugtaps import Array, OutputError, write_atomic, write_json_atomic
from tapsect.case import Case, Limit, write_case
from tapsect.case_command import CommandCase, write_command_case
from tapsect.environment import environment
from tapsect.finding import Cost, Divergence, Finding, Minimal, Step
from tapsect.folder import CASE, RESULT
from tapsect.localize.examine import Examined
from tapsect.minimal.builtin import Builtin
from tapsect.minimal.ground import Ground
from tapsect.minimal.plan import Plan
from tapsect.onefile import copy_model
from tapsect.simplify import Specimen
from tapsect.verdict import Signature

__all__ = ["End", "model_of", "write_end", "write_model"]


@dataclass(frozen=True, slots=True)
class End:
    """What a reduction ended in.

    Attributes:
        specimen: The reduced model.
        signature: The fault it shows.
        names: Its nodes, by the names of the model that was given.
        ops: Their types.
        message: One sentence.
        one_minimal: Whether each neighbour was seen not to fail.
        reproduced, of: Fresh runs of the end that failed, of how many.
        calls: How often the check was asked.
        seconds: How long it took.
        trail: What each step did.
        notes: What else should be known.
        good: The nearest passing model, and the difference in words.
    """

    specimen: Specimen
    signature: Signature | None
    names: tuple[str, ...]
    ops: tuple[str, ...]
    message: str
    one_minimal: bool
    reproduced: int
    of: int
    calls: int
    seconds: float
    trail: tuple[Step, ...]
    notes: tuple[str, ...]
    good: tuple[Specimen, str] | None


def write_model(path: Path, model: bytes | Path) -> None:
    """Writes a model; it appears whole or not at all.

    Args:
        path: Where.
        model: As ``model_of`` gives it; weights that do not fit stand beside as ``<name>.data``.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(model, bytes):
            write_atomic(path, lambda file: file.writelines([model]))
            return
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as draft:
            copy_model(Path(draft, path.name), model)
            for file in sorted(Path(draft).iterdir(), reverse=True):  # the weights first
                os.replace(file, path.with_name(file.name))
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}).") from None


def model_of(specimen: Specimen) -> bytes | Path:
    """Returns a model's bytes, or a file of it where its weights do not fit inside."""
    if specimen.outside is None:
        return specimen.model
    path = specimen.outside / "end.onnx"
    path.write_bytes(specimen.model)
    return path


def write_end(plan: Plan, ground: Ground, folder: Path, end: End, judge: Any) -> Finding:
    """Returns the finding of a reduction, after writing model, case and result."""
    machine = environment()
    write_model(plan.output, model_of(end.specimen))
    if end.good is not None and plan.min_good is not None:
        write_model(plan.min_good, end.good[0].model)
    if isinstance(judge, Builtin):
        expected = _builtin_case(plan, folder, end, judge, machine)
    else:
        expected = _command_case(plan, ground, folder, end, machine)
    finding = _finding(plan, ground, end, judge, machine, expected=expected)
    write_json_atomic(folder / RESULT, finding.to_json())
    return finding


def _extra(end: End) -> dict[str, bytes]:
    return {} if end.good is None else {"min_good.onnx": end.good[0].model}


def _facts(plan: Plan, end: End) -> dict[str, str]:
    facts = {"reduced from": str(plan.options.model), "nodes": ", ".join(end.names)}
    if end.good is not None:
        facts["min_good.onnx passes"] = end.good[1]
    return facts


def _builtin_case(
    plan: Plan, folder: Path, end: End, judge: Builtin, machine: Mapping[str, Any]
) -> bool:
    examined = judge.examined(end.specimen, fresh=77)
    failure = examined.failure
    case = Case(
        model=model_of(end.specimen), inputs=end.specimen.feeds, expected=examined.expected,
        engine=judge.subject.specs[0], kind=judge.kind, limits=_limits(examined, judge.bar),
        error=_stable(end.signature) if failure is not None else "", message=end.message,
        facts=_facts(plan, end), environment=machine,
        timeout=max(60.0, 2 * judge.subject.prober.timeout),
        tries=1 if end.reproduced == end.of else 6, extra=_extra(end),
    )  # fmt: skip
    write_case(folder / CASE, case)
    return bool(examined.expected)


def _limits(examined: Examined, bar: float | None) -> dict[str, Limit]:
    limits: dict[str, Limit] = {}
    for end in examined.ends:
        if end.error is None or end.floor is None:
            continue
        edge = max(bar or 0.0, 2.0) * end.floor
        if end.error > edge:
            limits[end.name] = Limit(rms=max(edge, end.error / 4))
        elif end.max_abs:
            limits[end.name] = Limit(max_abs=end.max_abs / 4)
    return limits


def _stable(signature: Signature | None) -> str:
    """Returns the longest part of a message that holds nothing that varies."""
    pieces = (signature.detail if signature else "").split("_")
    longest = max((piece.strip() for piece in pieces), key=len, default="")
    return longest[:80] if len(longest) >= 8 else ""


def _command_case(
    plan: Plan, ground: Ground, folder: Path, end: End, machine: Mapping[str, Any]
) -> bool:
    line = plan.line
    settings: dict[str, Any] = {"command": None}
    if line is not None:
        settings = {
            "command": list(line.words), "artifact": line.artifact.name,
            "regexes": list(line.rule.regexes), "codes": list(line.rule.codes),
            "ignored": list(line.rule.ignored), "timeout": line.timeout,
            "kind": end.signature.kind if end.signature else "",
        }  # fmt: skip
    expected = _expected(ground, end.specimen)
    case = CommandCase(
        model=model_of(end.specimen), inputs=end.specimen.feeds, expected=expected,
        settings=settings, message=end.message, facts=_facts(plan, end), environment=machine,
        extra=_extra(end),
    )  # fmt: skip
    write_command_case(folder / CASE, case)
    return bool(expected)


def _expected(ground: Ground, specimen: Specimen) -> dict[str, Array]:
    """Returns the reference's answer, or nothing where it has none."""
    path = (specimen.outside or ground.work) / "expected.onnx"
    try:
        path.write_bytes(specimen.model)
        with ground.reference.host.build(path) as build:
            return build.run(specimen.feeds)
    except Exception:  # what the reference cannot run is no error of a reduction by command
        return {}


def _finding(
    plan: Plan, ground: Ground, end: End, judge: Any, machine: Mapping[str, Any], *, expected: bool
) -> Finding:
    options, builtin = plan.options, isinstance(judge, Builtin)
    signature = end.signature
    asked: Sequence[str] = plan.line.words if plan.line is not None else ("a person",)
    engine = {"spec": options.engine, "options": dict(options.engine_options)}
    kind = judge.kind if builtin else _known_kind(signature)
    return Finding(
        message=end.message, status="diverges", tool_version=tapsect.__version__,
        command=tuple(options.command), failure=kind,
        model={
            "path": str(options.model), "sha256": ground.graph.sha256,
            "nodes": len(ground.graph.nodes),
        },
        engine=engine if builtin else {"spec": "check", "options": {"command": list(asked)}},
        first_divergence=_place(end),
        culprit_nodes=end.names,
        signature={
            "kind": signature.kind if signature else "", "ops": list(end.ops),
            "detail": signature.detail if signature else "",
            "operator": signature.op if signature else "",
            "magnitude": signature.magnitude if signature else None,
            "engine": options.engine if builtin else "check",
        },
        minimal=Minimal(
            "case/model.onnx", "case/inputs.npz", "case/expected.npz" if expected else "",
            end.names, "reference", end.reproduced, end.of, end.one_minimal,
        ),
        cost=Cost(0, judge.runs if builtin else 0, round(end.seconds, 3), end.calls),
        trail=end.trail, notes=end.notes, environment=machine,
    )  # fmt: skip


def _place(end: End) -> Divergence | None:
    """Returns the last node that is left, and what it shows."""
    graph = end.specimen.proto.graph
    last = next((n for n in reversed(graph.node) if n.op_type != "Constant"), None)
    if last is None or not end.names:
        return None
    return Divergence(
        graph.output[0].name, end.names[-1], last.op_type, evidence="isolated", nodes=end.names,
        note="it fails alone; none of its nodes can go" if end.one_minimal else "it fails alone",
    )  # fmt: skip


def _known_kind(signature: Signature | None) -> str | None:
    kind = signature.kind if signature else None
    return kind if kind in ("crash", "timeout") else None

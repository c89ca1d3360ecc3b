"""What a report says, in the order it says it; how it looks is the renderer's matter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tapsect.finding import Divergence, Finding, OutputReport
from tapsect.folder import CASE
from tapsect.report.cures import advice
from tapsect.report.further import inputs, often
from tapsect.report.words import (
    BREAKS,
    BREAKS_MEANING,
    CAUSES,
    CHECKED,
    EVIDENCE,
    EXPORT_EVIDENCE,
    FAILURES,
    HIDDEN,
    UNKNOWN,
    Words,
    number,
)

__all__ = ["Section", "Style", "cause_of", "sections"]

_NOISE = re.compile(
    r"File \"|Traceback|Extension modules|Current thread|Thread 0x|\^+$|<no Python frame>"
)


@dataclass(frozen=True, slots=True)
class Style:
    """How a renderer shows what is not its own text.

    Attributes:
        name: A name of a node or tensor, or a command.
        text: A sentence that holds such names.
    """

    name: Callable[[str], str]
    text: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Section:
    """One label and its paragraphs."""

    title: str
    lines: tuple[str, ...]


def cause_of(finding: Finding) -> Words | None:
    """Returns the words for the finding's cause; none when it agrees without one."""
    if finding.cause is None:
        unsaid = CHECKED if finding.engine.get("spec") == "check" else UNKNOWN
        return None if finding.status == "agrees" else unsaid
    return CAUSES.get(finding.cause, UNKNOWN)


def sections(finding: Finding, style: Style, folder: Path | None = None) -> list[Section]:
    """Returns what a report says, without empty sections.

    Args:
        finding: The result.
        style: How names and messages are shown.
        folder: Where the result lies, for the commands that are proposed.
    """
    parts = [
        ("Where", _where(finding, style)),
        ("How often", often(finding, style.text)),
        ("Inputs", inputs(finding, style.text)),
        ("How sure", _sure(finding, style)),
        ("Cause", _cause(finding)),
        ("Outputs", _outputs(finding, style)),
        ("It says", _said(finding, style)),
        ("Also", [_place(d, style) for d in finding.also]),
        ("Most part", _contributors(finding, style)),
        ("Harmless", _harmless(finding, style)),
        ("Coverage", _coverage(finding, style)),
        ("Precision", _precision(finding, style)),
        ("Notes", [style.text(note) for note in finding.notes]),
        ("Cost", [_cost(finding)]),
        ("Next", _next(finding, style, folder)),
    ]
    return [Section(title, tuple(lines)) for title, lines in parts if lines]


def _where(finding: Finding, style: Style) -> list[str]:
    place = finding.first_divergence
    if place is None:
        if finding.status == "agrees" or (finding.repeats is not None and not finding.outputs):
            return []  # nothing was looked for
        return ["No place was found."]
    lines = [_place(place, style)]
    others = [n for n in finding.culprit_nodes if n != place.node]
    if others:
        shown = ", ".join(style.name(n) for n in others[:8])
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        lines.append(f"together with {shown}{more}, which run as one region")
    if place.kernel:
        lines.append(f"kernel {style.name(place.kernel)}")
    if place.source:
        lines.append(f"source {style.name(place.source)}")
    return lines


def _place(place: Divergence, style: Style) -> str:
    words = f"node {style.name(place.node)}"
    if place.op_type:
        words += f" ({style.text(place.op_type)})"
    if place.tensor:
        words += f", tensor {style.name(place.tensor)}"
    if place.introduced is not None:
        words += f"; error it introduces {number(place.introduced)}"
        if place.propagated is not None:
            words += f", error it inherits {number(place.propagated)}"
        words += " (rms, relative)"
    if place.note:
        words += f"; {style.text(place.note)}"
    return words


def _sure(finding: Finding, style: Style) -> list[str]:
    lines: list[str] = []
    place = finding.first_divergence
    if place is not None:
        if place.rounding_ratio is not None:
            lines.append(f"{number(place.rounding_ratio)} times what rounding explains")
        seen = EVIDENCE.get(place.evidence, style.text(place.evidence))
        lines.append(EXPORT_EVIDENCE if finding.cause == "export_mismatch" else seen)
    if finding.minimal is not None:
        minimal = finding.minimal
        plural = "s" if len(minimal.nodes) != 1 else ""
        one = ", none of which can go" if minimal.one_minimal and len(minimal.nodes) > 1 else ""
        lines.append(
            f"reproduced {minimal.reproduced} of {minimal.of} times alone, as a model of"
            f" {len(minimal.nodes)} node{plural}{one}"
        )
    return lines


def _cause(finding: Finding) -> list[str]:
    words = cause_of(finding)
    if words is None:
        return []
    valueless = finding.cause == "engine_defect" and finding.failure in BREAKS
    return [f"{words.title}: {BREAKS_MEANING if valueless else words.meaning}"]


def _outputs(finding: Finding, style: Style) -> list[str]:
    ordered = sorted(finding.outputs, key=lambda o: not o.failing)
    samples = len({o.sample for o in finding.outputs})
    lines = [_output(o, style, samples) for o in ordered[:6]]
    if len(ordered) > 6:
        failing = sum(o.failing for o in ordered[6:])
        lines.append(f"and {len(ordered) - 6} more, {failing} of them failing")
    if finding.failure is not None:
        lines.insert(0, FAILURES.get(finding.failure, style.text(finding.failure)))
    return lines


def _output(output: OutputReport, style: Style, samples: int) -> str:
    words = style.name(output.name)
    if samples > 1:
        words += f", sample {output.sample}"
    words += ": fails" if output.failing else ": agrees"
    if output.rel_rms is not None:
        words += f"; error {number(output.rel_rms)}"
        if output.floor is not None:
            words += f", rounding explains {number(output.floor)}"
    if output.max_abs is not None:
        words += f", largest {number(output.max_abs)}"
    if output.nonfinite_engine or output.nonfinite_reference:
        words += f"; non-finite: engine {output.nonfinite_engine},"
        words += f" reference {output.nonfinite_reference}"
    if output.reason:
        words += f"; {style.text(output.reason)}"
    return words


def _said(finding: Finding, style: Style) -> list[str]:
    """Returns the engine's own words; of a process that died, the last it printed as well."""
    lines = [line.strip() for line in finding.said.splitlines() if line.strip()]
    printed = lines[1:] if finding.failure in ("crash", "timeout", "out_of_memory") else []
    shown = [*lines[:1], *[line for line in printed if not _NOISE.match(line)][-2:]]
    return [style.text(line[:300]) for line in shown]


def _contributors(finding: Finding, style: Style) -> list[str]:
    return [_place(d, style) for d in finding.contributors[:5]]


def _harmless(finding: Finding, style: Style) -> list[str]:
    if not finding.harmless:
        return []
    shown = ", ".join(style.name(d.node) for d in finding.harmless[:3])
    more = ", …" if len(finding.harmless) > 3 else ""
    plural = "places differ" if len(finding.harmless) > 1 else "place differs"
    return [f"{len(finding.harmless)} {plural} beyond rounding but move no output: {shown}{more}"]


def _coverage(finding: Finding, style: Style) -> list[str]:
    seen = finding.coverage
    if not seen.tensors:
        return []
    if seen.not_judged == seen.tensors:
        why = "the engine gives no values"
        if finding.status == "agrees":
            why = "no output fails"
        elif finding.cause == "export_mismatch":
            why = "the file itself differs from what it was made from"
        return [f"none of {seen.tensors} inner tensors of the engine was looked at: {why}"]
    parts = [f"{seen.verified} of {seen.tensors} inner tensors verified"]
    rest = {
        "fused away": seen.fused_away,
        "cannot be tapped": seen.untappable,
        "unreliable": seen.unreliable,
        "not judged": seen.not_judged,
    }
    parts += [f"{count} {word}" for word, count in rest.items() if count]
    return [", ".join(parts), *_unseen(finding, style)]


def _unseen(finding: Finding, style: Style) -> list[str]:
    """Returns which tensors were not seen, those inside the kernel at fault first."""
    place = finding.first_divergence
    kernel = place.kernel if place is not None else None
    ordered = sorted(finding.unseen, key=lambda u: u.kernel != kernel or not kernel)
    lines = []
    for group in ordered[:3]:
        shown = ", ".join(style.name(t) for t in group.tensors[:3])
        more = f" and {len(group.tensors) - 3} more" if len(group.tensors) > 3 else ""
        held = f" in kernel {style.name(group.kernel)}" if group.kernel else ""
        why = HIDDEN.get(group.why, style.text(group.why))
        lines.append(f"{why}{held}: {shown}{more}")
    if len(ordered) > 3:
        lines.append(f"and {len(ordered) - 3} more groups, in result.json")
    return lines


def _precision(finding: Finding, style: Style) -> list[str]:
    stated, effective = (finding.precision.get(key) for key in ("stated", "effective"))
    if not stated and not effective:
        return []
    words = f"stated {style.text(str(stated or 'unknown'))}"
    classes = finding.precision.get("classes")
    nodes = finding.precision.get("nodes") or {}
    if isinstance(classes, Mapping) and len({*classes.values(), *nodes.values()}) > 1:
        told = ", ".join(f"{kind} in {u}" for kind, u in [*classes.items(), *nodes.items()])
        return [f"{words}, computed: {style.text(told)}"]
    return [words + (f", computed in {style.text(str(effective))}" if effective else "")]


def _cost(finding: Finding) -> str:
    cost = finding.cost
    words = f"{_count(cost.builds, 'build')}, {_count(cost.runs, 'run')}, {cost.seconds:.1f} s"
    if cost.reduce_builds:
        words += f"; {_count(cost.reduce_builds, 'build')} more to reduce"
    if cost.fix_builds:
        words += f"; {_count(cost.fix_builds, 'build')} to find a cure"
    return words


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _next(finding: Finding, style: Style, folder: Path | None) -> list[str]:
    lines = [advice(fix, style) for fix in finding.fixes[:3]]
    if finding.minimal is not None:
        script = (folder or Path()) / CASE / "check.py"
        command = style.name(f"python {script}")
        lines.append(f"{command} exits with 1 while the bug is there.")
    words = cause_of(finding)
    if words is not None:
        lines.append(words.advice)
    return lines

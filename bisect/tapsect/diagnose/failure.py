"""Failures without values: crashes, hangs, builds and runs that raise."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from debugtaps import EngineFailure
from tapsect.diagnose.blame import Blame, Tell, reduce_part
from tapsect.diagnose.noisily import blame_noisily
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.unsteady import looks_for
from tapsect.localize.examine import Examiner
from tapsect.localize.predicate import locate_failure, named_nodes
from tapsect.localize.recorded import Recorded

__all__ = ["blame_error", "said_by", "stable_text"]

_UNSUPPORTED = re.compile(
    r"not.?implemented|not supported|unsupported|could not find an implementation|"
    r"not a registered function|no importer|no op registered|no kernel",
    re.IGNORECASE,
)
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|0x[0-9a-fA-F]+|\d+|\{[^}]*\}|\[[^\]]*\]")


def blame_error(
    subject: Subject, failure: EngineFailure, tell: Tell, *, flaky: str | None, sample: int = 0
) -> Blame:
    """Locates, confirms and reduces a crash, a hang, or a build or run that fails."""
    if failure.kind == "out_of_memory":
        tell("locate", "resource limit", "memory ran out; no operator is to blame")
        return Blame("resource_limit", "predicate", how=_peak(subject, sample))
    recorded = Recorded(subject.reference, subject.samples[sample], {})
    examiner = Examiner(
        subject.reference, subject.prober, recorded, subject.work, kind=failure.kind
    )
    examiner.expect(flaky, looks_for(subject.unsteady))
    if subject.unsteady is not None and flaky and not named_nodes(subject.graph, failure):
        return blame_noisily(subject, examiner, subject.unsteady, tell, flaky=flaky, sample=sample)
    found = locate_failure(examiner, subject.reference.topology, failure, subject.progress)
    if found.confirmed is None:
        tell("locate", "does not fail alone", found.how)
        nodes: tuple[int, ...] = () if found.node is None else (found.node,)
        cause = "engine_defect" if nodes else None
        return Blame(cause, "predicate", nodes=nodes, how=found.how, flaky=flaky, sample=sample)
    tell(
        "locate", "fails alone", f"{len(found.confirmed.candidate.nodes)} operator(s): {found.how}"
    )
    blame = Blame(
        "engine_defect",
        "predicate",
        confirmed=found.confirmed,
        how=found.how,
        flaky=flaky,
        sample=sample,
    )
    if found.node is not None:
        blame = replace(blame, nodes=(found.node,))
    blame = reduce_part(subject, examiner, blame, found.confirmed, tell)
    if blame.reduced is not None:
        nodes = subject.reference.topology.blamed(blame.reduced.candidate.nodes)
        blame = replace(blame, nodes=nodes)
    last = blame.final.failure if blame.final is not None else None
    text = (last or failure).message
    if failure.kind in ("build_error", "run_error") and _UNSUPPORTED.search(text):
        blame = replace(
            blame, cause="unsupported", how="the engine says that it does not take this"
        )
    return blame


def _peak(subject: Subject, sample: int) -> str:
    """Returns the largest tensors, for who must save memory."""
    try:
        shapes = subject.reference.shapes(subject.samples[sample])
    except EngineFailure:
        return "memory ran out"
    largest = sorted(shapes.items(), key=lambda item: -int(np.prod(item[1], dtype=np.int64)))[:3]
    text = ", ".join(f"{name!r} {list(shape)}" for name, shape in largest)
    return f"the largest tensors are {text}" if text else "memory ran out"


def said_by(failure: EngineFailure | None) -> str:
    """Returns the engine's own words: its message, and the end of what it printed."""
    if failure is None:
        return ""
    tail = failure.tail.strip()
    return failure.message.strip()[:2000] + (f"\n{tail[-2000:]}" if tail else "")


def stable_text(failure: EngineFailure | None) -> str:
    """Returns the longest part of a message that holds no name, file, number or shape."""
    if failure is None or failure.kind in ("crash", "timeout", "out_of_memory"):
        return ""
    first = next((line for line in failure.message.splitlines() if line.strip()), "")
    longest = max((piece.strip() for piece in _VARIES.split(first)), key=len, default="")
    return longest[:80] if len(longest) >= 8 else ""

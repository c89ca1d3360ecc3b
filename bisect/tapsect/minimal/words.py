"""The sentences of a reduction."""

from __future__ import annotations

from collections.abc import Sequence

from debugtaps import Graph
from tapsect.candidate import Candidate
from tapsect.minimal.flaky import Slice
from tapsect.minimal.plan import Plan
from tapsect.minimal.written import End
from tapsect.reduction import DoesNotFail, OtherFailure
from tapsect.search.noisy import Firing
from tapsect.verdict import Verdict

__all__ = ["confidence", "doubtful", "end_sentence", "other_notes", "refused_sentence"]

_SEEN = {
    Verdict.AGREES: "passes",
    Verdict.INVALID: "cannot be judged (skipped, or it cannot run)",
    Verdict.UNSTABLE: "answers differently each time",
    Verdict.DIVERGES: "fails",
}


def refused_sentence(plan: Plan, refused: DoesNotFail, firing: Firing | None, why: str = "") -> str:
    """Returns why a start is not reduced; ``why`` is what else is known of it."""
    what = "the check" if plan.line is not None or plan.ask is not None else "the engine"
    seen = " then ".join(
        _SEEN[verdict] + (f" ({signature.kind})" if signature is not None else "")
        for verdict, signature in refused.seen
    )
    model = plan.options.model
    if firing is None:
        known = f" ({why})" if why else ""
        return f"{model} does not fail: {what} {seen}{known}; nothing was written"
    of = firing.of
    return (
        f"{model} is unstable: {what} {seen}, and fails {firing.failed} of {of} times;"
        f" nothing was written. Search it as a flaky failure with --confirm 1/{of}"
    )


def end_sentence(end: End, total: int, found: Slice | None) -> str:
    """Returns what was reached, as one sentence."""
    shown = ", ".join(f"'{name}'" for name in end.names[:4])
    shown += f" and {len(end.names) - 4} more" if len(end.names) > 4 else ""
    count = len(end.names)
    kind = end.signature.kind if end.signature else "fails"
    said = f"{count} of {total} nodes still {'fails' if count == 1 else 'fail'} ({kind}): {shown}"
    if end.one_minimal:
        said += "; none can be removed or bypassed"
    said += f"; the end failed {end.reproduced} of {end.of} fresh runs; {end.calls} calls"
    if found is not None:
        sure = "confidence" if found.sure else "not sure: confidence only"
        said += f"; it fires {found.rate:.0%} of the time, {sure} {confidence(found.confidence)}"
    return said


def confidence(share: float) -> str:
    """Returns a probability in percent; one that was measured is never 100."""
    return "over 99%" if share > 0.99 else f"{share:.0%}"


def doubtful(found: Slice, graph: Graph) -> list[str]:
    """Returns what to say of a noisy search that is not sure."""
    if found.sure:
        return []
    names = ", ".join(f"'{graph.nodes[i].name}'" for i in found.likely[:5])
    return [
        f"the noisy search is not sure ({confidence(found.confidence)}); its end may be {names}"
    ]


def other_notes(others: Sequence[OtherFailure[Candidate]], graph: Graph) -> list[str]:
    """Returns one note a failure of another kind that was met on the way."""
    notes = []
    for other in others:
        signature = other.signature
        what = signature.words if signature else "another failure"
        nodes = sorted(other.candidate.nodes)
        where = ", ".join(f"'{graph.nodes[i].name}'" for i in nodes[:3])
        notes.append(f"another failure was met and not followed: {what} ({len(nodes)} nodes: "
                     f"{where}{' …' if len(nodes) > 3 else ''})")  # fmt: skip
    return notes

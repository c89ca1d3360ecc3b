"""Blame for a failure that comes in some builds only, and that no values explain."""

from __future__ import annotations

from dataclasses import replace

from tapsect.diagnose.blame import Blame, Tell, reduce_part
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.unsteady import firing_of
from tapsect.localize.examine import Examiner
from tapsect.localize.noisy import locate_noisy
from tapsect.observed import Repeats

__all__ = ["blame_noisily"]


def blame_noisily(
    subject: Subject, examiner: Examiner, seen: Repeats, tell: Tell, *, flaky: str, sample: int = 0
) -> Blame:
    """Locates under noise, confirms and reduces; the blame says how probable its place is.

    Args:
        subject: The diagnosis' material.
        examiner: Examines parts; set to ask as often as the failure needs.
        seen: How often the whole fails.
        tell: Writes one step to the trail.
        flaky: ``flaky_build`` or ``flaky_run``.
        sample: Which sample fails.
    """
    topology = subject.reference.topology
    found = locate_noisy(examiner, topology, firing_of(seen), subject.progress)
    name = subject.graph.nodes[found.node].name
    how = f"{found.confidence:.1%} probable after {found.looks} looks"
    tell("locate", f"{name!r}" if found.sure else f"perhaps {name!r}", how)
    blame = Blame(
        "engine_defect" if found.sure or found.confirmed else None, "predicate",
        nodes=(found.node,), confirmed=found.confirmed, sample=sample, how=how, flaky=flaky,
        confidence=found.confidence,
    )  # fmt: skip
    if found.confirmed is None:
        tell("confirm", "does not fail alone", f"nothing around {name!r} was seen to fail")
        return blame
    blame = reduce_part(subject, examiner, blame, found.confirmed, tell)
    if blame.reduced is not None:
        blame = replace(blame, nodes=topology.blamed(blame.reduced.candidate.nodes))
    return blame

"""Where, when only some builds fail and none shows values that can be trusted.

Prefixes of the model are built one look at a time; each answer moves what is believed of where
the fault begins (:mod:`tapsect.search.noisy`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from tapsect.candidate import Candidate
from tapsect.localize.confirm import Confirmed, confirm, grown
from tapsect.localize.errors import ERRORS
from tapsect.localize.examine import Examiner
from tapsect.localize.predicate import prefix_of
from tapsect.progress import Progress
from tapsect.search.noisy import Firing, noisy_first_bad
from tapsect.topology import Topology
from tapsect.verdict import Verdict

__all__ = ["Noisy", "locate_noisy"]


@dataclass(frozen=True, slots=True)
class Noisy:
    """What a search under noise found.

    Attributes:
        node: The operator without which nothing fails, most probably.
        confidence: How probable that is.
        sure: Whether it reached 99 %.
        looks: Builds that the search took.
        rate: How often the fault fires, as believed at the end.
        confirmed: A part around the operator that fails by itself.
    """

    node: int
    confidence: float
    sure: bool
    looks: int
    rate: float
    confirmed: Confirmed | None = None


def locate_noisy(
    examiner: Examiner, topology: Topology, firing: Firing, progress: Progress
) -> Noisy:
    """Returns the operator whose presence makes builds fail now and then.

    Args:
        examiner: Examines parts; how often each look asks is kept to one during the search.
        topology: The model.
        firing: How often the whole fails.
        progress: Hears of each look.
    """
    total, counter = len(topology.graph.nodes), itertools.count(1)
    usual, examiner.repeats = examiner.repeats, 1

    def look(count: int) -> Verdict:
        candidate = prefix_of(topology, count)
        if candidate is None:
            return Verdict.INVALID
        number = next(counter)
        progress.step("locate", f"look {number}: the first {count} of {total} operators")
        examined = examiner.examine(candidate, "reference", fresh=2000 + number)
        if examined.verdict is Verdict.DIVERGES and not _same(examiner, examined.signature):
            return Verdict.INVALID
        return examined.verdict

    try:
        found = noisy_first_bad(total, look, firing=firing)
    finally:
        examiner.repeats = usual
    place = Noisy(found.index - 1, found.confidence, found.sure, found.calls, found.rate)
    return replace(place, confirmed=_alone(examiner, topology, place.node))


def _same(examiner: Examiner, signature: object) -> bool:
    kind = getattr(signature, "kind", None)
    return kind == examiner.kind or (examiner.kind not in ERRORS and kind not in ERRORS)


def _alone(examiner: Examiner, topology: Topology, index: int) -> Confirmed | None:
    """Returns a part around an operator that fails by itself, each look asked often enough."""
    node = topology.graph.nodes[index]
    shown = [t for t in node.writes if topology.is_read(t)] or list(node.writes)
    ends = tuple(topology.graph.outputs)
    candidates: itertools.islice[Candidate] = itertools.islice(
        grown(topology, [index], shown[0], ends), 6
    )
    return confirm(examiner, candidates, sources=("reference",), most=6)

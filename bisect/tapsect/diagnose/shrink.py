"""A confirmed part of the model, handed to the reducer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from tapsect.candidate import Candidate
from tapsect.localize.confirm import Confirmed
from tapsect.localize.errors import ERRORS
from tapsect.localize.examine import Examiner
from tapsect.reduction import Answer, Confirm, DoesNotFail, Problem, Reduced, reduce
from tapsect.replay.reference import Reference
from tapsect.rounding.floors import limit_for
from tapsect.search.foresight import begun_early
from tapsect.verdict import Verdict

__all__ = ["GraphStructure", "shrink"]


STEADY = Confirm(need=4, of=6)
"""Fresh builds of the result: a fault of seven builds in ten passes them in one case of four."""


class GraphStructure:
    """An ONNX graph as the reducer sees it.

    Args:
        reference: Knows the graph and the shapes of one sample.
        shapes: Concrete shapes by tensor.
    """

    def __init__(self, reference: Reference, shapes: dict[str, tuple[int, ...]]) -> None:
        self.graph = reference.graph
        self.shapes = shapes
        self._order = tuple(range(len(self.graph.nodes)))

    def order(self) -> Sequence[int]:
        """Returns every node once, writers before readers."""
        return self._order

    def reads(self, node: int) -> Sequence[str]:
        """Returns the tensors a node reads."""
        return self.graph.nodes[node].reads

    def writes(self, node: int) -> Sequence[str]:
        """Returns the tensors a node writes."""
        return self.graph.nodes[node].writes

    def producer(self, tensor: str) -> int | None:
        """Returns the node that writes a tensor."""
        return self.graph.producer.get(tensor)

    def consumers(self, tensor: str) -> Sequence[int]:
        """Returns the nodes that read a tensor."""
        return self.graph.consumers.get(tensor, ())

    def same_type(self, a: str, b: str) -> bool:
        """Returns whether both tensors are known to be of one element type and shape."""
        elem = self.graph.elem(a)
        if elem is None or elem != self.graph.elem(b):
            return False
        shape = self._shape(a)
        return shape is not None and shape == self._shape(b)

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        kind = self.graph.types.get(tensor)
        return self.shapes.get(tensor) or (kind.static if kind is not None else None)

    def is_constant(self, tensor: str) -> bool:
        """Returns whether a tensor is an initializer or a Constant."""
        return tensor in self.graph.constants or tensor in self.graph.sparse

    def feedable(self, tensor: str) -> bool:
        """Returns whether a value of the tensor can be recorded and fed."""
        return tensor not in self.graph.untensors and self.graph.elem(tensor) is not None


def shrink(
    examiner: Examiner,
    structure: GraphStructure,
    found: Confirmed,
    *,
    hint: Iterable[int] = (),
    confirmations: Confirm | None = None,
) -> Reduced[Candidate] | DoesNotFail:
    """Returns the smallest part of a confirmed one that fails in the same way."""
    if examiner.kind not in ERRORS and examiner.tolerance is None:
        limit = limit_for(max(examiner.classes.contraction, examiner.classes.rest, 2.0**-24))
        examiner.bar = max(limit.end, min(limit.norm, found.examined.score / 4))
    # Who waits for each answer until its time is over asks less often.
    usual = Confirm() if examiner.kind == "timeout" else STEADY

    def search(ask: Callable[[_Look], Answer]) -> Reduced[Candidate] | DoesNotFail:
        fresh = itertools.count(1)
        problem = Problem(
            structure, found.candidate, lambda c: ask((c, 0)), signature=found.examined.signature,
            recheck=lambda c: ask((c, next(fresh))),
        )  # fmt: skip
        return reduce(problem, hint=hint, confirm=confirmations or usual)

    def look(asked: _Look) -> Answer:
        examined = examiner.examine(asked[0], found.source, fresh=asked[1])
        return examined.verdict, examined.signature

    def begin(looks: Iterable[_Look]) -> None:
        examiner.begin(looks, found.source)

    either = ((Verdict.AGREES, None), (Verdict.DIVERGES, found.examined.signature))
    return begun_early(search, look, begin, lambda _: either)


_Look = tuple[Candidate, int]
"""A part, and which of several looks at it."""

"""Drop outputs that nobody needs to look at, and whatever nothing reads.

A ─▶ [o1]           A ─▶ [o1]        inputs, constants and optional results
B ─▶ [o2]                            that only B needed go as well
"""

from __future__ import annotations

from onnx import ModelProto

from tapsect.reduction import Asked
from tapsect.simplify.specimen import Specimen, bodies, captured, changed, pruned

__all__ = ["drop_unused"]


def drop_unused(problem: Asked[Specimen]) -> None:
    """Proposes the model without what nothing reads, then without each output.

    Guarantees to have tried: every output by itself, where another one is left.
    Cost: at most one question an output, and two more.
    """
    origin = problem.current
    problem.consider(_tidied(origin, None, "what nothing reads"))
    problem.consider(_without_optional(problem.current))
    for value in reversed(origin.proto.graph.output):
        if len(problem.current.proto.graph.output) > 1:
            why = f"output '{value.name}' is not looked at"
            problem.consider(_tidied(problem.current, value.name, why))


def _tidied(origin: Specimen, output: str | None, why: str) -> Specimen:
    model = ModelProto()
    model.CopyFrom(origin.proto)
    for value in [v for v in model.graph.output if v.name == output]:
        model.graph.output.remove(value)
    pruned(model.graph)
    return changed(origin, model, why)


def _without_optional(origin: Specimen) -> Specimen:
    """Returns the model without the results that nobody reads of nodes that have others.

    Those of a node with a body must match it: ``shrink_bodies`` drops both.
    """
    model = ModelProto()
    model.CopyFrom(origin.proto)
    read = captured(model.graph)
    for node in (n for n in model.graph.node if not bodies(n)):
        while len(node.output) > 1 and node.output[-1] not in read:
            del node.output[-1]
    pruned(model.graph)
    return changed(origin, model, "results that nothing reads")

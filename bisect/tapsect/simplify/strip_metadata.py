"""Strip what no engine computes with: documentation, origin, declarations, unused imports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import ModelProto

from tapsect.reduction import Asked
from tapsect.simplify.specimen import Specimen, changed, node_lists

__all__ = ["strip_metadata"]


def strip_metadata(problem: Asked[Specimen]) -> None:
    """Proposes the model without any of it, then without each kind.

    Guarantees to have tried: each kind by itself, unless all could go at once.
    Cost: one question, or six.
    """
    origin = problem.current
    if problem.consider(_without(origin, _KINDS)):
        return
    for kind in _KINDS:
        problem.consider(_without(problem.current, (kind,)))


def _without(origin: Specimen, kinds: Sequence[Callable[[ModelProto], None]]) -> Specimen:
    model = ModelProto()
    model.CopyFrom(origin.proto)
    for kind in kinds:
        kind(model)
    return changed(origin, model, "metadata stripped")


def _documentation(model: ModelProto) -> None:
    model.ClearField("doc_string")
    for function in model.functions:
        function.ClearField("doc_string")
    for graph in node_lists(model.graph):
        graph.ClearField("doc_string")
        held = (graph.node, graph.input, graph.output, graph.initializer, graph.value_info)
        for each in [item for group in held for item in group]:
            each.ClearField("doc_string")


def _properties(model: ModelProto) -> None:
    del model.metadata_props[:]
    for graph in node_lists(model.graph):
        for owner in [graph, *graph.node]:
            if "metadata_props" in owner.DESCRIPTOR.fields_by_name:
                owner.ClearField("metadata_props")


def _origin(model: ModelProto) -> None:
    for field in ("producer_name", "producer_version", "domain", "model_version"):
        model.ClearField(field)


def _declarations(model: ModelProto) -> None:
    for graph in node_lists(model.graph):
        del graph.value_info[:]


def _unused_functions(model: ModelProto) -> None:
    used = {(n.domain, n.op_type) for g in node_lists(model.graph) for n in g.node}
    used |= {(n.domain, n.op_type) for f in model.functions for n in f.node}
    for each in [f for f in model.functions if (f.domain, f.name) not in used]:
        model.functions.remove(each)


def _unused_imports(model: ModelProto) -> None:
    used = {n.domain for g in node_lists(model.graph) for n in g.node}
    used |= {n.domain for f in model.functions for n in f.node}
    used = {"" if domain == "ai.onnx" else domain for domain in used} | {""}
    for each in [o for o in model.opset_import if o.domain.replace("ai.onnx", "") not in used]:
        if each.domain not in used:
            model.opset_import.remove(each)


_KINDS = (
    _documentation, _properties, _origin, _declarations, _unused_functions, _unused_imports,
)  # fmt: skip

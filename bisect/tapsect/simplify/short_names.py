"""Rename nodes and tensors to a letter and a number, on request.

/model/encoder/layer.7/mlp/fc1/MatMul_output_0        t3
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto

from tapsect.reduction import Asked
from tapsect.simplify.specimen import Specimen, bodies, changed

__all__ = ["short_names"]


def short_names(problem: Asked[Specimen]) -> None:
    """Proposes the model with short names.

    Inputs are x0, x1 …, outputs y0 …, constants w0 …, other tensors t0 …, nodes n0 …; bodies
    share the numbers of the whole.

    Guarantees to have tried: it.
    Cost: one question.
    """
    origin = problem.current
    model = ModelProto()
    model.CopyFrom(origin.proto)
    counts: dict[str, int] = {}
    names = _rename(model.graph, {"": ""}, counts)
    feeds = {names.get(name, name): value for name, value in origin.feeds.items()}
    problem.consider(changed(origin, model, "names shortened", feeds))


def _rename(graph: GraphProto, outer: dict[str, str], counts: dict[str, int]) -> dict[str, str]:
    names = dict(outer)

    def called(name: str, letter: str) -> str:
        if name not in names or (name in outer and name):
            names[name] = f"{letter}{counts.get(letter, 0)}"
            counts[letter] = counts.get(letter, 0) + 1
        return names[name]

    for value in graph.input:
        value.name = called(value.name, "x")
    made = {name for node in graph.node for name in node.output}
    ends = {v.name: called(v.name, "y") for v in graph.output if v.name in made}
    for tensor in graph.initializer:
        tensor.name = names[tensor.name] if tensor.name in names else called(tensor.name, "w")
    for sparse in graph.sparse_initializer:
        sparse.values.name = called(sparse.values.name, "w")
    for node in graph.node:
        node.name = f"n{counts.get('n', 0)}"
        counts["n"] = counts.get("n", 0) + 1
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
        for body in bodies(node):
            _rename(body, names, counts)
        for place, name in enumerate(node.output):
            node.output[place] = ends.get(name) or called(name, "t") if name else ""
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)
    return names

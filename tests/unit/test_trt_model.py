"""ONNX node names through TensorRT: read without the onnx package, tagged, read back."""

from types import SimpleNamespace

import pytest
from onnx import helper, parser

from debugtaps.engines.trt.model import (
    Operator,
    Operators,
    names_of_layers,
    read_operators,
    tag_layers,
)
from support.zoo import ZOO

MODEL = """
<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "theirs" : 1]>
net (float[2] x) => (float[2] y)
{
    [first] a = Relu (x)
    b = Neg (a)
    [twice] c = mine.Double (b)
    [odd] d = theirs.Swish (c)
    y = If (cond) <then_branch = g1 () => (float[2] t) { t = theirs.Inner (d) },
                   else_branch = g2 () => (float[2] e) { e = Identity (d) }>
}
<domain: "mine", opset_import: ["" : 17]>
Double (v) => (w) { w = Add (v, v) }
"""


def operators(text: str = MODEL) -> Operators:
    return read_operators(parser.parse_model(text).SerializeToString())


def test_names_types_and_first_outputs_are_read_from_the_bytes() -> None:
    nodes = operators().nodes
    assert [(n.known_as, n.op, n.domain) for n in nodes] == [
        ("first", "Relu", ""), ("b", "Neg", ""), ("twice", "Double", "mine"),
        ("odd", "Swish", "theirs"), ("y", "If", ""),
    ]  # fmt: skip


def test_custom_operators_are_those_that_nothing_defines_in_bodies_too() -> None:
    assert {node.op for node in operators().custom()} == {"Swish", "Inner"}


@pytest.mark.parametrize("name", sorted(ZOO))
def test_what_is_read_is_what_onnx_reads(name: str) -> None:
    model = ZOO[name]().model
    found = read_operators(model.SerializeToString()).nodes
    assert [(n.name, n.op, n.domain) for n in found] == [
        (n.name, n.op_type, n.domain) for n in model.graph.node
    ]


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x3a\xff\xff\xff\x7f", b"\x80" * 20])
def test_what_is_no_model_has_no_operators(data: bytes) -> None:
    assert read_operators(data).nodes == ()


NODES = Operators(
    (
        Operator("conv", "Conv", "", "c"),
        Operator("", "Relu", "", "r"),
        Operator("we]ird | n (X)", "Relu", "", "w"),
        Operator("loop", "Loop", "", "l"),
    ),
    frozenset(),
)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ("[ONNX Layer: conv]", "conv"),
        ("[ONNX Layer: node_of_r]", "r"),
        ("[ONNX Layer: we]ird | n (X)]", "we]ird | n (X)"),
        ("[ONNX Layer: body | loop (Loop)]", "loop"),
        ("[ONNX Layer: deep | body (If) | loop (Loop)]", "loop"),
        ("[ONNX Layer: unknown]", "unknown"),
        ("", ""),
    ],
)
def test_a_layer_leads_to_a_node_of_the_main_graph(metadata: str, name: str) -> None:
    assert names_of_layers(metadata, NODES) == name


def test_only_layers_that_cannot_be_read_back_get_a_token() -> None:
    layers = [
        SimpleNamespace(metadata=f"[ONNX Layer: {name}]")
        for name in ("conv", "node_of_r", "we]ird | n (X)", "we]ird | n (X)")
    ]
    table = tag_layers(layers, NODES)
    assert [layer.metadata for layer in layers] == [
        "[ONNX Layer: conv]", "[ONNX Layer: r]",
        "[ONNX Layer: onnx-node:0]", "[ONNX Layer: onnx-node:0]",
    ]  # fmt: skip
    assert table == {"onnx-node:0": "we]ird | n (X)"}


def test_a_large_initializer_is_stepped_over() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n")
    graph = helper.make_graph([node], "g", [], [])
    graph.initializer.add(name="w", data_type=1, dims=[1 << 20], raw_data=bytes(4 << 20))
    model = helper.make_model(graph)
    assert [n.name for n in read_operators(model.SerializeToString()).nodes] == ["n"]

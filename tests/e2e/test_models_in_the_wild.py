"""Models as they are met: each runs through the whole pipeline, and a planted fault is found.

Names in a finding are those of the given model; where they are shown, nothing of them is obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from markdown_it import MarkdownIt
from onnx import TensorProto, helper

import tapsect
from debugtaps import Graph, load_graph
from support import contract, zoo
from support.build import Built, Net
from tapsect.cli import main
from tapsect.report import render_markdown, render_text

# ------------------------------------------------------------------- more than the zoo holds


def renamed(built: Built, name: Callable[[str], str]) -> Built:
    """Returns the model with every node, and every tensor a node makes, under another name."""
    model = onnx.ModelProto()
    model.CopyFrom(built.model)
    graph = model.graph
    names = {t: name(t) for node in graph.node for t in node.output if t}
    for node in graph.node:
        node.name = name(node.name)
        node.input[:] = [names.get(t, t) for t in node.input]
        node.output[:] = [names.get(t, t) for t in node.output]
    for info in [*graph.output, *graph.value_info]:
        info.name = names.get(info.name, info.name)
    return Built(model, built.feeds)


NAMES = {
    "terminal": "\x1b[31mred\x1b[0m\x07 {}",
    "direction": "\u202eabc\u2066 {}",
    "lines": "a\nb\r\n# {}",
    "markup": "<img src=x onerror=alert(1)>|`{}`*_[x](http://y)",
    "zip": "../../{}.npy",
    "file": "file{}",
    "colons": "a::b::narrow::{}",
    "quotes": "'a' \"b\" \\{}",
    "unicode": "größe 模型 🙂 {}",
    "long": "x" * 3000 + "{}",
}


def named(kind: str) -> Built:
    built = zoo.chain_cnn(6, size=6)
    return renamed(built, lambda name: NAMES[kind].format(name))


def unsorted_nodes() -> Built:
    """Returns a network whose nodes stand in reverse order: no standard, and met all the same."""
    built = zoo.residual(1)
    nodes = list(built.model.graph.node)
    del built.model.graph.node[:]
    built.model.graph.node.extend(reversed(nodes))
    return built


def output_inside() -> Built:
    """Returns a network whose every second tensor is an output, and read on."""
    built = zoo.chain_cnn(8, size=6)
    graph = built.model.graph
    known = {o.name for o in graph.output}
    graph.output.extend(v for i, v in enumerate(graph.value_info) if i % 2 and v.name not in known)
    return built


def fed_initializer() -> Built:
    """Returns a network one of whose weights is fed with another value."""
    built = zoo.initializer_inputs()
    weight = next(t for t in built.model.graph.initializer if len(t.dims) == 4)
    other = np.random.default_rng(5).standard_normal(tuple(weight.dims)).astype(np.float32)
    return Built(built.model, {**built.feeds, weight.name: other / 3})


def old_ir(version: int) -> Callable[[], Built]:
    """Returns a model of an old IR version; before 4 every weight is an input as well."""

    def build() -> Built:
        net = Net(seed=version, opset=9 if version < 6 else 13)
        net.ir_version = version
        y = net.op("Relu", net.conv(net.input("image", (1, 3, 6, 6)), 3, 4))
        net.output(net.op("Sigmoid", net.conv(y, 4, 2)))
        return net.build()

    return build


def constants_everywhere() -> Built:
    """Returns a node that reads constants alone, and one constant shown as an output."""
    net = Net(seed=3)
    x = net.op("Tanh", net.linear(net.input("x", (3, 4)), 4, 4))
    scale = net.op("Exp", net.const(np.linspace(-1, 1, 4), name="log"))
    net.output(net.op("Mul", x, scale))
    built = net.build()
    node = helper.make_node("Constant", [], ["fact"], value_float=2.5)
    built.model.graph.node.insert(0, node)
    built.model.graph.output.append(helper.make_tensor_value_info("fact", TensorProto.FLOAT, ()))
    return built


EXTRA: dict[str, Callable[[], Built]] = {
    **{f"names_{kind}": partial(named, kind) for kind in NAMES},
    "unsorted_nodes": unsorted_nodes,
    "output_inside": output_inside,
    "fed_initializer": fed_initializer,
    "constants_everywhere": constants_everywhere,
    **{f"ir{version}": old_ir(version) for version in range(3, 12)},
    "fp16": lambda: zoo.to_float16(zoo.residual(1)),
    "fp16_transformer": lambda: zoo.to_float16(zoo.transformer(1)),
}
MODELS = {**zoo.ZOO, **EXTRA}
OFTEN = {f"opset{v}" for v in zoo.OPSETS if v not in (7, 13, 24)} | {f"ir{v}" for v in range(5, 11)}


def cases(names: list[str]) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.slow] if n in OFTEN else []) for n in names]


# ------------------------------------------------------------------------------ they run


@pytest.mark.parametrize("name", cases(list(MODELS)))
def test_runs_and_agrees_at_every_optimisation(name: str, tmp_path: Path) -> None:
    path, inputs = MODELS[name]().save(tmp_path / "m")
    finding = tapsect.bisect(
        path, inputs=[inputs], engine="ort", out=tmp_path / "o",
        engine_options={"graph_optimization_level": "all"},
    )  # fmt: skip
    assert finding.status == "agrees", finding.message
    assert finding.cause not in ("engine_defect", "reference_suspect")
    assert not finding.culprit_nodes
    assert finding.cost.builds == 1
    contract.check(tmp_path / "o")


# -------------------------------------------------------------- a planted fault is located

SILENT = frozenset({
    "dropout_and_random",  # its own noise hides 5 %
})  # fmt: skip
OTHER_OP = {  # where 5 % of the middle operator does not reach an output
    "argmax_head": ("Conv", {"kind": "channel", "offset": 3.0, "axis": 1, "index": 0}),
    "no_value_info": ("Softmax", {}),
    "fp16_transformer": ("Softmax", {}),
}
PASSES_ON = ("Identity", "Cast", "QuantizeLinear", "DequantizeLinear", "Optional")


def floats(graph: Graph) -> list[int]:
    """Returns the operators whose float result reaches an output, in order."""
    reached = set(graph.outputs)
    found = []
    for node in reversed(graph.nodes):
        if not reached.intersection(node.writes):
            continue
        reached.update(node.reads)
        first = next(iter(node.writes))
        idle = first in graph.fixed or first in graph.shapelike or first in graph.untensors
        if graph.is_float(first) and not idle and node.op not in PASSES_ON:
            found.append(node.index)
    return found[::-1]


def middle(name: str, graph: Graph) -> tuple[int, dict[str, Any]]:
    indices = floats(graph)
    if name in OTHER_OP:
        op, fault = OTHER_OP[name]
        indices = [i for i in indices if graph.nodes[i].op == op]
        return indices[-1], fault
    return indices[len(indices) // 2], {}


# Those with odd names are looked at as they are shown, below.
@pytest.mark.parametrize(
    "name", cases([n for n in MODELS if n not in SILENT and not n.startswith("names_")])
)
def test_a_planted_fault_is_found_at_its_node(name: str, tmp_path: Path) -> None:
    path, inputs = MODELS[name]().save(tmp_path / "m")
    graph = load_graph(path, tmp_path / "w")
    index, fault = middle(name, graph)
    node = graph.nodes[index]
    said = {"kind": "value", "error": 0.05, **fault}
    finding = tapsect.bisect(
        path, inputs=[inputs], engine="planted", out=tmp_path / "o",
        engine_options={"faults": [{**said, "nodes": [node.name]}], "intra_op_num_threads": 1},
    )  # fmt: skip
    body = contract.check(tmp_path / "o")
    assert (finding.status, finding.cause) == ("diverges", "engine_defect"), finding.message
    # What lies between two tensors that can be seen is one unit of blame.
    assert node.name in finding.culprit_nodes
    assert all(_unseen(graph, n, node.name) for n in finding.culprit_nodes)
    assert finding.minimal is not None
    assert finding.cost.builds <= 5
    given = {p.name or p.output[0] for p in onnx.load(path).graph.node} | {
        t for p in onnx.load(path).graph.node for t in p.output
    }
    assert given.issuperset([body["first_divergence"]["node"], *body["culprit_nodes"]])
    assert body["first_divergence"]["tensor"] in given


def _unseen(graph: Graph, name: str, wanted: str) -> bool:
    """Returns whether a node is the wanted one or makes what nobody can look at."""
    node = graph.nodes[graph.by_name[name]]
    return name == wanted or all(t in graph.untensors for t in node.writes)


def test_external_weights_stay_as_they_are(tmp_path: Path) -> None:
    path, inputs = zoo.external_weights(tmp_path / "m")
    weights = path.with_name("model.weights")
    before = weights.read_bytes()
    graph = load_graph(path, tmp_path / "w")
    node = next(n for n in graph.nodes if n.op == "Softmax")
    finding = tapsect.bisect(
        path, inputs=[inputs], engine="planted", out=tmp_path / "o",
        engine_options={"kind": "value", "nodes": [node.name]},
    )  # fmt: skip
    assert finding.culprit_nodes == (node.name,)
    contract.check(tmp_path / "o")
    assert weights.read_bytes() == before
    assert weights.stat().st_nlink == 1


def test_weights_with_two_names_are_taken(tmp_path: Path) -> None:
    """Package managers share files so; onnx itself refuses to read them."""
    path, inputs = zoo.external_weights(tmp_path / "m")
    (tmp_path / "other").hardlink_to(path.with_name("model.weights"))
    for reference in ("ort-reference", "onnx"):
        finding = tapsect.bisect(
            path, inputs=[inputs], reference=reference, out=tmp_path / reference
        )
        assert finding.status == "agrees"


# --------------------------------------------------------------------------- names, shown


@pytest.mark.parametrize("kind", list(NAMES))
def test_a_name_is_shown_and_never_obeyed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs = named(kind).save(tmp_path / "m")
    graph = load_graph(path, tmp_path / "w")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = f'faults=[{{"kind": "value", "nodes": {json.dumps([graph.nodes[2].name])}}}]'
    code = main(
        ["bisect", str(path), "--inputs", str(inputs), "--out", "o", "--engine", "planted",
         "--engine-option", options]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 1, err
    body = contract.check(Path("o"))
    assert (body["status"], body["cause"]) == ("diverges", "engine_defect")
    assert body["culprit_nodes"] == [graph.nodes[2].name]
    assert body["first_divergence"]["node"] == graph.nodes[2].name
    assert body["first_divergence"]["tensor"] in graph.nodes[2].writes
    assert body["minimal"]["nodes"] == [graph.nodes[2].name]
    assert body["cost"]["builds"] <= 5
    text = out + err + Path("o/report.md").read_text() + Path("o/case/README.md").read_text()
    assert not {c for c in text if ord(c) < 32} - {"\n"}
    assert "\u202e" not in text
    assert "\u2066" not in text
    for page in ("o/report.md", "o/case/README.md"):
        shown = MarkdownIt("commonmark").enable("table").render(Path(page).read_text())
        assert not [tag for tag in ("<img", "<a ", "<em>") if tag in shown]
    assert {p.name for p in (tmp_path / "here").iterdir()} == {"o"}
    assert {p.name for p in tmp_path.iterdir()} == {"m", "w", "here"}


def test_a_very_long_name_does_not_drown_the_sentence(tmp_path: Path) -> None:
    path, inputs = named("long").save(tmp_path / "m")
    name = load_graph(path, tmp_path / "w").nodes[2].name
    finding = tapsect.bisect(
        path, inputs=[inputs], engine="planted", out=tmp_path / "o",
        engine_options={"kind": "value", "nodes": [name]},
    )  # fmt: skip
    assert len(finding.message) < 400
    assert name in finding.culprit_nodes
    assert max(map(len, render_text(finding).splitlines())) < 1000
    assert len(render_markdown(finding)) < 100_000

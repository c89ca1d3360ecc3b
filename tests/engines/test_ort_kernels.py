"""ONNX Runtime tells, on request, which nodes it fused; the locator asks when taps heal."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import tapsect
from debugtaps import Host, resolve, write_npz
from support.build import Net
from tapsect.byhand.engines import describe_engine
from tapsect.published_faults import layernorm_keepdims0

NORM = [
    "norm/ReduceMean", "norm/Sub", "norm/Pow", "norm/ReduceMean_1", "norm/Add", "norm/Sqrt",
    "norm/Div", "norm/Mul", "norm/Add_1",
]  # fmt: skip


@pytest.fixture
def fault(tmp_path: Path) -> Path:
    model, feeds = layernorm_keepdims0()
    onnx.save(model, tmp_path / "m.onnx")
    write_npz(tmp_path / "in.npz", feeds)
    return tmp_path / "m.onnx"


def told(model: Path, **options: object) -> list[set[str]]:
    with Host(resolve("ort", options)) as engine, engine.build(model) as build:
        assert "fusions" not in build.has  # a plain build is not made twice
        return [set(group) for group in build.kernels()]


def test_nodes_that_one_node_took_the_place_of(fault: Path) -> None:
    assert told(fault) == [set(NORM)]


def test_a_fusion_left_out_leaves_its_nodes_apart(fault: Path) -> None:
    passes = ["SimplifiedLayerNormFusion", "LayerNormFusionL2", "LayerNormFusion"]
    assert set(NORM) not in told(fault, disabled_optimizers=passes)
    assert told(fault, graph_optimization_level="disable") == []


def test_nodes_without_names_go_by_what_they_write(fault: Path) -> None:
    model = onnx.load(fault)
    outputs = {node.output[0] for node in model.graph.node if node.name in NORM}
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, fault)
    assert told(fault) == [outputs]


def test_weights_beside_the_model_are_not_needed(fault: Path) -> None:
    onnx.save(onnx.load(fault), fault, save_as_external_data=True, location="w", size_threshold=0)
    assert told(fault) == [set(NORM)]


def test_inspect_shows_them(fault: Path) -> None:
    told = describe_engine(fault, "ort", {})
    assert f"1 fused kernels\nKernel 0: {' + '.join(sorted(NORM))}" in told


def test_where_renamed_tensors_hide_who_does_what_nothing_is_told(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 16, 8, 8))
    net.output(net.op("Relu", net.conv(net.op("Relu", net.conv(x, 16, 16)), 16, 16)))
    path, _ = net.build().save(tmp_path)
    assert told(path) == []  # NCHWc: two convolutions between tensors that kept their names


def test_a_fusion_that_taps_heal_is_found_with_few_builds(fault: Path, tmp_path: Path) -> None:
    found = tapsect.bisect(fault, inputs=[tmp_path / "in.npz"], out=tmp_path / "out", budget=0.0)
    assert found.cause == "engine_defect"
    assert set(found.culprit_nodes) <= set(NORM)
    assert found.first_divergence is not None
    assert found.first_divergence.kernel == "+".join(NORM)
    assert found.cost.builds <= 10

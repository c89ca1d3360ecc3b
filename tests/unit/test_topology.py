"""Which edges may be cut or shaken, what replays a tensor, where a model narrows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto

from debugtaps import load_graph
from support.build import Built, Net
from support.calibration import KERNELS
from support.zoo import branching, qdq_int8, sequences
from tapsect.topology import Topology


def topology(built: Built, folder: Path) -> Topology:
    model, _ = built.save(folder)
    return Topology(load_graph(model, folder / "work"))


def diamond() -> Built:
    """x → a → (left, right) → sum → out."""
    net = Net()
    a = net.op("Relu", net.input("x", (2, 4)))
    left, right = net.op("Neg", a), net.op("Abs", a)
    net.output(net.op("Tanh", net.op("Add", left, right)))
    return net.build()


def test_a_region_ends_at_cut_edges(tmp_path: Path) -> None:
    seen = topology(diamond(), tmp_path)
    assert seen.region("Add_output_0", {"Neg_output_0", "Abs_output_0"}) == {3}
    assert seen.region("Add_output_0", {"Neg_output_0"}) == {0, 2, 3}
    assert seen.region("Tanh_output_0", ()) == {0, 1, 2, 3, 4}
    assert seen.ancestors(["Neg_output_0", "Abs_output_0"]) == {0, 1, 2}


def test_waists_are_where_everything_flows_through(tmp_path: Path) -> None:
    seen = topology(diamond(), tmp_path)
    assert {"Add_output_0", "Tanh_output_0"} == seen.waists
    assert not seen.waists & {"Neg_output_0", "Abs_output_0"}


def test_necks_are_where_a_model_can_be_cut_in_two(tmp_path: Path) -> None:
    seen = topology(diamond(), tmp_path)
    assert seen.necks == ("Relu_output_0", "Add_output_0", "Tanh_output_0")


def test_what_goes_around_a_tensor_leaves_it_no_neck(tmp_path: Path) -> None:
    net = Net()
    a = net.op("Relu", net.input("x", (2, 4)))
    b = net.op("Exp", net.op("Neg", a))  # all of Neg flows through Exp, a goes around it
    net.output(net.op("Add", a, b))
    seen = topology(net.build(), tmp_path)
    assert "Exp_output_0" in seen.waists
    assert seen.necks == ("Relu_output_0", "Add_output_0")


def test_what_shape_inference_reads_is_neither_cut_nor_shaken(tmp_path: Path) -> None:
    for number, name in enumerate(("computed resize, linear", "anchors from a shape")):
        seen = topology(KERNELS[name].build(), tmp_path / str(number))
        for node in seen.graph.nodes:
            if node.op in ("Resize", "Range"):
                at = (1, 2) if node.op == "Resize" else (0, 1, 2)
                scales = {node.proto.input[i] for i in at if i < len(node.proto.input)}
                assert not scales & seen.shakeable


def test_scales_and_zero_points_stand_still(tmp_path: Path) -> None:
    seen = topology(qdq_int8(), tmp_path)
    steps = {n.proto.input[1] for n in seen.graph.nodes if n.op.endswith("quantizeLinear")}
    assert steps
    assert not steps & seen.shakeable


def test_the_result_of_a_cast_carries_no_noise(tmp_path: Path) -> None:
    net = Net()
    half = net.op("Cast", net.op("Relu", net.input("x", (2, 2))), to=TensorProto.FLOAT16)
    net.output(net.op("Cast", half, to=TensorProto.FLOAT))
    seen = topology(net.build(), tmp_path)
    assert half in seen.shakeable
    assert half not in seen.noisy


def test_sequences_are_not_tapped(tmp_path: Path) -> None:
    seen = topology(sequences(), tmp_path)
    assert seen.graph.untensors
    assert not seen.graph.untensors & set(seen.tappable)


def test_only_moved_and_selected_values_are_unrounded(tmp_path: Path) -> None:
    net = Net()
    x = net.op("Transpose", net.op("Relu", net.input("x", (2, 4))), perm=[1, 0])
    y = net.op("Mul", x, net.const(0.5))
    net.output(y)
    seen = topology(net.build(), tmp_path)
    assert seen.unrounded(x)
    assert seen.unrounded("x")
    assert not seen.unrounded(y)


def test_depth_and_position_follow_the_graph(tmp_path: Path) -> None:
    seen = topology(branching(), tmp_path)
    for node in seen.graph.nodes:
        for source in node.reads:
            for target in node.writes:
                if source in seen.graph.producer:
                    assert seen.depth[source] < seen.depth[target]
                    assert seen.position[source] < seen.position[target]
    assert np.isclose(max(seen.depth.values()), max(seen.depth[t] for t in seen.graph.outputs))

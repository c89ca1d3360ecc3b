"""Each pass over whole models, by itself: what it proposes, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from support import zoo
from tapsect.reduction import Confirm, DoesNotFail, Pass, reduce
from tapsect.simplify import (
    ON_REQUEST,
    TABLE,
    Simplification,
    Specimen,
    nearest_passing,
    specimen,
    table,
)
from tapsect.simplify.specimen import bodies
from tapsect.simplify.unfolding import unfolded
from tapsect.verdict import Signature, Verdict

FAULT = Signature("accuracy")


def runs(candidate: Specimen) -> bool:
    """Returns whether a runtime takes the model and its feeds."""
    try:
        onnx.checker.check_model(candidate.proto)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(candidate.model, options, providers=["CPUExecutionProvider"])
        session.run(None, dict(candidate.feeds))
    except Exception:
        return False
    return True


def simplified(
    model: ModelProto, feeds: Mapping[str, Any], fails: Callable[[Specimen], bool], *names: str
) -> Simplification:
    """Returns the problem after the named passes, where ``fails`` says what must stay."""

    def check(candidate: Specimen) -> tuple[Verdict, Signature | None]:
        if not runs(candidate):
            return Verdict.INVALID, None
        return (Verdict.DIVERGES, FAULT) if fails(candidate) else (Verdict.AGREES, None)

    rows: list[Pass] = [row for row in (*TABLE, *ON_REQUEST) if row.name in names]
    assert len(rows) == len(names)
    problem = Simplification(specimen(model, feeds), check)
    result = reduce(problem, passes=rows, confirm=Confirm(1, 1))
    assert not isinstance(result, DoesNotFail), result.seen
    return problem


def ops(candidate: Specimen) -> list[str]:
    return [node.op_type for node in candidate.proto.graph.node]


def has(op: str) -> Callable[[Specimen], bool]:
    return lambda candidate: op in ops(candidate)


def text(body: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}')


MLP = text(
    """
    mlp (float[4,197,48] x) => (float[4,197,96] y)
    <float[48,96] w, float[96] b> { h = MatMul(x, w)  y = Add(h, b) }
    """
)


def mlp() -> tuple[ModelProto, dict[str, Any]]:
    rng = np.random.default_rng(0)
    model = ModelProto()
    model.CopyFrom(MLP)
    for name, shape in (("w", (48, 96)), ("b", (96,))):
        values = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model, {"x": rng.standard_normal((4, 197, 48)).astype(np.float32)}


def test_sizes_shrink_in_inputs_and_weights_together() -> None:
    problem = simplified(*mlp(), has("Add"), "shrink-shapes")
    assert problem.current.feeds["x"].shape == (1, 1, 1)
    assert {tuple(t.dims) for t in problem.current.proto.graph.initializer} == {(1, 1), (1,)}
    output = problem.current.proto.graph.output[0].type.tensor_type
    assert [d.dim_value for d in output.shape.dim] == [1, 1, 1]
    assert problem.calls <= 12


def test_sizes_stop_where_the_failure_needs_them() -> None:
    problem = simplified(
        *mlp(), lambda c: c.feeds["x"].shape[0] == 4 and c.feeds["x"].shape[2] >= 2, "shrink-shapes"
    )
    assert problem.current.feeds["x"].shape == (4, 1, 2)


def test_sizes_that_only_look_alike_shrink_apart() -> None:
    """Batch, width and columns are all 4; the failure needs the batch and two columns."""
    model = text("g (float[4,4,4] x) => (float[4,4,4] y) <float[4,4] w> { y = MatMul(x, w) }")
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    feeds = {"x": np.ones((4, 4, 4), np.float32)}

    def fails(candidate: Specimen) -> bool:
        weight = next(t for t in candidate.proto.graph.initializer)
        return bool(candidate.feeds["x"].shape[0] == 4 and weight.dims[1] >= 2)

    problem = simplified(model, feeds, fails, "shrink-axes")
    assert problem.current.feeds["x"].shape == (4, 1, 1)
    assert list(problem.current.proto.graph.initializer[0].dims) == [1, 2]


def test_heads_and_their_width_shrink_apart() -> None:
    """A size that is a product follows its parts; lists of sizes follow, too."""
    built = zoo.attention(dim=24, heads=4, seq=5)

    def fails(candidate: Specimen) -> bool:
        told = onnx.shape_inference.infer_shapes(candidate.proto)
        shapes = [
            [d.dim_value for d in v.type.tensor_type.shape.dim] for v in told.graph.value_info
        ]
        return any(len(s) == 4 and 4 in s[1:3] for s in shapes) and "Softmax" in ops(candidate)

    problem = simplified(built.model, built.feeds, fails, "shrink-axes")
    held = {t.name: list(t.dims) for t in problem.current.proto.graph.initializer}
    assert held["query/MatMul.weight"] == held["value/MatMul.weight"] == [1, 4]  # heads of one
    assert problem.current.feeds["x"].shape == (1, 1, 1)
    assert problem.calls <= 20


GROUPED = """
    g (float[2,{c},6,6] x) => (float[2,8,6,6] y) <float[8,{per},3,3] w, float[8] b>
    {{ y = Conv<group={group}, kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b) }}
    """


@pytest.mark.parametrize(("c", "per", "group"), [(8, 1, 8), (8, 2, 4), (4, 1, 4)])
def test_groups_of_a_convolution_shrink_with_their_channels(c: int, per: int, group: int) -> None:
    model = text(GROUPED.format(c=c, per=per, group=group))
    for name, shape in (("w", (8, per, 3, 3)), ("b", (8,))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    feeds = {"x": np.ones((2, c, 6, 6), np.float32)}
    rows = ("shrink-kernels", "shrink-axes")
    problem = simplified(model, feeds, has("Conv"), *rows)
    assert problem.current.feeds["x"].shape == (1, 1, 1, 1)
    weight = next(t for t in problem.current.proto.graph.initializer if len(t.dims) == 4)
    assert list(weight.dims) == [1, 1, 1, 1]


def test_a_window_stops_where_the_failure_needs_it() -> None:
    built = zoo.chain_cnn(2, channels=8)

    def fails(candidate: Specimen) -> bool:
        weight = next(t for t in candidate.proto.graph.initializer if len(t.dims) == 4)
        return bool(weight.dims[3] >= 2)

    problem = simplified(built.model, built.feeds, fails, "shrink-kernels", "shrink-axes")
    weight = next(t for t in problem.current.proto.graph.initializer if len(t.dims) == 4)
    assert list(weight.dims) == [1, 1, 1, 2]
    assert problem.current.feeds["image"].shape == (1, 1, 1, 1)


def test_equal_sizes_leave_kernels_to_their_own_pass() -> None:
    built = zoo.chain_cnn(2, channels=8)
    problem = simplified(built.model, built.feeds, has("Conv"), "shrink-shapes")
    weight = next(t for t in problem.current.proto.graph.initializer if len(t.dims) == 4)
    assert list(weight.dims) == [1, 1, 3, 3]
    assert problem.current.feeds["image"].shape == (1, 1, 1, 1)


def test_constants_of_reshape_follow_their_sizes() -> None:
    built = zoo.attention()
    problem = simplified(built.model, built.feeds, has("Softmax"), "shrink-shapes")
    start = sum(value.size for value in built.feeds.values())
    assert sum(value.size for value in problem.current.feeds.values()) < start / 2


def test_free_dimensions_stay_free() -> None:
    built = zoo.dynamic_shape()
    problem = simplified(built.model, built.feeds, lambda c: True, "shrink-shapes")
    dims = [d for v in problem.current.proto.graph.input for d in v.type.tensor_type.shape.dim]
    assert {d.dim_param for d in dims} >= {"batch", "seq"}


def test_values_become_plain_unless_they_matter() -> None:
    model, feeds = mlp()

    def fails(candidate: Specimen) -> bool:
        return float(np.abs(candidate.feeds["x"]).max()) > 1.5

    problem = simplified(model, feeds, fails, "simplify-constants", "simplify-inputs")
    held = [numpy_helper.to_array(t) for t in problem.current.proto.graph.initializer]
    assert all(not value.any() for value in held)
    assert set(np.unique(problem.current.feeds["x"])) <= set(range(-9, 10))
    passing = nearest_passing(problem)
    assert passing is not None
    assert passing.change == "input 'x' became ones"
    assert passing.model == problem.current.model


def test_integers_that_say_shapes_are_left_alone() -> None:
    model = text(
        """
        g (float[2,6] x) => (float[3,4] y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }
        """
    )
    feeds = {"x": np.ones((2, 6), np.float32)}
    problem = simplified(model, feeds, has("Reshape"), "simplify-constants")
    assert numpy_helper.to_array(problem.current.proto.graph.initializer[0]).tolist() == [3, 4]


def test_outputs_and_what_only_they_needed_go() -> None:
    model = text(
        """
        g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Relu(a)  z = Neg(b) }
        """
    )
    feeds = {name: np.ones(2, np.float32) for name in "ab"}
    problem = simplified(model, feeds, has("Relu"), "drop-unused")
    assert ops(problem.current) == ["Relu"]
    assert list(problem.current.feeds) == ["a"]


IF = """
    g (float[2] x, bool c) => (float[2] y) {
      y = If (c) <
        then_branch = one () => (float[2] p) { q = Relu(x)  r = Exp(q)  p = Neg(r) },
        else_branch = two () => (float[2] s) { s = Abs(x) }
      >
    }
"""


def test_a_branch_stands_in_the_place_of_its_if() -> None:
    feeds = {"x": np.ones(2, np.float32), "c": np.array(True)}

    def has_exp(candidate: Specimen) -> bool:
        return "Exp" in ops(candidate) or b"Exp" in candidate.model

    problem = simplified(text(IF), feeds, has_exp, "shrink-bodies", "drop-unused")
    assert "If" not in ops(problem.current)
    assert "Exp" in ops(problem.current)
    assert list(problem.current.feeds) == ["x"]


def test_nodes_inside_a_body_are_bypassed_when_the_if_must_stay() -> None:
    feeds = {"x": np.ones(2, np.float32), "c": np.array(True)}

    def fails(candidate: Specimen) -> bool:
        return "If" in ops(candidate) and b"Exp" in candidate.model

    problem = simplified(text(IF), feeds, fails, "shrink-bodies")
    then = problem.current.proto.graph.node[0].attribute[0].g
    assert [n.op_type for n in then.node] == ["Exp"]


def test_a_loop_turn_stands_in_its_place() -> None:
    built = zoo.control_flow()
    loop = next(n for n in built.model.graph.node if n.op_type == "Loop")
    inner = next(n.op_type for n in loop.attribute[0].g.node if n.op_type not in ("Identity",))
    problem = simplified(
        built.model, built.feeds, lambda c: inner.encode() in c.model, "shrink-bodies"
    )
    assert problem.current.nodes < specimen(built.model, built.feeds).nodes


SCAN = """
    g (float[3,2] x, float[2] s) => (float[2] t, float[2,3] y, float[3,2] z) {
      t, y, z = Scan <num_scan_inputs = 1, scan_output_axes = [1, 0], scan_input_directions = [1],
        body = turn (float[2] a, float[2] row) => (float[2] b, float[2] c, float[2] d) {
          e = Exp(row)  b = Add(a, e)  c = Neg(b)  d = Abs(c) }> (s, x)
    }
"""

LOOP = """
    g (float[2] x) => (float[2] t, float[4,2] y) <int64 n = {4}, bool go = {1}> {
      t, y = Loop <body = turn (int64 i, bool m, float[2] a)
        => (bool k, float[2] b, float[2] c) {
          k = Identity(m)  e = Exp(a)  b = Neg(e)  c = Abs(b) }> (n, go, x)
    }
"""
ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def test_a_turn_of_a_scan_takes_its_first_element_and_shows_one() -> None:
    """Backwards, the first element is the last row."""
    feeds = {"x": ROWS, "s": np.zeros(2, np.float32)}
    problem = simplified(text(SCAN), feeds, lambda c: b"Exp" in c.model, "shrink-bodies")
    small = problem.current
    assert "Scan" not in ops(small)
    np.testing.assert_array_equal(small.feeds["x"], ROWS[2])
    t, y, z = ort.InferenceSession(small.model).run(None, dict(small.feeds))
    np.testing.assert_allclose(t, np.exp(ROWS[2]), rtol=1e-6)
    np.testing.assert_allclose(y, -t, rtol=1e-6)
    np.testing.assert_allclose(z, t, rtol=1e-6)


def test_a_turn_of_a_loop_with_sequences_stands_in_its_place() -> None:
    feeds = {"x": np.zeros(2, np.float32)}
    problem = simplified(text(LOOP), feeds, lambda c: b"Exp" in c.model, "shrink-bodies")
    assert "Loop" not in ops(problem.current)
    t, y = ort.InferenceSession(problem.current.model).run(None, dict(problem.current.feeds))
    np.testing.assert_array_equal(t, [-1, -1])
    np.testing.assert_array_equal(y, [1, 1])


def test_sequences_that_operators_read_are_gathered_and_stacked() -> None:
    """Between two operators a turn needs Gather and Unsqueeze; the answer is the first turn's."""
    model = text(
        """
        g (float[3,2] x, float[2] s) => (float[3,2] q) {
          n = Neg(x)
          t, y = Scan <num_scan_inputs = 1,
            body = turn (float[2] a, float[2] row) => (float[2] b, float[2] c) {
              b = Add(a, row)  f = Abs(b)  g = Exp(f)  h = Log(g)  c = Neg(h) }> (s, n)
          q = Relu(y)
        }
        """
    )
    feeds = {"x": ROWS, "s": np.zeros(2, np.float32)}
    start = specimen(model, feeds)
    (made,) = unfolded(start)
    assert ops(made)[:2] == ["Neg", "Gather"]
    assert ops(made)[-2:] == ["Unsqueeze", "Relu"]
    (q,) = ort.InferenceSession(made.model).run(None, dict(made.feeds))
    (before,) = ort.InferenceSession(start.model).run(None, dict(feeds))
    np.testing.assert_allclose(q, before[:1], rtol=1e-6)


@pytest.mark.parametrize(("body", "op"), [(SCAN, "Scan"), (LOOP, "Loop")])
def test_what_must_stay_a_loop_loses_turns_sequences_and_nodes(body: str, op: str) -> None:
    feeds = {"x": ROWS if op == "Scan" else ROWS[0], "s": np.zeros(2, np.float32)}

    def fails(candidate: Specimen) -> bool:
        return op in ops(candidate) and b"Exp" in candidate.model

    problem = simplified(text(body), feeds, fails, "drop-unused", "shrink-bodies")
    (left,) = problem.current.proto.graph.node
    inner = [n.op_type for n in bodies(left)[0].node]
    assert "Abs" not in inner
    assert "Exp" in inner
    assert len(left.output) < 3
    turns = [numpy_helper.to_array(t) for t in problem.current.proto.graph.initializer]
    assert all(np.all(t == 1) for t in turns)


def test_functions_stand_in_place_of_calls() -> None:
    built = zoo.local_function()
    start = specimen(built.model, built.feeds)
    problem = simplified(built.model, built.feeds, lambda c: True, "shrink-bodies")
    assert problem.current.nodes < start.nodes


def test_metadata_goes_at_once() -> None:
    model, feeds = mlp()
    model.producer_name, model.doc_string = "exporter", "a long story"
    model.opset_import.add(domain="com.microsoft", version=1)
    entry = model.metadata_props.add()
    entry.key, entry.value = "author", "me"
    problem = simplified(model, feeds, has("Add"), "strip-metadata")
    left = problem.current.proto
    assert not left.producer_name
    assert not left.doc_string
    assert not left.metadata_props
    assert [o.domain for o in left.opset_import] == [""]
    assert problem.calls <= 4


def test_names_become_short_on_request_and_the_answer_stays() -> None:
    built = zoo.control_flow()
    before = ort.InferenceSession(built.model.SerializeToString()).run(None, built.feeds)
    problem = simplified(built.model, built.feeds, lambda c: True, "short-names")
    small = problem.current
    assert all(len(v.name) <= 3 for v in (*small.proto.graph.input, *small.proto.graph.output))
    after = ort.InferenceSession(small.model).run(None, dict(small.feeds))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_derives_from_constants_is_folded_up_to_a_size() -> None:
    model = text(
        """
        g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
          v = Exp(w)  y = Add(x, v) }
        """
    )
    feeds = {"x": np.ones(4, np.float32)}
    assert ops(simplified(model, feeds, has("Add"), "fold-constants").current) == ["Add"]
    fold = next(row for row in table(8) if row.name == "fold-constants")
    problem = Simplification(specimen(model, feeds), lambda c: (Verdict.DIVERGES, FAULT))
    fold.run(problem)
    assert "Exp" in ops(problem.current)


def test_every_pass_keeps_every_zoo_model_runnable() -> None:
    """Whatever is proposed and accepted, a runtime still takes it."""
    for name in ("transformer", "residual", "recurrent", "qdq_int8", "multi_output"):
        built = getattr(zoo, name)()
        wanted = built.model.graph.node[-1].op_type
        rows = tuple(row.name for row in TABLE if row.name != "fold-constants")
        problem = simplified(built.model, built.feeds, has(wanted), *rows)
        assert runs(problem.current)
        assert problem.sort_key(problem.current) < problem.sort_key(
            specimen(built.model, built.feeds)
        )

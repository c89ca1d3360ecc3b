"""Declared faults strike where they are declared, and only there."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from debugtaps.engines.host import Build, Host
from debugtaps.engines.planted import Planted
from debugtaps.engines.planting.faults import KINDS, Fault, Flaky, parse
from debugtaps.engines.planting.rewrite import Rewriter
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure, SpecError

CHAIN = """
    <ir_version: 8, opset_import: ["" : OPSET]>
    chain (float[2, 3] x) => (float[2, 3] y)
    { [square] q = Mul(x, x)
      [clip] r = Relu(q)
      [last] y = Add(r, x) }
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2  # -2 … 3
Q = X * X
Y = Q + X


def write(folder: Path, text: str = CHAIN, *taps: str, opset: int = 17) -> Path:
    model = parser.parse_model(text.replace("OPSET", str(opset)))
    for tap in taps:
        model.graph.output.append(helper.make_tensor_value_info(tap, TensorProto.FLOAT, None))
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def warm() -> Iterator[Host]:
    """One worker for all tests here: each constructs its engine anew in it."""
    with Host(resolve("planted", {}), timeout=20.0) as host:
        yield host


@pytest.fixture
def planted(warm: Host, tmp_path: Path) -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(*faults: Mapping[str, Any], **options: Any) -> Host:
        told = {"faults": list(faults), **options}
        made.append(Host(resolve("planted", told), timeout=20.0) if made else warm)
        made[-1].turn(told)
        return made[-1]

    yield make
    for host in made[1:]:
        host.close()
    warm.turn({})  # so that the next engine counts from the beginning
    assert [each.name for each in tmp_path.glob(".planted*")] == []


@pytest.fixture
def run(planted: Callable[..., Host], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Returns the outputs of the chain under one fault."""

    def go(*taps: str, opset: int = 17, **fault: Any) -> dict[str, Any]:
        path = write(tmp_path, CHAIN, *taps, opset=opset)
        return planted(fault).build(path, taps).run({"x": X})

    return go


Runner = Callable[..., dict[str, Any]]
Maker = Callable[..., Host]


def changed(base: Any, at: tuple[int, ...], value: float) -> Any:
    other = base.copy()
    other[at] = value
    return other


class TestValues:
    def test_without_faults_nothing_changes(self, planted: Maker, tmp_path: Path) -> None:
        assert np.array_equal(planted().build(write(tmp_path)).run({"x": X})["y"], Y)

    def test_scale_error_and_offset(self, run: Runner) -> None:
        seen = run("r", kind="value", nodes=["clip"], scale=2, error=0.5, offset=1)
        assert np.array_equal(seen["r"], 3 * Q + 1)
        assert np.array_equal(seen["y"], 3 * Q + 1 + X)

    def test_is_five_percent_when_nothing_is_said(self, run: Runner) -> None:
        assert np.allclose(run("q", kind="value", nodes="square")["q"], 1.05 * Q, rtol=1e-6)

    def test_a_tap_before_the_fault_is_clean(self, run: Runner) -> None:
        assert np.array_equal(run("q", kind="value", nodes="clip")["q"], Q)

    def test_the_largest_element(self, run: Runner) -> None:
        seen = run(kind="element", nodes="last", scale=-1)["y"]
        assert np.array_equal(seen, changed(Y, (1, 2), -12))

    def test_one_element_by_index(self, run: Runner) -> None:
        seen = run(kind="element", nodes="last", index=3, offset=0.5)["y"]
        assert np.array_equal(seen, changed(Y, (1, 0), 2.5))

    @pytest.mark.parametrize(("axis", "index"), [(0, 1), (1, 2), (-1, 0)])
    def test_a_channel(self, run: Runner, axis: int, index: int) -> None:
        seen = run(kind="channel", nodes="last", axis=axis, index=index, scale=2)["y"]
        wanted = Y.copy()
        wanted[(slice(None),) * (axis % 2) + (index,)] *= 2
        assert np.array_equal(seen, wanted)

    def test_beyond_a_limit_becomes_infinite(self, run: Runner) -> None:
        seen = run(kind="nonfinite", nodes="last", limit=5)["y"]
        assert np.array_equal(seen, np.where(Y > 5, np.inf, Y))

    def test_or_not_a_number(self, run: Runner) -> None:
        seen = run(kind="nonfinite", nodes="last", limit=5, becomes="nan")["y"]
        assert np.array_equal(np.isnan(seen), Y > 5)

    def test_a_nan_is_lost(self, planted: Maker, tmp_path: Path) -> None:
        build = planted({"kind": "lost_nan", "nodes": "last"}).build(write(tmp_path))
        seen = build.run({"x": changed(X, (0, 0), np.nan)})["y"]
        assert np.array_equal(seen, changed(Y, (0, 0), 0))

    def test_several_faults_add_up(self, planted: Maker, tmp_path: Path) -> None:
        doubled = {"kind": "value", "nodes": "last", "scale": 2}
        build = planted(doubled, doubled, {**doubled, "nodes": "clip"}).build(write(tmp_path))
        assert np.array_equal(build.run({"x": X})["y"], 4 * (2 * Q + X))

    def test_the_short_form_and_options_of_the_inner_engine(
        self, planted: Maker, tmp_path: Path
    ) -> None:
        host = planted(kind="value", nodes="clip,last", scale=2, graph_optimization_level="off")
        assert np.array_equal(host.build(write(tmp_path)).run({"x": X})["y"], 2 * Y)

    @pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
    def test_every_optimisation_level_shows_the_same_fault(
        self, planted: Maker, tmp_path: Path, level: str
    ) -> None:
        fault = {"kind": "element", "nodes": "square", "scale": 3}
        host = planted(fault, graph_optimization_level=level)
        seen = host.build(write(tmp_path)).run({"x": X})["y"]
        assert np.array_equal(seen, changed(Y, (1, 2), 30))

    @pytest.mark.parametrize("inner", ["ort-reference", "onnx"])
    def test_any_engine_can_be_underneath(self, planted: Maker, tmp_path: Path, inner: str) -> None:
        host = planted(inner=inner, kind="value", nodes="last", scale=2)
        assert np.array_equal(host.build(write(tmp_path)).run({"x": X})["y"], 2 * Y)

    @pytest.mark.parametrize("opset", [11, 13, 17, 21])
    @pytest.mark.parametrize("kind", ["value", "element", "channel", "nonfinite", "wrong_shape"])
    def test_of_older_and_newer_opsets(self, run: Runner, kind: str, opset: int) -> None:
        seen = run(opset=opset, kind=kind, nodes="last")["y"]
        assert not np.array_equal(seen, Y)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool"]
)
@pytest.mark.parametrize("kind", ["value", "element"])
def test_tensors_of_every_type_can_be_wrong(
    planted: Maker, tmp_path: Path, kind: str, dtype: str
) -> None:
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    onnx_type = helper.np_dtype_to_tensor_dtype(numpy_type)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], "only")],
        "g",
        [helper.make_tensor_value_info("x", onnx_type, [3])],
        [helper.make_tensor_value_info("y", onnx_type, [3])],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    build = planted({"kind": kind, "nodes": "only", "scale": 3}).build(tmp_path / "m.onnx")
    x = np.array([1, 0, 5]).astype(numpy_type)
    y = build.run({"x": x})["y"]
    assert y.dtype == x.dtype
    if dtype != "bool":
        wanted = [3, 0, 15] if kind == "value" else [1, 0, 15]
        assert y.astype(np.float64).tolist() == wanted


def test_integers_are_rounded_not_cut(planted: Maker, tmp_path: Path) -> None:
    text = CHAIN.replace("float[", "int32[").replace("Relu", "Abs")
    build = planted({"kind": "value", "nodes": "square", "scale": 1.2}).build(write(tmp_path, text))
    assert build.run({"x": np.full((2, 3), 2, np.int32)})["y"].tolist() == [[7] * 3] * 2  # 4.8+2


def test_empty_tensors_pass(planted: Maker, tmp_path: Path) -> None:
    path = write(tmp_path, CHAIN.replace("[2, 3]", "[N]"))
    build = planted({"kind": "element", "nodes": "last"}).build(path)
    assert build.run({"x": np.zeros(0, np.float32)})["y"].shape == (0,)


class TestFusion:
    FAULT = {"kind": "fusion", "nodes": ["square", "clip"], "scale": 2}  # noqa: RUF012

    def test_is_wrong_at_the_last_node(self, run: Runner) -> None:
        assert np.array_equal(run("r", **self.FAULT)["r"], 2 * Q)

    def test_heals_when_a_tensor_inside_is_exposed(self, run: Runner) -> None:
        assert np.array_equal(run("q", "r", **self.FAULT)["y"], Y)

    def test_is_told_when_asked(self, planted: Maker, tmp_path: Path) -> None:
        host = planted({**self.FAULT, "told": True})
        assert host.build(write(tmp_path)).fusions() == (frozenset({"square", "clip"}),)
        assert host.build(write(tmp_path, CHAIN, "q"), ["q"]).fusions() == ()

    def test_two_heal_apart(self, planted: Maker, tmp_path: Path) -> None:
        other = {"kind": "fusion", "nodes": ["clip", "last"], "offset": 1}
        host = planted(self.FAULT, other)
        seen = host.build(write(tmp_path, CHAIN, "q"), ["q"]).run({"x": X})["y"]
        assert np.array_equal(seen, Y + 1)

    def test_needs_all_its_nodes(self, planted: Maker, tmp_path: Path) -> None:
        part = CHAIN.replace("[square] q = Mul(x, x)", "").replace("Relu(q)", "Relu(x)")
        seen = planted(self.FAULT).build(write(tmp_path, part)).run({"x": X})["y"]
        assert np.array_equal(seen, np.maximum(X, 0) + X)


class TestPattern:
    def test_does_not_heal(self, run: Runner) -> None:
        seen = run("q", "r", kind="pattern", nodes=["square", "last"], scale=2)
        assert np.array_equal(seen["r"], Q)
        assert np.array_equal(seen["y"], 2 * Y)

    def test_needs_all_its_nodes(self, run: Runner) -> None:
        assert np.array_equal(run(kind="pattern", nodes=["gone", "last"], scale=2)["y"], Y)


class TestTaps:
    def test_garbled_ones_lie_alone(self, run: Runner) -> None:
        seen = run("q", "r", kind="garbles_tap", tensor="q", scale=2)
        assert np.array_equal(seen["q"], 2 * Q)
        assert np.array_equal(seen["r"], Q)
        assert np.array_equal(seen["y"], Y)

    def test_not_exposed_are_not_garbled(self, run: Runner) -> None:
        assert np.array_equal(run(kind="garbles_tap", tensor="q", scale=2)["y"], Y)

    @pytest.mark.parametrize(
        ("keys", "taps", "refused"),
        [
            ({}, ("q",), True),
            ({}, (), False),
            ({"tensors": ["q"]}, ("q", "r"), True),
            ({"tensors": ["q"]}, ("r",), False),
            ({"limit": 1}, ("q", "r"), True),
            ({"limit": 1}, ("q",), False),
        ],
    )
    def test_are_refused(
        self, run: Runner, keys: dict[str, Any], taps: tuple[str, ...], refused: bool
    ) -> None:
        if not refused:
            run(*taps, kind="refuses_taps", **keys)
            return
        with pytest.raises(EngineFailure, match="cannot expose") as seen:
            run(*taps, kind="refuses_taps", **keys)
        assert (seen.value.kind, seen.value.phase) == ("build_error", "build")

    def test_too_many_take_the_memory(self, run: Runner) -> None:
        assert np.array_equal(run("q", kind="out_of_memory", limit=1)["y"], Y)
        with pytest.raises(EngineFailure) as seen:
            run("q", "r", kind="out_of_memory", limit=1)
        assert seen.value.kind == "out_of_memory"


class TestForm:
    def test_of_a_dimension_too_many(self, run: Runner) -> None:
        assert np.array_equal(run(kind="wrong_shape", nodes="clip")["y"], Y[None])

    @pytest.mark.parametrize("axis", [0, 1])
    def test_of_a_row_too_many(self, run: Runner, axis: int) -> None:
        seen = run(kind="wrong_shape", nodes="last", how="row", axis=axis)["y"]
        assert np.array_equal(seen, np.concatenate([Y, Y.take([0], axis)], axis))

    @pytest.mark.parametrize("node", ["last", "clip"])
    def test_of_another_type(self, run: Runner, node: str) -> None:
        seen = run("r", kind="wrong_dtype", nodes=node, to="float16")
        assert seen["y" if node == "last" else "r"].dtype == np.float16
        assert seen["r" if node == "last" else "y"].dtype == np.float32


EVENTS = [
    ({"kind": "crash"}, "crash", "SIGSEGV"),
    ({"kind": "crash", "signal": "SIGABRT"}, "crash", "SIGABRT"),
    ({"kind": "crash", "signal": "SIGFPE"}, "crash", "SIGFPE"),
    ({"kind": "crash", "signal": "SIGKILL"}, "out_of_memory", "SIGKILL"),
    ({"kind": "crash", "exit": 3}, "crash", "code 3"),
    ({"kind": "out_of_memory"}, "out_of_memory", "MemoryError"),
]


class TestEvents:
    @pytest.mark.parametrize("phase", ["build", "run"])
    @pytest.mark.parametrize(("fault", "kind", "word"), EVENTS)
    def test_end_a_phase(
        self, run: Runner, fault: dict[str, Any], kind: str, word: str, phase: str
    ) -> None:
        with pytest.raises(EngineFailure, match=word) as seen:
            run(nodes="clip", phase=phase, **fault)
        assert (seen.value.kind, seen.value.phase) == (kind, phase)

    @pytest.mark.parametrize("phase", ["build", "run"])
    def test_raise_a_message_with_the_node(self, run: Runner, phase: str) -> None:
        with pytest.raises(EngineFailure, match=r"RuntimeError: no 'clip' here") as seen:
            run(kind=f"{phase}_error", nodes="clip", message="no '{node}' here")
        assert (seen.value.kind, seen.value.phase) == (f"{phase}_error", phase)

    def test_hang(self, planted: Maker, tmp_path: Path) -> None:
        host = planted({"kind": "hang", "nodes": "clip", "phase": "run"})
        build = host.build(write(tmp_path))
        with pytest.raises(EngineFailure) as seen:
            build.run({"x": X}, timeout=0.3)
        assert seen.value.kind == "timeout"

    @pytest.mark.parametrize("kind", ["crash", "build_error", "run_error", "hang"])
    def test_need_their_nodes(self, run: Runner, kind: str) -> None:
        assert np.array_equal(run(kind=kind, nodes=["clip", "gone"])["y"], Y)

    def test_of_a_run_look_at_the_feeds(self, planted: Maker, tmp_path: Path) -> None:
        fault = {"kind": "run_error", "nodes": "clip", "when": {"input": "x", "above": 5}}
        build = planted(fault).build(write(tmp_path))
        build.run({"x": X})
        with pytest.raises(EngineFailure):
            build.run({"x": X + 3})


class TestConditions:
    @pytest.mark.parametrize("when", [{"above": 9.5}, {"input": "x", "above": 3.5}])
    def test_strike_some_samples_only(
        self, planted: Maker, tmp_path: Path, when: dict[str, Any]
    ) -> None:
        fault = {"kind": "value", "nodes": "clip", "scale": 2, "when": when}
        build = planted(fault).build(write(tmp_path))
        assert np.array_equal(build.run({"x": X})["y"], Y)
        other = X + 1
        assert np.array_equal(build.run({"x": other})["y"], 2 * other**2 + other)

    def test_on_a_tensor_that_was_cut_away_never_hold(self, planted: Maker, tmp_path: Path) -> None:
        when = {"input": "gone", "above": -1e30}
        build = planted({"kind": "value", "nodes": "clip", "when": when}).build(write(tmp_path))
        assert np.array_equal(build.run({"x": X})["y"], Y)

    @pytest.mark.parametrize(("level", "wrong"), [("basic", False), ("all", True)])
    def test_an_option_of_the_engine_cures(
        self, planted: Maker, tmp_path: Path, level: str, wrong: bool
    ) -> None:
        unless = {"graph_optimization_level": ["disable", "basic"]}
        fault = {"kind": "value", "nodes": "clip", "unless": unless}
        build = planted(fault, graph_optimization_level=level).build(write(tmp_path))
        assert np.array_equal(build.run({"x": X})["y"], Y) is not wrong


def wrongs(builds: list[Build]) -> list[bool]:
    return [not np.array_equal(build.run({"x": X})["y"], Y) for build in builds]


class TestFlaky:
    def test_builds_follow_a_sequence(self, planted: Maker, tmp_path: Path) -> None:
        fault = {"kind": "flaky_build", "nodes": "clip", "sequence": [True, False, False]}
        host, path = planted(fault), write(tmp_path)
        builds = [host.build(path) for _ in range(4)]
        assert wrongs(builds) == [True, False, False, True]
        assert wrongs(builds) == [True, False, False, True]

    def test_runs_follow_a_sequence(self, planted: Maker, tmp_path: Path) -> None:
        inner = {"kind": "element", "nodes": "last", "scale": 2}
        build = planted({"kind": "flaky_run", "of": inner, "sequence": [False, True]}).build(
            write(tmp_path)
        )
        assert wrongs([build] * 4) == [False, True, False, True]

    def test_two_flaky_faults_combine(self, planted: Maker, tmp_path: Path) -> None:
        one = {"kind": "flaky_run", "nodes": "last", "offset": 1, "sequence": [True, False]}
        two = {**one, "offset": 2, "sequence": [True, True, False, False]}
        build = planted(one, two).build(write(tmp_path))
        added = [(build.run({"x": X})["y"] - Y).max() for _ in range(4)]
        assert added == [3, 2, 1, 0]

    def test_a_seed_repeats_the_draw(self, planted: Maker, tmp_path: Path) -> None:
        fault = {"kind": "flaky_run", "nodes": "clip", "rate": 0.5, "seed": 1}
        path = write(tmp_path)
        seen = [wrongs([planted(fault).build(path)] * 12) for _ in range(2)]
        assert seen[0] == seen[1]
        assert len(set(seen[0])) == 2
        assert wrongs([planted({**fault, "seed": 2}).build(path)] * 12) != seen[0]

    def test_the_rate_is_kept(self) -> None:
        struck = sum(Flaky("run", rate=0.2, seed=5).strikes(each) for each in range(2000))
        assert 320 < struck < 480

    def test_a_crash_keeps_the_count_in_the_state_folder(
        self, planted: Maker, tmp_path: Path
    ) -> None:
        crash = {"kind": "crash", "nodes": "clip"}
        fault = {"kind": "flaky_build", "of": crash, "sequence": [True, False, True]}
        host, path = planted(fault, state=str(tmp_path / "state")), write(tmp_path)
        for strikes in fault["sequence"]:
            if not strikes:
                host.build(path)
                continue
            with pytest.raises(EngineFailure):
                host.build(path)

    def test_a_build_event_cannot_be_flaky_by_run(self) -> None:
        with pytest.raises(ValueError, match="during build"):
            parse({"kind": "flaky_run", "of": {"kind": "crash", "nodes": "a"}})


class TestModels:
    def test_nameless_nodes_go_by_their_first_output(self, planted: Maker, tmp_path: Path) -> None:
        text = CHAIN.replace("[clip] ", "").replace("[last] ", "")
        host = planted({"kind": "value", "nodes": "r", "scale": 2})
        assert np.array_equal(host.build(write(tmp_path, text)).run({"x": X})["y"], 2 * Q + X)

    def test_a_fault_travels_into_a_sub_model(self, planted: Maker, tmp_path: Path) -> None:
        path = write(tmp_path)
        part = tmp_path / "part.onnx"
        onnx.utils.extract_model(str(path), str(part), ["q"], ["r"])
        host = planted({"kind": "value", "nodes": "clip", "scale": 2})
        assert np.array_equal(host.build(part).run({"q": Q})["r"], 2 * Q)

    def test_a_sub_model_without_the_node_is_clean(self, planted: Maker, tmp_path: Path) -> None:
        path, part = write(tmp_path), tmp_path / "part.onnx"
        onnx.utils.extract_model(str(path), str(part), ["x"], ["q"])
        host = planted({"kind": "value", "nodes": "clip", "scale": 2})
        assert np.array_equal(host.build(part).run({"x": X})["q"], Q)

    def test_a_fault_without_its_node_is_told(self, planted: Maker, tmp_path: Path) -> None:
        path = write(tmp_path)
        lost = {"kind": "pattern", "nodes": "clip,gone"}
        said = planted({"kind": "value", "nodes": "clip"}, lost).build(path).said
        assert said == ("the planted fault 'pattern' is absent: the model has no node 'gone'",)
        assert planted({"kind": "value", "nodes": "clip"}).build(path).said == ()

    def test_unless_it_is_strict(self, planted: Maker, tmp_path: Path) -> None:
        host = planted({"kind": "value", "nodes": "gone"}, strict=True)
        with pytest.raises(EngineFailure, match="no node gone; the model has clip, last, square"):
            host.build(write(tmp_path))

    def test_weights_beside_the_model_are_found(self, planted: Maker, tmp_path: Path) -> None:
        text = CHAIN.replace("Relu(q)", "Mul(q, w)")
        model = parser.parse_model(text.replace("OPSET", "17"))
        weights = np.full((2, 3), 5, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        host = planted({"kind": "value", "nodes": "last", "scale": 2})
        assert np.array_equal(host.build(path).run({"x": X})["y"], 2 * (5 * Q + X))
        assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", "w.bin"}

    def test_another_output_of_a_node(self, planted: Maker, tmp_path: Path) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[2, 3] x) => (float[2, 1] a, float[2, 2] b)
            { sizes = Constant<value = int64[2] {1, 2}>()
              [split] a, b = Split<axis = 1>(x, sizes) }
        """
        host = planted({"kind": "value", "nodes": "split", "output": 1, "scale": 2})
        seen = host.build(write(tmp_path, text)).run({"x": X})
        assert np.array_equal(seen["a"], X[:, :1])
        assert np.array_equal(seen["b"], 2 * X[:, 1:])

    def test_an_output_that_is_not_there_is_named(self, planted: Maker, tmp_path: Path) -> None:
        host = planted({"kind": "value", "nodes": "clip", "output": 1})
        with pytest.raises(EngineFailure, match="'clip' has no output 1"):
            host.build(write(tmp_path))

    def test_a_node_inside_a_branch(self, planted: Maker, tmp_path: Path) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[2, 3] x, bool c) => (float[2, 3] y)
            { [branch] y = If (c) <
                then_branch = t () => (float[2, 3] a) { [inner] a = Neg(x) },
                else_branch = e () => (float[2, 3] b) { [other] b = Identity(x) } > }
        """
        build = planted({"kind": "value", "nodes": "inner", "scale": 2}).build(
            write(tmp_path, text)
        )
        assert np.array_equal(build.run({"x": X, "c": np.array(True)})["y"], -2 * X)
        assert np.array_equal(build.run({"x": X, "c": np.array(False)})["y"], X)

    def test_a_garbled_tap_spares_the_branches_that_read_it(
        self, planted: Maker, tmp_path: Path
    ) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[2, 3] x, bool c) => (float[2, 3] y)
            { [double] d = Add(x, x)
              [branch] y = If (c) <
                then_branch = t () => (float[2, 3] a) { [inner] a = Neg(d) },
                else_branch = e () => (float[2, 3] b) { [other] b = Identity(d) } > }
        """
        host = planted({"kind": "garbles_tap", "tensor": "d", "offset": 7})
        build = host.build(write(tmp_path, text, "d"), ["d"])
        seen = build.run({"x": X, "c": np.array(True)})
        assert np.array_equal(seen["d"], 2 * X + 7)
        assert np.array_equal(seen["y"], -2 * X)

    def test_untyped_tensors_after_a_foreign_operator(self) -> None:
        nodes = [
            helper.make_node("Foreign", ["x"], ["t"], "foreign", domain="far.away"),
            helper.make_node("Relu", ["t"], ["y"], "clip"),
        ]
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2]) for n in "xy"]
        graph = helper.make_graph(nodes, "g", values[:1], values[1:])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("far.away", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        rewriter = Rewriter(model)
        rewriter.apply(parse({"kind": "value", "nodes": "foreign"}))
        kinds = [node.op_type for node in model.graph.node]
        assert kinds[-2:] == ["CastLike", "Relu"]
        assert model.graph.node[-2].output == ["t"]


class TestDeclarations:
    @pytest.mark.parametrize(
        ("raw", "text"),
        [
            ({"kind": "gremlin", "nodes": "a"}, "no fault is called 'gremlin'; kinds: value"),
            ({"kind": "value", "nodes": "a", "colour": 1}, "no key colour; it takes error"),
            ({"kind": "value"}, "names no nodes"),
            ({"kind": "fusion", "nodes": "a"}, "two nodes"),
            ({"kind": "garbles_tap"}, "names no tensor"),
            ({"kind": "value", "nodes": "a", "when": {"below": 1}}, "needs 'above'"),
            ({"kind": "value", "nodes": "a", "when": 3}, "when .* is 3; it takes a mapping"),
            ({"kind": "value", "nodes": "a", "unless": "basic"}, "unless .* it takes a mapping"),
            ({"kind": "value", "nodes": "a", "tactic": "fft"}, "tactic .*'fft'; .*: {\"Conv_7\""),
            ({"kind": "flaky_run", "of": "value"}, "of of .*'value'; it takes a mapping"),
            (
                {"kind": "flaky_run", "of": {"kind": "flaky_run", "nodes": "a"}},
                "wraps another flaky",
            ),
        ],
    )
    def test_that_make_no_sense_say_why(self, raw: dict[str, Any], text: str) -> None:
        with pytest.raises(ValueError, match=text):
            parse(raw)

    def test_reach_the_user_as_a_spec_error(self, planted: Maker, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="gremlin"):
            planted({"kind": "gremlin"}).build(write(tmp_path))

    def test_of_the_inner_engine_too(self, planted: Maker, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="unknown option 'colour'"):
            planted(colour="red").build(write(tmp_path))

    def test_are_described(self, planted: Maker) -> None:
        fault = {"kind": "value", "nodes": "clip"}
        said = planted(fault, kind="lost_nan", nodes="last").describe()
        assert said["name"] == "planted on ort"
        assert said["faults"] == [fault, {"kind": "lost_nan", "nodes": "last"}]
        assert "onnxruntime" in said["versions"]

    def test_every_kind_stands_in_the_table(self) -> None:
        for kind in KINDS:
            assert f"\n    {kind} " in str(Planted.__doc__)

    def test_two_equal_ones_are_two(self) -> None:
        raw = {"kind": "value", "nodes": "a"}
        faults: set[Fault] = {parse(raw), parse(raw)}
        assert len(faults) == 2

"""TensorRT-RTX for real: it parses and builds on any machine, and runs on none without a GPU.

Nothing here runs a plan.  What runs one is driven by a scripted stand-in, in
``test_tensorrt_runtime.py``.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from debugtaps import (
    Build,
    EngineFailure,
    EnvironmentFailure,
    Graph,
    Host,
    SpecError,
    load_graph,
    promote,
    resolve,
    save,
)
from debugtaps.engines.trt import plan as trt_plan
from debugtaps.testing import CHECKS, check
from support.build import Built
from support.zoo import (
    attention,
    branching,
    chain_cnn,
    local_function,
    missing_names,
    recurrent,
    residual,
    to_narrow,
    transformer,
)
from tapsect import bisect
from tapsect.finding import Finding
from tapsect.localize.kernels import Kernels

trt = pytest.importorskip("tensorrt_rtx")
pytestmark = [pytest.mark.tensorrt_rtx, pytest.mark.engines]

BUILD_ONLY = {"build_only": True, "compute_capabilities": "SM120"}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("tensorrt-rtx", BUILD_ONLY), timeout=120.0) as made:
        yield made


def chain(middle: list[onnx.NodeProto], *constants: onnx.TensorProto, n: int = 300) -> Built:
    """Returns n nodes in a row, MatMul, Relu and Add in turn, with others in the middle."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], list(constants), "x"
    for i in range(n):
        if i == n // 2:
            nodes += middle
            value = middle[-1].output[0]
        out = f"t{i}"
        if i % 3 == 0:
            drawn = rng.standard_normal((16, 16)).astype(np.float32) / 4
            weights.append(numpy_helper.from_array(drawn, f"w{i}"))
            nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [out], name=f"n{i}"))
        elif i % 3 == 1:
            nodes.append(helper.make_node("Relu", [value], [out], name=f"n{i}"))
        else:
            nodes.append(helper.make_node("Add", [value, "x"], [out], name=f"n{i}"))
        value = out
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, [4, 16])
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Built(model, {"x": rng.standard_normal((4, 16)).astype(np.float32)})


def middle_value(n: int = 300) -> str:
    return f"t{n // 2 - 1}"


def look(built: Built, folder: Path, **options: object) -> Finding:
    model, _ = built.save(folder)
    return bisect(
        model, inputs=[built.feeds], engine="tensorrt-rtx", out=folder / "out",
        engine_options={**BUILD_ONLY, **options},
    )  # fmt: skip


def plan_of(build: Build, folder: Path) -> list[trt_plan.Kernel]:
    folder.mkdir(exist_ok=True)
    build.save(folder)
    kernels = json.loads((folder / "engine.json").read_text(encoding="utf-8"))["kernels"]
    return [trt_plan.Kernel(k[0], k[1], frozenset(k[2]), k[3], *map(tuple, k[4:])) for k in kernels]


# ------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("name", list(CHECKS))
def test_it_conforms_as_far_as_it_builds(name: str) -> None:
    result = check(name, "tensorrt-rtx", BUILD_ONLY)
    assert result.status in ("passed", "noted"), result.detail


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_no_gpu_is_said_before_anything_is_built() -> None:
    with (
        pytest.raises(EnvironmentFailure, match="no GPU.*build_only=true"),
        Host(resolve("tensorrt-rtx")) as host,
    ):
        host.describe()


def test_what_it_says_of_itself(host: Host) -> None:
    told = host.describe()
    assert told["versions"]["tensorrt_rtx"] == trt.__version__
    assert told["precision"] == "strongly typed, TF32 allowed"
    assert told["reproduce"] == "tensorrt_rtx --onnx=model.onnx --computeCapabilities=120"
    assert host.builds_only
    assert host.knobs()["tf32"] == [False]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"no_such_setting": 1}, "no_such_setting"),
        ({"flags": "FP16"}, "STRICT_NANS"),
        ({"compute_capabilities": "SM42"}, "SM120"),
        ({"plugins": ["lib.so"]}, "plugins"),
        ({"strongly_typed": False}, "TensorRT 10"),
        ({"layer_precisions": {"n0": "fp32"}}, "layer_precisions"),
        ({"timing_cache": "no/such/file"}, "no/such/file"),
        ({"builder_optimization_level": "high"}, "builder_optimization_level"),
        ({"trtexec": "trtexec --whatever"}, "whatever"),
        ({"tactics": {"0x" + "a" * 32: "0x1"}}, "times no"),
    ],
)
def test_an_option_that_cannot_be_is_the_users_matter(
    options: dict[str, object], word: str, tmp_path: Path
) -> None:
    model, _ = chain([helper.make_node("Neg", [middle_value(3)], ["m"])], n=3).save(tmp_path)
    with (
        pytest.raises(SpecError, match=word),
        Host(resolve("tensorrt-rtx", {"build_only": True, **options})) as host,
    ):
        host.build(model)


def test_a_trtexec_line_is_taken_as_options() -> None:
    line = "trtexec --onnx=m.onnx --noTF32 --builderOptimizationLevel=1"
    with Host(resolve("tensorrt-rtx", {"build_only": True, "trtexec": line})) as host:
        told = host.describe()
    assert told["precision"] == "strongly typed, TF32 off"
    assert told["reproduce"].endswith("--noTF32 --builderOptimizationLevel=1")


# ------------------------------------------------------------- failures, to the smallest model


def test_an_unsupported_operator_in_the_middle_of_300_nodes(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([1, 8, 8]), "shape")
    found = look(
        chain(
            [
                helper.make_node("Reshape", [middle_value(), "shape"], ["square"], name="square"),
                helper.make_node("Det", ["square"], ["det"], name="the determinant"),
                helper.make_node("Mul", [middle_value(), "det"], ["scaled"], name="scale"),
            ],
            shape,
        ),
        tmp_path,
    )
    assert (found.status, found.cause, found.failure) == ("diverges", "unsupported", "build_error")
    assert found.culprit_nodes == ("the determinant",)
    assert found.minimal is not None
    assert found.minimal.nodes == ("the determinant",)
    assert found.minimal.reproduced == found.minimal.of


def test_a_refusal_of_the_compiler_is_located(tmp_path: Path) -> None:
    half = [
        helper.make_node("Neg", [middle_value()], ["negative"], name="neg"),
    ]
    found = look(chain(half), tmp_path, compute_capabilities="SM75")
    assert (found.cause, found.failure) == ("unsupported", "build_error")
    assert found.minimal is not None
    assert len(found.minimal.nodes) == 1
    assert "FP32 GEMM is not supported" in found.said


def test_a_clash_of_types_is_located_though_no_reference_runs_it(tmp_path: Path) -> None:
    clash = [
        helper.make_node("Cast", [middle_value()], ["low"], name="lower", to=TensorProto.FLOAT16),
        helper.make_node("Add", [middle_value(), "low"], ["sum"], name="clash"),
    ]
    found = look(chain(clash), tmp_path)
    assert (found.status, found.failure) == ("diverges", "build_error")
    assert found.culprit_nodes == ("clash",)
    assert "must have same input types" in found.said


def test_a_custom_operator_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    foo = [helper.make_node("Foo", [middle_value()], ["foo"], name="my foo", domain="mine")]
    found = look(chain(foo), tmp_path)
    assert (found.cause, found.culprit_nodes) == ("unsupported", ("my foo",))
    assert "takes no plugins" in found.said


def test_a_model_that_builds_agrees_and_says_that_nothing_ran(tmp_path: Path) -> None:
    found = look(chain([helper.make_node("Neg", [middle_value(9)], ["m"])], n=9), tmp_path)
    assert (found.status, found.exit_code) == ("agrees", 0)
    assert "nothing was run" in found.message


# ------------------------------------------------------------------------------------- builds


def test_weights_beside_the_model_are_found(host: Host, tmp_path: Path) -> None:
    built = chain([helper.make_node("Neg", [middle_value(9)], ["m"])], n=9)
    model, _ = built.save(tmp_path, external=True)
    host.build(model).close()


def test_equal_builds_are_equal_bytes(host: Host, tmp_path: Path) -> None:
    model, _ = residual().save(tmp_path)
    plans = []
    for name in ("one", "two"):
        plan_of(host.build(model), tmp_path / name)
        plans.append((tmp_path / name / "engine.plan").read_bytes())
    with Host(resolve("tensorrt-rtx", BUILD_ONLY), timeout=120.0) as other:
        plan_of(other.build(model), tmp_path / "three")
    plans.append((tmp_path / "three" / "engine.plan").read_bytes())
    assert plans[0]
    assert plans[0] == plans[1] == plans[2]


def test_a_saved_plan_tells_what_it_told(host: Host, tmp_path: Path) -> None:
    model, _ = residual().save(tmp_path)
    build = host.build(model)
    plan_of(build, tmp_path / "saved")
    again = host.load(tmp_path / "saved")
    assert build.fusions() == again.fusions()
    assert build.precisions() == again.precisions()
    about = tmp_path / "saved" / "engine.json"
    about.write_text(about.read_text().replace(trt.__version__, "1.0.0"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"made by tensorrt_rtx 1\.0\.0"):
        host.load(tmp_path / "saved")


def test_odd_node_names_come_back_from_the_plan(host: Host, tmp_path: Path) -> None:
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        odd (float[1, 4] x) => (float[1, 4] y)
        { [a] a = Softmax (x)  b = Exp (a)  [c] y = Softmax (b) }
        """
    )
    names = ["we]ird | n (X)", "", "\u00fcber:den/wolken.1"]
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    path = save(model, tmp_path / "odd.onnx")
    told = frozenset(itertools.chain(*host.build(path).fusions()))
    assert told == {"we]ird | n (X)", "b", "\u00fcber:den/wolken.1"}
    assert told == {node.name for node in load_graph(path, tmp_path).nodes}


def branches() -> Built:
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        either (float[2, 8] x, bool c) => (float[2, 8] y)
        {
            [before] a = Softmax (x)
            [choice] b = If (c) <
                then_branch = t () => (float[2, 8] p) { [inner] p = Exp (a) },
                else_branch = e () => (float[2, 8] q) { [other] q = Neg (a) }>
            [after] y = Softmax (b)
        }
        """
    )
    return Built(model, {"x": np.ones((2, 8), np.float32), "c": np.array(True)})


def test_an_error_inside_a_body_names_the_node_that_holds_it(host: Host, tmp_path: Path) -> None:
    built = branches()
    then = built.model.graph.node[1].attribute[0].g
    then.node[0].op_type = "Det"
    model, _ = built.save(tmp_path)
    with pytest.raises(EngineFailure, match="node 'choice'"):
        host.build(model)


@pytest.mark.parametrize("network", [branches, local_function, recurrent, missing_names])
def test_kernels_name_nodes_of_the_model_whatever_bodies_they_come_from(
    host: Host, tmp_path: Path, network: Callable[[], Built]
) -> None:
    built = network()
    model, _ = built.save(tmp_path)
    build = host.build(model, samples=[built.feeds])
    known = {node.name for node in load_graph(model, tmp_path).nodes}
    told = frozenset(itertools.chain(*build.fusions()))
    assert told
    assert told <= known | {tensor.name for tensor in built.model.graph.initializer}


def test_what_only_the_process_prints_is_in_the_tail(host: Host, tmp_path: Path) -> None:
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        text (string[2] x) => (string[2] y) { [same] y = Identity (x) }
        """
    )
    with pytest.raises(EngineFailure) as seen:
        host.build(save(model, tmp_path / "text.onnx"))
    assert "STRING" in seen.value.tail


def dynamic(folder: Path) -> Path:
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        rows (float[n, 16] x) => (float[n, 16] y) { [soft] y = Softmax (x) }
        """
    )
    return save(model, folder / "rows.onnx")


def test_profiles_come_from_the_data(tmp_path: Path) -> None:
    samples = [{"x": np.zeros((n, 16), np.float32)} for n in (2, 8)]
    with Host(resolve("tensorrt-rtx", BUILD_ONLY)) as host:
        build = host.build(dynamic(tmp_path), samples=samples)
        line = host.describe()["reproduce"]
    assert any("profile of 'x' is wide" in note for note in build.said)
    assert "--minShapes=x:2x16 --optShapes=x:2x16 --maxShapes=x:8x16" in line


def test_a_dynamic_model_without_data_asks_for_profiles(host: Host, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"profiles=\[\{x: \[min, opt, max\]\}\]"):
        host.build(dynamic(tmp_path))


def test_data_outside_the_profiles_are_told_before_the_build(tmp_path: Path) -> None:
    options = {**BUILD_ONLY, "profiles": [{"x": [[1, 16], [2, 16], [4, 16]]}]}
    sample = {"x": np.zeros((8, 16), np.float32)}
    with Host(resolve("tensorrt-rtx", options)) as host:
        host.build(dynamic(tmp_path), samples=[{"x": sample["x"][:3]}]).close()
        with pytest.raises(SpecError, match=r"shape \[8, 16\], outside \[1, 16\] to \[4, 16\]"):
            host.build(dynamic(tmp_path), samples=[sample])


def test_a_build_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    model, _ = transformer().save(tmp_path)
    with (
        pytest.raises(EngineFailure, match=r"time_limit=0\.01") as seen,
        Host(resolve("tensorrt-rtx", {**BUILD_ONLY, "time_limit": 0.01})) as host,
    ):
        host.build(model)
    assert seen.value.kind == "timeout"


def test_a_missing_gpu_is_the_reason_when_a_build_needs_one(tmp_path: Path) -> None:
    model, _ = residual().save(tmp_path)
    with (
        pytest.raises(EngineFailure, match="needs a GPU"),
        Host(resolve("tensorrt-rtx", {"build_only": True, "compute_capabilities": "CURRENT"})) as h,
    ):
        h.build(model)


def test_one_process_outlives_many_failures(host: Host, tmp_path: Path) -> None:
    """The logger that was first used must live for ever, or the next message kills the process."""
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not a model")
    good, _ = residual().save(tmp_path)
    before = host.pid
    for _ in range(3):
        with pytest.raises(EngineFailure, match="MODEL_DESERIALIZE_FAILED"):
            host.build(bad)
        host.build(good).close()
    assert host.pid == before


def test_a_timing_cache_is_written_whole_and_read_again(tmp_path: Path) -> None:
    model, _ = residual().save(tmp_path)
    cache = tmp_path / "timing.cache"
    both = {**BUILD_ONLY, "timing_cache": str(cache), "save_timing_cache": str(cache)}
    with Host(resolve("tensorrt-rtx", both), timeout=120.0) as host:
        host.build(model).close()
        assert cache.stat().st_size > 0
        host.build(model).close()
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []


# --------------------------------------------------------------------------- taps, precisions


def borders(build: Build, model: Path, folder: Path) -> tuple[Graph, list[str]]:
    """Returns the model and the tensors that its kernels, as the build tells them, pass on."""
    graph = load_graph(model, folder)
    kernels = Kernels(graph, build.fusions())
    placed = frozenset().union(*build.fusions())
    return graph, [
        tensor for node in graph.nodes for tensor in node.writes
        if node.name in placed and kernels.border(tensor) and tensor not in graph.outputs
        and all(graph.nodes[reader].name in placed for reader in graph.consumers.get(tensor, ()))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("network", "kind"),
    [(chain_cnn, "fp32"), (chain_cnn, "fp16"), (branching, "fp32"), (attention, "fp32"),
     (attention, "fp16")],
)  # fmt: skip
def test_border_taps_leave_the_kernels_as_they_are(
    host: Host, tmp_path: Path, network: Callable[[], Built], kind: str
) -> None:
    built = to_narrow(network(), "fp16") if kind == "fp16" else network()
    model, _ = built.save(tmp_path)
    untapped = host.build(model)
    graph, taps = borders(untapped, model, tmp_path)
    assert len(taps) >= 5
    tapped = host.build(save(promote(graph, taps), tmp_path / "tapped.onnx"), taps)
    before = trt_plan.core(plan_of(untapped, tmp_path / "untapped"))
    assert trt_plan.core(plan_of(tapped, tmp_path / "tapped")) == before


def test_a_border_tap_that_changes_kernels_all_the_same_is_seen(host: Host, tmp_path: Path) -> None:
    """One product for query, key and value: a tap on one of them takes it out of the three."""
    model, _ = transformer().save(tmp_path)
    untapped = host.build(model)
    graph, taps = borders(untapped, model, tmp_path)
    query = next(tensor for tensor in taps if "query/MatMul" in tensor)
    tapped = host.build(save(promote(graph, [query]), tmp_path / "tapped.onnx"), [query])
    assert not Kernels(graph, untapped.fusions()).alike(Kernels(graph, tapped.fusions()))


def test_a_tap_inside_a_kernel_changes_the_plan(host: Host, tmp_path: Path) -> None:
    model, _ = residual().save(tmp_path)
    graph = load_graph(model, tmp_path)
    untapped = host.build(model)
    kernels = Kernels(graph, untapped.fusions())
    inside = next(
        t for n in graph.nodes for t in n.writes
        if graph.consumers.get(t) and not kernels.border(t)
    )  # fmt: skip
    tapped = host.build(save(promote(graph, [inside]), tmp_path / "tapped.onnx"), [inside])
    assert not kernels.alike(Kernels(graph, tapped.fusions()))


def island(folder: Path, *, relu: bool) -> Path:
    """An fp32 product between half tensors, whose weights no half holds."""
    middle, last = ("[relu] r = Relu (z)", "r") if relu else ("", "z")
    model = parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["" : 17]>
        island (float16[8, 64] x) => (float16[8, 64] y)
        {{ [up] f = Cast <to = 1> (x) [product] z = MatMul (f, w) {middle}
          [down] y = Cast <to = 10> ({last}) }}
        """
    )
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) * 1e6
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return save(model, folder / "island.onnx")


def test_a_collapsed_fp32_island_is_told_and_a_kept_one_is_not(host: Host, tmp_path: Path) -> None:
    collapsed = host.build(island(tmp_path, relu=False))
    assert collapsed.said == (
        "node 'product' was to compute in f32, and the plan computes it in f16",
    )
    assert collapsed.precisions()["product"] == "f16"
    kept = host.build(island(tmp_path, relu=True))
    assert kept.said == ()
    assert kept.precisions()["product"] == "tf32"


def test_the_loss_is_in_the_report(tmp_path: Path) -> None:
    model = island(tmp_path, relu=False)
    feeds = {"x": np.ones((8, 64), np.float16)}
    found = bisect(
        model, inputs=[feeds], engine="tensorrt-rtx", engine_options=BUILD_ONLY,
        out=tmp_path / "out",
    )  # fmt: skip
    assert any("'product' was to compute in f32" in note for note in found.notes)


def test_it_builds_in_an_interpreter_without_this_project(tmp_path: Path) -> None:
    """The worker lends the engine the files beside it where the project is not installed."""
    import os
    import subprocess
    import sys

    from debugtaps.engines import worker

    model, _ = residual().save(tmp_path)
    code = (
        "import sys, importlib.util as u\n"
        "sys.path[:] = [p for p in sys.path if not p.endswith(('/taps', '/bisect'))]\n"
        f"s = u.spec_from_file_location('w', {worker.__file__!r})\n"
        "w = u.module_from_spec(s); s.loader.exec_module(w)\n"
        f"c = w.find_class('builtin', {resolve('tensorrt-rtx').target[1]!r}, 'TensorRtRtxEngine')\n"
        "from pathlib import Path\n"
        f"print(len(c(build_only=True).build(Path({str(model)!r})).fusions()))\n"
        "assert not hasattr(sys.modules['debugtaps'], 'tap')\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False,
        cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 3

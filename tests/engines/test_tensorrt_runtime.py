"""The runtime half of TensorRT on a scripted stand-in: nothing here has run on a GPU.

All of the adapter is real; ``tensorrt`` and ``cuda`` are acted (``support/standin``).  Each test
runs the engine in its worker process, as every command does.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from debugtaps import EngineFailure, Host, SpecError, resolve, save
from debugtaps.testing import conformance
from support import standin
from tapsect import bisect
from tapsect.finding import Finding

ENGINE = f"{standin.FOLDER / 'standin_engine.py'}:StandIn"

NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 8] x) => (float[n, 8] y)
{ [first] a = MatMul (x, w)  [act] b = Relu (a)  [second] c = MatMul (b, w)  [last] y = Add (c, x) }
"""
Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    def put(**given: object) -> None:
        monkeypatch.setenv("STANDIN", json.dumps(given))

    put()
    return put


@pytest.fixture
def model(tmp_path: Path) -> Path:
    parsed = parser.parse_model(NET)
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 3
    parsed.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return save(parsed, tmp_path / "net.onnx")


FEEDS = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}


@contextmanager
def hosted(**options: Any) -> Iterator[Host]:
    with Host(resolve(ENGINE, options), timeout=30.0) as host:
        yield host


def truth(model: Path) -> np.ndarray[Any, Any]:
    w = numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    x = FEEDS["x"]
    return np.asarray(np.maximum(x @ w, 0) @ w + x)


def look(model: Path, folder: Path, **options: Any) -> Finding:
    return bisect(
        model, inputs=[FEEDS], engine=ENGINE, engine_options=options, out=folder / "out", timeout=20
    )


def test_it_conforms(script: Script) -> None:
    failed = [each for each in conformance(ENGINE) if each.status == "failed"]
    assert failed == []


def test_it_computes_what_the_model_says(model: Path, script: Script) -> None:
    with hosted() as host:
        build = host.build(model, samples=[FEEDS])
        np.testing.assert_allclose(build.run(FEEDS)["y"], truth(model), rtol=1e-5, atol=1e-5)


def test_what_no_kernel_writes_is_poison(model: Path, script: Script) -> None:
    script(silent=["y"])
    with hosted() as host:
        assert np.isnan(host.build(model, samples=[FEEDS]).run(FEEDS)["y"]).all()


def test_a_correct_build_agrees(model: Path, script: Script, tmp_path: Path) -> None:
    assert look(model, tmp_path, tf32=False).status == "agrees"


def test_a_wrong_kernel_is_found_with_its_fusion_and_a_reproduce_line(
    model: Path, script: Script, tmp_path: Path
) -> None:
    script(choose={"second": [2]}, bad={"2": 1.1}, fuse=[["first", "act"]])
    found = look(model, tmp_path, tf32=False)
    assert (found.status, found.cause) == ("diverges", "engine_defect")
    assert found.culprit_nodes == ("second",)
    assert found.first_divergence is not None
    assert found.first_divergence.kernel == "second (t1)"
    assert "--noTF32" in found.engine["describe"]["reproduce"]
    assert "--optShapes=b:1x1" in found.engine["describe"]["reproduce"]


@pytest.mark.slow
def test_builds_that_choose_another_tactic_are_flaky(
    model: Path, script: Script, tmp_path: Path
) -> None:
    script(choose={"second": [2, 1]}, bad={"2": 1.1}, builds=str(tmp_path / "builds"))
    assert look(model, tmp_path, tf32=False).cause == "flaky_build"


def test_tactics_are_told_and_forced_through_the_editable_cache(
    model: Path, script: Script
) -> None:
    script(choose={"first": [1], "second": [1]}, bad={"2": 1.5})
    with hosted(editable_timing_cache=True) as host:
        told = host.build(model, samples=[FEEDS]).tactics()
    assert sorted(told.values()) == ["0x1 kernel_good", "0x1 kernel_good"]
    key = next(k for k in told if int(k, 16) == int.from_bytes(b"second", "big"))
    with hosted(tactics={key: "0x2 kernel_bad"}) as host:
        build = host.build(model, samples=[FEEDS])
        assert build.tactics()[key] == "0x2 kernel_bad"
        assert not np.allclose(build.run(FEEDS)["y"], truth(model))


@pytest.mark.parametrize(
    ("tactics", "word"),
    [
        ({"0x" + "9" * 32: "0x1"}, "times no"),
        ({"KEY": "0x7"}, "does not take 0x7"),
        ({"KEY": "kernel_good"}, "begin with a tactic"),
    ],
)
def test_a_tactic_that_cannot_be_forced_is_the_users_matter(
    model: Path, script: Script, tactics: dict[str, str], word: str
) -> None:
    script(choose={"second": [1]})
    key = f"0x{int.from_bytes(b'second', 'big'):032x}"
    given = {each.replace("KEY", key): choice for each, choice in tactics.items()}
    with pytest.raises(SpecError, match=word), hosted(tactics=given) as host:
        host.build(model, samples=[FEEDS])


def test_debug_tensors_are_heard_without_an_output_of_their_own(
    model: Path, script: Script
) -> None:
    with hosted(tap_mode="debug") as host:
        assert host.promotes_taps
        found = host.build(model, ["a", "b"], samples=[FEEDS]).run(FEEDS)
    assert sorted(found) == ["a", "b", "y"]
    np.testing.assert_array_equal(found["b"], np.maximum(found["a"], 0))


def test_debug_tensors_that_never_arrive_are_missing_not_invented(
    model: Path, script: Script
) -> None:
    script(deaf=True)
    with hosted(tap_mode="debug") as host:
        assert list(host.build(model, ["a"], samples=[FEEDS]).run(FEEDS)) == ["y"]


def test_a_debug_tap_on_nothing_is_refused(model: Path, script: Script) -> None:
    with pytest.raises(EngineFailure, match="not tappable"), hosted(tap_mode="debug") as host:
        host.build(model, ["nowhere"], samples=[FEEDS])


@pytest.mark.parametrize(
    ("script_", "kind", "phase", "text"),
    [
        ({"die": "build"}, "crash", "build", "SIGABRT"),
        ({"die": "run"}, "crash", "run", "SIGABRT"),
        ({"fail": "Error Code 10: Internal Error (Could not find any implementation for node "
                  "{ForeignNode[first...last]}.)"}, "build_error", "build", "'first', 'last'"),
        ({"cuda_error": 700}, "run_error", "run", "CUDA error 700"),
        ({"memory": 10}, "out_of_memory", "run", "out of memory on the GPU"),
    ],
)  # fmt: skip
def test_failures_have_their_kind(
    model: Path, script: Script, script_: dict[str, Any], kind: str, phase: str, text: str
) -> None:
    script(**script_)
    with pytest.raises(EngineFailure, match=text) as seen, hosted() as host:
        host.build(model, samples=[FEEDS]).run(FEEDS)
    assert (seen.value.kind, seen.value.phase) == (kind, phase)


def test_a_process_with_a_broken_device_is_left(model: Path, script: Script) -> None:
    script(cuda_error=700)
    with hosted() as host:
        build, before = host.build(model, samples=[FEEDS]), host.pid
        with pytest.raises(EngineFailure, match="700"):
            build.run(FEEDS)
        script()
        again = host.build(model, samples=[FEEDS])
        assert host.pid != before
        np.testing.assert_allclose(again.run(FEEDS)["y"], truth(model), rtol=1e-5, atol=1e-5)


def test_a_hang_is_ended(model: Path, script: Script) -> None:
    script(hang="run")
    with hosted() as host:
        build = host.build(model, samples=[FEEDS])
        with pytest.raises(EngineFailure) as seen:
            build.run(FEEDS, timeout=0.5)
    assert seen.value.kind == "timeout"


def test_the_profile_that_holds_the_data_is_chosen(model: Path, script: Script) -> None:
    profiles = [{"x": [[1, 8], [1, 8], [2, 8]]}, {"x": [[3, 8], [4, 8], [9, 8]]}]
    with hosted(profiles=profiles) as host:
        build = host.build(model, samples=[FEEDS])
        for rows in (1, 2, 4, 9):
            assert build.run({"x": np.zeros((rows, 8), np.float32)})["y"].shape == (rows, 8)
        with pytest.raises(SpecError, match=r"\[10, 8\], outside"):
            build.run({"x": np.zeros((10, 8), np.float32)})


def test_an_input_of_another_type_is_refused(model: Path, script: Script) -> None:
    with hosted() as host:
        build = host.build(model, samples=[FEEDS])
        with pytest.raises(EngineFailure, match="is int32, the plan reads float32"):
            build.run({"x": np.zeros((4, 8), np.int32)})
        with pytest.raises(EngineFailure, match="'x' was not fed"):
            build.run({})


def test_weak_types_hold_a_node_by_its_onnx_name(model: Path, script: Script) -> None:
    options = {"strongly_typed": False, "flags": ["FP16"], "layer_precisions": {"first": "fp32"}}
    with hosted(**options) as host:
        host.build(model, samples=[FEEDS]).close()
        assert host.describe()["precision"] == "weakly typed, TF32 allowed"
    with (
        pytest.raises(SpecError, match="no node 'nobody'"),
        hosted(**{**options, "layer_precisions": {"nobody": "fp32"}}) as host,
    ):
        host.build(model, samples=[FEEDS])


def test_implicit_int8_is_refused(model: Path, script: Script) -> None:
    with (
        pytest.raises(SpecError, match="amax/254"),
        hosted(strongly_typed=False, flags="INT8") as host,
    ):
        host.build(model, samples=[FEEDS])


def test_a_plugin_library_that_is_not_there_is_told_before_a_build(script: Script) -> None:
    with pytest.raises(SpecError, match="no/such/lib.so"), hosted(plugins="no/such/lib.so") as host:
        host.describe()


def test_a_gpu_that_is_not_served_is_no_finding(model: Path, script: Script) -> None:
    script(refuse="Error Code 6: API Usage Error (The engine cannot run on this GPU, which has …)")
    with pytest.raises(SpecError, match="does not serve this GPU"), hosted() as host:
        host.build(model, samples=[FEEDS])


def test_a_plan_file_runs_and_a_damaged_one_is_told(
    model: Path, script: Script, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    with hosted() as host:
        host.build(model, samples=[FEEDS]).save(saved)
        assert sorted(p.name for p in saved.iterdir()) == [
            "build.log", "engine.json", "engine.plan",
        ]  # fmt: skip
        for where in (saved, saved / "engine.plan"):
            found = host.load(where).run(FEEDS)["y"]
            np.testing.assert_allclose(found, truth(model), rtol=1e-5, atol=1e-5)
        assert host.load(saved / "engine.plan").fusions() == (frozenset({"told"}),)
        (saved / "engine.plan").write_bytes(b"damaged")
        with pytest.raises(EngineFailure, match=r"plan cannot be read: .*magicTag"):
            host.load(saved / "engine.plan")

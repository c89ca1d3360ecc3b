"""OpenVINO as engine: conformance, correct in f32, honest in bf16, published faults located."""

import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from onnx import parser

from debugtaps import EngineFailure, Host, SpecError, resolve, save
from debugtaps.testing import CHECKS, check
from support import published
from tapsect import bisect
from tapsect.finding import Finding

pytest.importorskip("openvino")
pytestmark = [pytest.mark.openvino, pytest.mark.engines]

F32 = {"INFERENCE_PRECISION_HINT": "f32"}
BF16 = {"INFERENCE_PRECISION_HINT": "bf16"}


def has_bf16() -> bool:
    """Returns whether this CPU computes bf16 itself."""
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "avx512_bf16" in cpu.read_text(encoding="ascii", errors="ignore")


needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="this CPU has no bf16 instructions")


def model(folder: Path, text: str) -> Path:
    return save(parser.parse_model(text), folder / "model.onnx")


def look(folder: Path, path: Path, feeds: dict[str, np.ndarray], **options: object) -> Finding:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    return bisect(path, inputs=[feeds], engine="openvino", engine_options=options, out=out)


KEPT = """
<ir_version: 8, opset_import: ["" : 17]>
convs (float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y) <float[8, 8, 3, 3] w, float[8] bias>
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w, bias)
    b = Tanh (a)
    y = Conv <pads = [1, 1, 1, 1]> (b, w, bias)
}
"""


def kept(folder: Path) -> Path:
    from onnx import numpy_helper

    rng = np.random.default_rng(0)
    proto = parser.parse_model(KEPT)
    for name, shape in (("w", (8, 8, 3, 3)), ("bias", (8,))):
        value = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    for node in proto.graph.node:
        node.name = f"part/{node.output[0]}"
    return save(proto, folder / "model.onnx")


def test_every_knob_is_a_property_that_it_takes(tmp_path: Path) -> None:
    path = kept(tmp_path)
    with Host(resolve("openvino", {})) as engine:
        knobs = dict(engine.knobs())
        assert knobs.pop("f32_nodes") == {"any": "nodes"}
        assert {"SNIPPETS_MODE", "INFERENCE_PRECISION_HINT"} <= set(knobs)
        for option, values in knobs.items():
            engine.turn({option: values[0]})
            engine.build(path).close()


@needs_bf16
def test_single_nodes_stay_in_f32_while_the_rest_is_bf16(tmp_path: Path) -> None:
    """A Conv with a bias is two operators there; both must stay."""
    path = kept(tmp_path)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype(np.float32)}
    answers = []
    names = ["part/a", "part/b", "part/y"]
    for kept_nodes in (None, [], "part/y", names):
        options = F32 if kept_nodes is None else {**BF16, "f32_nodes": kept_nodes}
        with Host(resolve("openvino", options)) as engine:
            answers.append(engine.build(path).run(feeds)["y"])
    right, coarse, one, every = answers
    worst = [np.abs(each - right).max() for each in (coarse, one, every)]
    assert worst[0] > worst[1] > worst[2]
    assert worst[2] < 1e-5 * np.abs(right).max()


MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[n, 16] x) => (float[n, 16] y)
<float[16, 16] w>
{
    a = MatMul (x, w)
    b = Relu (a)
    c = MatMul (b, w)
    y = Add (c, x)
}
"""


def mlp(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    import onnx
    from onnx import numpy_helper

    rng = np.random.default_rng(0)
    parsed = parser.parse_model(MLP)
    weights = rng.standard_normal((16, 16)).astype(np.float32) / 4
    del parsed.graph.initializer[:]
    parsed.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = folder / "mlp.onnx"
    onnx.save(parsed, path)
    return path, {"x": rng.standard_normal((5, 16)).astype(np.float32)}


KNOWN = {"takes int64": "the CPU plugin computes integers in 32 bits"}


@pytest.mark.parametrize("name", list(CHECKS))
def test_it_conforms(name: str) -> None:
    result = check(name, "openvino", F32)
    if name in KNOWN and result.status == "failed":
        pytest.xfail(KNOWN[name])
    assert result.status in ("passed", "noted"), result.detail


def test_an_unknown_property_is_refused_and_the_known_ones_are_named() -> None:
    with (
        pytest.raises(SpecError, match="INFERENCE_PRECISION_HINT"),
        Host(resolve("openvino", {"NO_SUCH_PROPERTY": 1})) as host,
    ):
        host.describe()


def test_an_unknown_device_is_refused_and_the_present_ones_are_named() -> None:
    with (
        pytest.raises(SpecError, match="CPU"),
        Host(resolve("openvino", {"device": "NPU.7"})) as host,
    ):
        host.describe()


def test_it_says_in_which_precision_it_computes(tmp_path: Path) -> None:
    path, _ = mlp(tmp_path)
    with Host(resolve("openvino", F32)) as host:
        assert host.unit_roundoff() == 2.0**-24
        build = host.build(path)
        assert set(build.precisions().values()) == {"f32"}
    with Host(resolve("openvino", BF16)) as host:
        assert host.unit_roundoff() == 2.0**-8


def test_a_saved_session_answers_as_before(tmp_path: Path) -> None:
    path, feeds = mlp(tmp_path)
    with Host(resolve("openvino", F32)) as host:
        build = host.build(path)
        before = build.run(feeds)
        (tmp_path / "saved").mkdir()
        build.save(tmp_path / "saved")
        after = host.load(tmp_path / "saved").run(feeds)
    assert {n: v.tobytes() for n, v in after.items()} == {n: v.tobytes() for n, v in before.items()}


def test_a_model_it_cannot_read_is_a_build_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not a model")
    with Host(resolve("openvino", F32)) as host, pytest.raises(EngineFailure) as seen:
        host.build(bad)
    assert seen.value.kind == "build_error"


def test_f32_agrees(tmp_path: Path) -> None:
    path, feeds = mlp(tmp_path)
    assert look(tmp_path, path, feeds, **F32).status == "agrees"


@needs_bf16
def test_bf16_is_a_precision_not_a_defect(tmp_path: Path) -> None:
    path, feeds = mlp(tmp_path)
    finding = look(tmp_path, path, feeds, **BF16)
    assert (finding.status, finding.cause) == ("diverges", "precision_limit")
    assert finding.culprit_nodes == ()
    assert finding.precision["effective"] == "bf16"
    assert finding.contributors


def test_a_relu_that_loses_nan_is_named(tmp_path: Path) -> None:
    path = model(
        tmp_path,
        """
        <ir_version: 8, opset_import: ["" : 17]>
        logs (float[4, 6] x) => (float[4, 6] y)
        {
            a = Tanh (x)
            b = Log (a)
            c = Relu (b)
            y = Neg (c)
        }
        """,
    )
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
    finding = look(tmp_path, path, {"x": x}, **F32)
    assert (finding.cause, finding.failure) == ("engine_defect", "nonfinite")
    assert finding.culprit_nodes == ("c",)
    assert finding.minimal is not None
    assert finding.minimal.nodes == ("c",)


def test_a_resize_that_breaks_ties_downwards_is_named(tmp_path: Path) -> None:
    path = model(
        tmp_path,
        """
        <ir_version: 8, opset_import: ["" : 17]>
        zoom (float[1, 1, 1, 20] x) => (float[1, 1, 1, 6] y)
        <int64[4] sizes = {1, 1, 1, 6}>
        {
            a = Tanh (x)
            b = Resize <mode = "nearest", nearest_mode = "round_prefer_ceil",
                        coordinate_transformation_mode = "half_pixel"> (a, , , sizes)
            y = Neg (b)
        }
        """,
    )
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(1, 1, 1, 20)
    finding = look(tmp_path, path, {"x": x}, **F32)
    if finding.status == "agrees":
        pytest.skip("this OpenVINO has the fault no more")
    assert finding.culprit_nodes == ("b",)


CONV = """
<ir_version: 8, opset_import: ["" : 17]>
pair (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
{
    [first] a = Conv <pads = [1, 1, 1, 1]> (x, w)
    [bend] b = Relu (a)
    [second] c = Conv <pads = [1, 1, 1, 1]> (b, w)
    [last] y = Sigmoid (c)
}
"""


def pair(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    from onnx import numpy_helper

    rng = np.random.default_rng(0)
    parsed = parser.parse_model(CONV)
    weights = rng.standard_normal((4, 4, 3, 3)).astype(np.float32) / 4
    parsed.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return save(parsed, folder / "pair.onnx"), {
        "x": rng.standard_normal((1, 4, 8, 8)).astype(np.float32)
    }


def test_what_it_fuses_is_not_tapped_and_is_named(tmp_path: Path) -> None:
    path, feeds = pair(tmp_path)
    with Host(resolve("openvino", F32)) as host:
        kernels = host.build(path).fusions()
    assert {"first", "bend"} in [group & {"first", "bend", "second"} for group in kernels]
    fault = {"kind": "fusion", "nodes": ["first", "bend"], "scale": 1.5}
    finding = bisect(
        path, inputs=[feeds], engine="planted", out=tmp_path / "out",
        engine_options={"inner": "openvino", "inner_options": F32, "faults": [fault]},
    )  # fmt: skip
    assert set(finding.culprit_nodes) == {"first", "bend"}
    assert finding.status == "diverges"


def test_taps_between_its_kernels_leave_them_as_they_are(tmp_path: Path) -> None:
    path, feeds = pair(tmp_path)
    fault = {"kind": "value", "nodes": ["last"], "scale": 1.5}
    finding = bisect(
        path, inputs=[feeds], engine="planted", out=tmp_path / "out",
        engine_options={"inner": "openvino", "inner_options": F32, "faults": [fault]},
    )  # fmt: skip
    assert finding.culprit_nodes == ("last",)
    [hidden] = [u for u in finding.unseen if u.why == "fused_away"]
    assert (hidden.tensors, hidden.kernel) == (("a",), "first+bend")
    taps = [step.why for step in finding.trail if step.step == "taps"]
    assert any("the kernels are as in the untapped build" in why for why in taps)


@needs_bf16
@pytest.mark.published
@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("standard_v3_3", "page"),  # its Softmax amplifies
        pytest.param("ch_PP-OCRv4_rec_infer", "noise", marks=pytest.mark.slow),  # sums in bf16
        pytest.param("ch_PP-OCRv4_det_infer", "noise", marks=pytest.mark.slow),  # saturates
    ],
)
def test_bf16_of_published_models_is_a_precision(
    name: str, scene: Literal["page", "noise"], tmp_path: Path
) -> None:
    built = published.built(name)
    if built is None:
        pytest.skip("the published model cannot be had")
    path, _ = built.save(tmp_path)
    feeds = published.sample(name, scene=scene)
    finding = bisect(
        path, inputs=[feeds], engine="openvino", engine_options=BF16, out=tmp_path / "out"
    )
    assert (finding.status, finding.cause) == ("diverges", "precision_limit"), finding.message
    assert finding.precision["effective"] == "bf16"
    assert finding.cost.reduce_builds == 0

"""torch, eager and through inductor, as engine and as reference, over ONNX files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import tapsect
from debugtaps.engines import registry
from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure, SpecError
from debugtaps.testing import CHECKS, conformance
from support.build import Built
from support.zoo import ZOO, to_narrow, transformer

pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("onnx2fx", reason="needs the extra torch")
pytestmark = [pytest.mark.torch, pytest.mark.engines]

Maker = Callable[..., Host]
FILES = Path(registry.__file__).parent


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Host]]:
    """One worker for each: to load torch takes seconds."""
    made = {spec: Host(resolve(spec, {}), timeout=300.0) for spec in ("torch", "inductor")}
    yield made
    for host in made.values():
        host.close()


@pytest.fixture
def engine(workers: dict[str, Host]) -> Maker:
    """Returns a worker whose engine is constructed anew."""

    def make(spec: str = "torch", **options: Any) -> Host:
        workers[spec].turn(options)
        return workers[spec]

    return make


def f32(values: list[float]) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def save(folder: Path, text: str, **weights: np.ndarray[Any, Any]) -> Path:
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


FUSED = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[64] x, float[64] z) => (float[64] y)
    { [twice] a = Add (x, x)
      [squash] b = Tanh (a)
      [scale] y = Mul (b, z) }
"""
BRANCH = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x) => (float[4] y)
    { [sum] s = ReduceSum <keepdims = 0> (x)
      [turn] n = Neg (s)
      [bound] shape = Cast <to = 7> (n)
      [one] l = Reshape (shape, flat)
      [wide] y = Expand (x, l) }
"""


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["torch", "inductor"])
def test_they_conform(spec: str) -> None:
    results = conformance(spec, timeout=300.0)
    assert [result.name for result in results] == list(CHECKS)
    assert [result for result in results if result.status != "passed"] == []


# What onnx2fx cannot translate, and what is random.
REFUSED = {
    "contrib", "control_flow", "omitted_optional", "qdq_int8", "strings", "unused_outputs",
}  # fmt: skip
APART = {"external_weights", "duplicate_names", "dropout_and_random"}


@pytest.mark.slow
def test_eager_answers_the_zoo_as_onnx_runtime_does(engine: Maker, tmp_path: Path) -> None:
    host = engine()
    for name in sorted(ZOO.keys() - APART):
        built = ZOO[name]()
        path, _ = built.save(tmp_path / name)
        if name in REFUSED:
            with pytest.raises(EngineFailure):
                host.build(path).run(built.feeds)
            continue
        agrees_with_onnx_runtime(path, built, host)


def agrees_with_onnx_runtime(path: Path, built: Built, host: Host) -> None:
    truth = onnxruntime.InferenceSession(path)
    names = {each.name for each in truth.get_inputs()}
    wanted = truth.run(None, {k: v for k, v in built.feeds.items() if k in names})
    with host.build(path) as build:
        seen = build.run(built.feeds)
    for out, value in zip(truth.get_outputs(), wanted, strict=True):
        if out.type.startswith("tensor"):
            assert seen[out.name].dtype == value.dtype, out.name
            np.testing.assert_allclose(seen[out.name], value, rtol=1e-4, atol=1e-5)


def test_tensors_whose_names_differ_in_marks_only_stay_apart(engine: Maker, tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y)
        { [first] m = Mul (x, w1)
          [second] y = Add (m, w2) }
    """
    weights = {"w1": f32([2, 2]), "w2": f32([1, 1])}
    model = onnx.load(save(tmp_path, text, **weights))
    for old, new in (("w1", "w.a"), ("w2", "w_a")):
        for each in model.graph.initializer:
            each.name = new if each.name == old else each.name
        for node in model.graph.node:
            node.input[:] = [new if n == old else n for n in node.input]
    onnx.save(model, tmp_path / "model.onnx")
    build = engine().build(tmp_path / "model.onnx")
    assert build.run({"x": f32([1, 5])})["y"].tolist() == [3, 11]


def test_a_fed_constant_is_refused_unless_it_is_the_same(engine: Maker, tmp_path: Path) -> None:
    weight = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { [last] y = Mul (x, w) }
    """
    model = onnx.load(save(tmp_path, text, w=f32([2, 2])))
    model.graph.input.append(weight)
    onnx.save(model, tmp_path / "model.onnx")
    build = engine().build(tmp_path / "model.onnx")
    x = np.ones(2, np.float32)
    assert build.run({"x": x, "w": f32([2, 2])})["y"].tolist() == [2, 2]
    with pytest.raises(EngineFailure, match="'w' is a constant"):
        build.run({"x": x, "w": x})


def test_an_operator_that_the_converter_gets_wrong_is_refused(
    engine: Maker, tmp_path: Path
) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y)
        <int64[4] s = {1, 1, 2, 2}>
        { [small] y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric">
                      (x, , , s) }
    """
    with pytest.raises(EngineFailure, match="'small': Resize with this mode is not supported"):
        engine().build(save(tmp_path, text))


def test_bfloat16_models_run_where_onnx_runtime_has_no_kernel(
    engine: Maker, tmp_path: Path
) -> None:
    built = to_narrow(transformer(), "bf16")
    path, _ = built.save(tmp_path)
    (seen,) = engine().build(path).run(built.feeds).values()
    wide = transformer()
    truth = onnxruntime.InferenceSession(wide.model.SerializeToString())
    (wanted,) = truth.run(None, wide.feeds)
    assert seen.dtype.name == "bfloat16"
    assert np.abs(seen.astype(np.float32) - wanted).max() < 0.1 * np.abs(wanted).max()


SHAPED = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 3, 4] x) => (float[m, k] y)
    { [all] s = Shape (x)
      [batch] b = Slice (s, zero, one)
      [wanted] shape = Concat <axis = 0> (b, rest)
      [flat] r = Reshape (x, shape)
      [filled] c = ConstantOfShape <value = float[1] {2.0}> (shape12)
      [last] y = Mul (r, c) }
"""


def shaped(folder: Path) -> Path:
    known = {"zero": [0], "one": [1], "rest": [-1], "shape12": [12]}
    return save(folder, SHAPED, **{n: np.array(v, np.int64) for n, v in known.items()})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when inductor is loaded
class TestAnotherDevice:
    """What a module makes on its way is made where its weights are; no GPU is needed to see it."""

    def test_shapes_meet_constants(self, tmp_path: Path) -> None:
        from debugtaps.engines.torch_engine import TorchEngine
        from support.far import far

        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        with far():
            found = TorchEngine("far").build(shaped(tmp_path)).run({"x": x})
        np.testing.assert_array_equal(found["y"], 2 * x.reshape(2, 12))

    def test_inductor_traces_them_as_constants(self, tmp_path: Path) -> None:
        from debugtaps.engines.inductor import InductorEngine
        from support.far import far

        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        with far():
            engine = InductorEngine("far")
            value = engine.fed(x)
            traced = engine.build(shaped(tmp_path)).traced([value])
            found = traced(value).cpu().numpy()
        np.testing.assert_array_equal(found, 2 * x.reshape(2, 12))


class TestOptions:
    def test_no_gpu_is_said_before_anything_is_built(self, engine: Maker) -> None:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is one")
        with pytest.raises(SpecError, match="no device 'cuda'"):
            engine(device="cuda").describe()

    @pytest.mark.parametrize("option", ["dtype", "autocast"])
    def test_an_unknown_type_lists_the_known(self, engine: Maker, option: str) -> None:
        with pytest.raises(SpecError, match="'int3'; it takes float64, float32"):
            engine(**{option: "int3"}).describe()

    def test_an_unknown_option_of_inductor_is_refused(self, engine: Maker) -> None:
        with pytest.raises(SpecError, match="unknown option 'epilogue_fussion'"):
            engine("inductor", epilogue_fussion=False).describe()

    @pytest.mark.slow
    def test_inductor_takes_its_own_options(self, engine: Maker, tmp_path: Path) -> None:
        untold = {"trace.provenance_tracking_level": 0}
        build = engine("inductor", **untold).build(save(tmp_path, FUSED))
        x = np.linspace(-1, 1, 64, dtype=np.float32)
        assert build.run({"x": x, "z": x})["y"].shape == (64,)
        assert build.fusions() == ()

    @pytest.mark.parametrize(
        ("options", "u"),
        [({}, 2.0**-24), ({"dtype": "bfloat16"}, 2.0**-8), ({"autocast": "float16"}, 2.0**-11)],
    )
    def test_it_states_its_precision(
        self, engine: Maker, options: dict[str, str], u: float
    ) -> None:
        assert engine(**options).unit_roundoff() == u

    def test_a_setting_of_the_process_does_not_outlive_its_engine(self) -> None:
        code = (
            "import torch; from debugtaps.engines.torch_engine import TorchEngine as Engine\n"
            "flags = lambda: (torch.backends.cuda.matmul.allow_tf32, "
            "torch.backends.cudnn.allow_tf32)\n"
            "usual = flags(); Engine(allow_tf32=True); on = flags()\n"
            "Engine(allow_tf32=False); off = flags(); Engine(); print(on, off, usual == flags())"
        )
        shown = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
        assert shown.stdout.strip() == "(True, True) (False, False) True", shown.stderr

    def test_every_knob_is_an_option(self, engine: Maker) -> None:
        knobs = engine("inductor").knobs()
        assert knobs
        engine("inductor", **{name: values[0] for name, values in knobs.items()}).describe()


class TestInductor:
    def test_it_tells_which_nodes_one_kernel_holds(self, engine: Maker, tmp_path: Path) -> None:
        build = engine("inductor").build(save(tmp_path, FUSED))
        assert build.fusions() == ()
        x = np.linspace(-1, 1, 64, dtype=np.float32)
        seen = build.run({"x": x, "z": x})["y"]
        np.testing.assert_allclose(seen, np.tanh(2 * x) * x, rtol=1e-5)
        assert build.fusions() == (frozenset({"twice", "squash", "scale"}),)

    def test_new_shapes_are_compiled_anew(self, engine: Maker, tmp_path: Path) -> None:
        built = ZOO["dynamic_shape"]()
        path, _ = built.save(tmp_path)
        agrees_with_onnx_runtime(path, built, engine("inductor"))

    def test_an_input_that_is_a_shape_is_compiled_for_its_value(
        self, engine: Maker, tmp_path: Path
    ) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[1] x, int64[r] shape) => (float[m, n] y)
            { [wide] w = Expand (x, shape)
              [twice] y = Add (w, w) }
        """
        build = engine("inductor").build(save(tmp_path, text))
        for shape in ([2, 3], [3, 2]):
            seen = build.run({"x": f32([4]), "shape": np.array(shape)})["y"]
            np.testing.assert_array_equal(seen, np.full(shape, 8, np.float32))

    def test_a_value_that_decides_a_shape_is_not_supported(
        self, engine: Maker, tmp_path: Path
    ) -> None:
        path = save(tmp_path, BRANCH, flat=np.array([1]))
        x = f32([-1, -1, -1, -1])
        assert engine().build(path).run({"x": x})["y"].shape == (4,)
        with pytest.raises(EngineFailure, match="not supported by inductor: a computed value"):
            engine("inductor").build(path).run({"x": x})


def look(folder: Path, built: Built, engine: str, **options: Any) -> tapsect.Finding:
    path, inputs = built.save(folder / "given")
    out = folder / "out"
    return tapsect.bisect(path, inputs=[inputs], engine=engine, engine_options=options, out=out)


@pytest.mark.parametrize("options", [{"autocast": "bfloat16"}, {"dtype": "bfloat16"}])
def test_bf16_is_a_precision_not_a_defect(tmp_path: Path, options: dict[str, str]) -> None:
    finding = look(tmp_path, transformer(), "torch", **options)
    assert (finding.status, finding.cause) == ("diverges", "precision_limit")
    assert finding.precision["effective"] == "bf16"


@pytest.mark.parametrize("spec", ["torch", "inductor"])
def test_fp32_agrees(tmp_path: Path, spec: str) -> None:
    assert look(tmp_path, ZOO["shared_weight"](), spec).status == "agrees"


@pytest.mark.slow
def test_torch_is_a_reference(tmp_path: Path) -> None:
    path, inputs = to_narrow(transformer(), "bf16").save(tmp_path / "given")
    finding = tapsect.bisect(
        path, inputs=[inputs], engine="inductor", reference="torch", out=tmp_path / "out"
    )
    assert finding.status == "agrees"


def test_another_interpreter_needs_the_files_only() -> None:
    """No import of this project: it need not be there."""
    code = (
        "import runpy, sys; sys.modules['debugtaps'] = None\n"
        f"engine = runpy.run_path({str(FILES / 'inductor.py')!r})['InductorEngine']\n"
        "print(engine().describe()['name'])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert shown.stdout.strip() == "torch inductor", shown.stderr

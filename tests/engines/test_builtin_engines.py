"""The engines that come with the core, on the real runtimes, in their worker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from debugtaps.engines.host import Host
from debugtaps.engines.ort import MANY, OrtEngine, OrtReference
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure, SpecError
from debugtaps.testing import CHECKS, check, conformance

Maker = Callable[..., Host]


@pytest.fixture
def engine() -> Iterator[Maker]:
    made: list[Host] = []

    def make(spec: str = "ort", **options: Any) -> Host:
        made.append(Host(resolve(spec, options), timeout=30.0))
        return made[-1]

    yield make
    for host in made:
        host.close()


def save(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


# The optimiser takes the two identities out.
IDLE = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x) => (float[3] y)
    { [one] a = Identity(x)
      [two] b = Identity(a)
      [last] y = Neg(b) }
"""


@pytest.mark.parametrize("spec", ["ort", "ort-reference", "onnx", "planted"])
def test_the_builtin_engines_conform(spec: str) -> None:
    results = conformance(spec)
    assert [result.name for result in results] == list(CHECKS)
    assert [result for result in results if result.status != "passed"] == []


class TestOrt:
    @pytest.mark.parametrize("level", ["disable", "none", "off", "basic", "all", 0, 1, 2, 3, 99])
    def test_takes_levels_by_word_and_number(
        self, engine: Maker, tmp_path: Path, level: object
    ) -> None:
        build = engine(graph_optimization_level=level).build(save(tmp_path, IDLE))
        assert build.run({"x": np.ones(3, np.float32)})["y"].tolist() == [-1] * 3

    def test_many_inputs_are_fed_as_few_are(self, engine: Maker, tmp_path: Path) -> None:
        given = {f"x{i}": np.full((2, 3) if i else (), i, np.float32) for i in range(MANY)}
        given["x1"] = np.arange(6, dtype=np.float32).reshape(3, 2).T  # not in C order
        inputs = ", ".join(f"float[{'2, 3' if v.ndim else ''}] {n}" for n, v in given.items())
        outputs = ", ".join(f"float[n{i}] y{i}" for i in range(MANY))
        nodes = "\n".join(f"y{i} = Neg(x{i})" for i in range(MANY))
        text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
        build = engine().build(save(tmp_path, text))
        shown = build.run(given)
        for name, value in given.items():
            np.testing.assert_array_equal(shown[name.replace("x", "y")], -value, strict=True)
        with pytest.raises(EngineFailure, match="x7"):
            build.run({n: v for n, v in given.items() if n != "x7"})

    def test_an_unknown_level_lists_the_known(self, engine: Maker) -> None:
        with pytest.raises(SpecError, match="'fast'; it takes disable"):
            engine(graph_optimization_level="fast").describe()

    def test_an_unknown_option_lists_the_known(self, engine: Maker) -> None:
        with pytest.raises(SpecError, match="unknown option 'optlevel'.*graph_optimization_level"):
            engine(optlevel=1).describe()

    @pytest.mark.parametrize("providers", ["CPUExecutionProvider", ["CPUExecutionProvider"]])
    def test_takes_providers(self, engine: Maker, providers: object) -> None:
        assert engine(providers=providers).describe()["providers"] == ["CPUExecutionProvider"]

    def test_does_not_fall_back_in_silence(self, engine: Maker) -> None:
        text = "no MoonExecutionProvider: this onnxruntime has .*CPUExecutionProvider"
        with pytest.raises(SpecError, match=text):
            engine(providers="MoonExecutionProvider,CPUExecutionProvider").describe()

    @pytest.mark.parametrize(
        "options",
        [
            {"session_config": {"session.save_model_format": "ONNX"}},
            {"session.set_denormal_as_zero": True},
            {"disabled_optimizers": "ConstantFolding,MatMulAddFusion"},
            {"intra_op_num_threads": 1, "inter_op_num_threads": 1},
        ],
    )
    def test_takes_its_own_options(
        self, engine: Maker, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        build = engine(**options).build(save(tmp_path, IDLE))
        assert build.run({"x": np.ones(3, np.float32)})["y"].tolist() == [-1] * 3

    def test_session_configuration_arrives(self, engine: Maker, tmp_path: Path) -> None:
        path = save(tmp_path, IDLE.replace("Neg(b)", "Mul(b, b)"))
        tiny = np.full(3, 1e-20, np.float32)
        flushing = {"session.set_denormal_as_zero": 1, "intra_op_num_threads": 1}
        seen = [engine(**each).build(path).run({"x": tiny})["y"] for each in ({}, flushing)]
        assert seen[0][0] > 0
        assert seen[1][0] == 0

    @pytest.mark.parametrize(("cls", "nodes"), [(OrtEngine, 1), (OrtReference, 3)])
    def test_the_reference_optimises_nothing(
        self, tmp_path: Path, cls: type[OrtEngine], nodes: int
    ) -> None:
        path, out = save(tmp_path, IDLE), tmp_path / "optimised.onnx"
        options = cls().session_options()
        options.optimized_model_filepath = str(out)
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        assert len(onnx.load(out).graph.node) == nodes

    def test_the_reference_leaves_cores_to_others_between_runs(self) -> None:
        key, asked = "session.intra_op.allow_spinning", {"session.intra_op.allow_spinning": "1"}
        reference = OrtReference().session_options()
        assert reference.get_session_config_entry(key) == "0"
        asking = OrtReference(session_config=asked).session_options()
        assert asking.get_session_config_entry(key) == "1"
        with pytest.raises(RuntimeError, match=key):  # the engine stays as its user has it
            OrtEngine().session_options().get_session_config_entry(key)

    @pytest.mark.parametrize("options", [{"graph_optimization_level": "all"}, {"nonsense": 1}])
    def test_the_reference_takes_no_optimisation(
        self, engine: Maker, options: dict[str, Any]
    ) -> None:
        with pytest.raises(SpecError, match="its options: providers"):
            engine("ort-reference", **options).describe()

    @pytest.mark.parametrize(
        ("kind", "dtype"),
        [
            (TensorProto.BFLOAT16, "bfloat16"),
            (TensorProto.FLOAT8E4M3FN, "float8_e4m3fn"),
            (TensorProto.FLOAT8E5M2, "float8_e5m2"),
            (TensorProto.INT4, "int4"),
            (TensorProto.UINT4, "uint4"),
        ],
    )
    def test_gives_types_that_numpy_lacks(
        self, engine: Maker, tmp_path: Path, kind: int, dtype: str
    ) -> None:
        nodes = [
            helper.make_node("Cast", ["x"], ["y"], "narrow", to=kind),
            helper.make_node("Identity", ["x"], ["z"], "same"),
        ]
        ends = [("x", TensorProto.FLOAT), ("y", kind), ("z", TensorProto.FLOAT)]
        values = [helper.make_tensor_value_info(name, each, ["N"]) for name, each in ends]
        graph = helper.make_graph(nodes, "g", values[:1], values[1:])
        opsets = [helper.make_opsetid("", 21)]
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        x = np.array([1, 0, 3, -2 if dtype != "uint4" else 15, 7], np.float32)
        build = engine().build(path)
        seen = build.run({"x": x})
        assert seen["y"].dtype == np.dtype(getattr(ml_dtypes, dtype))
        assert seen["y"].astype(np.float32).tolist() == x.astype(seen["y"].dtype).tolist()
        assert seen["z"].tolist() == x.tolist()
        assert build.run({"x": x[:0]})["y"].shape == (0,)

    def test_takes_bfloat16(self, engine: Maker, tmp_path: Path) -> None:
        text = IDLE.replace("float[3] x", "bfloat16[3] x").replace("Neg(b)", "Cast<to = 1>(b)")
        x = np.array([1.5, -2, 0], ml_dtypes.bfloat16)
        seen = engine().build(save(tmp_path, text)).run({"x": x})
        assert seen["y"].tolist() == [1.5, -2, 0]

    def test_with_text_inputs_gives_what_numpy_can_hold(
        self, engine: Maker, tmp_path: Path
    ) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (string[2] s, float[2] x) => (string[2] t, bfloat16[2] y)
            { t = Identity(s)  y = Cast<to = 16>(x) }
        """
        feeds = {"s": np.array(["a", "ü"], object), "x": np.ones(2, np.float32)}
        seen = engine().build(save(tmp_path, text)).run(feeds)
        assert {name: value.tolist() for name, value in seen.items()} == {"t": ["a", "ü"]}

    def test_notes_sequences(self, engine: Maker, tmp_path: Path) -> None:
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[2] x) => (seq(float[2]) s, float[2] y)
            { s = SequenceConstruct(x, x)  y = Neg(x) }
        """
        build = engine().build(save(tmp_path, text))
        assert list(build.run({"x": np.ones(2, np.float32)})) == ["y"]
        assert "'s'" in build.notes[0]

    def test_a_missing_feed_and_a_bad_model_are_its_own_words(
        self, engine: Maker, tmp_path: Path
    ) -> None:
        host = engine()
        build = host.build(save(tmp_path, IDLE))
        with pytest.raises(EngineFailure, match="x") as seen:
            build.run({})
        assert (seen.value.kind, seen.value.phase) == ("run_error", "run")
        (tmp_path / "torn.onnx").write_bytes(b"\x08\x08torn")
        with pytest.raises(EngineFailure) as torn:
            host.build(tmp_path / "torn.onnx")
        assert torn.value.kind == "build_error"

    def test_is_described(self, engine: Maker) -> None:
        said = engine().describe()
        assert said["versions"]["onnxruntime"] == onnxruntime.__version__
        assert said["device"]


class TestOnnxReference:
    def test_takes_no_options(self, engine: Maker) -> None:
        with pytest.raises(SpecError, match="given: level"):
            engine("onnx", level=1).describe()

    def test_reads_weights_beside_the_model(self, engine: Maker, tmp_path: Path) -> None:
        model = parser.parse_model(IDLE.replace("Neg(b)", "Mul(b, w)"))
        weights = np.array([1, 2, 3], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="w", size_threshold=0)
        seen = engine("onnx").build(path).run({"x": np.ones(3, np.float32)})
        assert seen["y"].tolist() == [1, 2, 3]

    def test_does_not_share_kernels_with_onnxruntime(self, engine: Maker, tmp_path: Path) -> None:
        path = save(tmp_path, IDLE.replace("Neg(b)", "Sigmoid(b)"))
        x = np.full(3, -18.0, np.float32)
        seen = [engine(spec).build(path).run({"x": x})["y"][0] for spec in ("onnx", "ort")]
        assert seen[0] == pytest.approx(1.523e-8, rel=1e-3)


BROKEN = """
import os
import numpy as np
import onnxruntime as ort


class Good:
    last = None

    def build(self, model, taps=()):
        return Session(self, ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]))

    def change(self, outputs, feeds):
        return outputs


class Session:
    def __init__(self, engine, session):
        self.engine, self.session = engine, session

    def run(self, feeds):
        names = [each.name for each in self.session.get_outputs()]
        known = {each.name: feeds[each.name] for each in self.session.get_inputs()}
        return self.engine.change(dict(zip(names, self.session.run(None, known))), feeds)

    def close(self):
        pass


class answers_all_outputs(Good):
    def change(self, outputs, feeds):
        outputs.pop("z", None)
        return outputs


class returns_taps(Good):
    def change(self, outputs, feeds):
        outputs.pop("twice", None)
        return outputs


class ignores_extra_feeds(Good):
    def change(self, outputs, feeds):
        if len(feeds) > 1:
            raise ValueError("what is that?")
        return outputs


class repeats_itself(Good):
    def change(self, outputs, feeds):
        noise = np.random.rand()
        return {k: v + v.dtype.type(noise) if "z" in outputs else v for k, v in outputs.items()}


class survives_a_bad_model(Good):
    def build(self, model, taps=()):
        try:
            return super().build(model, taps)
        except Exception:
            os.abort()


class keeps_sessions_apart(Good):
    def build(self, model, taps=()):
        self.last = super().build(model, taps)
        return self

    def run(self, feeds):
        if self.last is None:
            raise ValueError("closed")
        return self.last.run(feeds)

    def close(self):
        self.last = None


class frees_sessions(Good):
    def build(self, model, taps=()):
        self.kept = getattr(self, "kept", [])
        self.kept.append(super().build(model, taps))
        return self.kept[-1]


class takes_scalars(Good):
    def change(self, outputs, feeds):
        return {k: np.atleast_1d(v) for k, v in outputs.items()}


class takes_empty_tensors(Good):
    def change(self, outputs, feeds):
        return {k: v if v.size else np.zeros((1, 3), v.dtype) for k, v in outputs.items()}


class takes_int64(Good):
    def change(self, outputs, feeds):
        return {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in outputs.items()}


class takes_bool(Good):
    def change(self, outputs, feeds):
        return {k: v.view(np.uint8) if v.dtype == bool else v for k, v in outputs.items()}


class takes_float16(Good):
    def change(self, outputs, feeds):
        half = np.float16
        return {k: v.astype(np.float32) if v.dtype == half else v for k, v in outputs.items()}
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("broken") / "broken.py"
    path.write_text(BROKEN, encoding="utf-8")
    return path


class TestConformance:
    @pytest.mark.parametrize("name", CHECKS)
    def test_each_check_finds_its_own_breach(self, broken: Path, name: str) -> None:
        noted = ("repeats itself", "frees sessions", "describes itself")
        cls = "Good" if name == "describes itself" else name.replace(" ", "_")
        result = check(name, f"{broken}:{cls}")
        assert result.status == ("noted" if name in noted else "failed")
        assert result.detail

    def test_a_type_that_is_refused_is_noted(self, tmp_path: Path) -> None:
        text = BROKEN + (
            "\n\nclass NoHalf(Good):\n"
            "    def change(self, outputs, feeds):\n"
            "        if any(v.dtype == np.float16 for v in outputs.values()):\n"
            "            raise TypeError('no half here')\n"
            "        return outputs\n"
        )
        (tmp_path / "half.py").write_text(text, encoding="utf-8")
        result = check("takes float16", f"{tmp_path}/half.py:NoHalf")
        assert (result.status, result.detail) == ("noted", "not taken: TypeError: no half here")

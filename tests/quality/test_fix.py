"""What cures: planted engines with one guilty setting among 64, two, a spoiled one, and none.

The last tests ask ONNX Runtime itself for the pass that a published fault sits in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest

import tapsect
from support import knob_engine
from support.bug_models import CASES, BugCase, Size
from support.bugs import interpreter
from tapsect import bisect
from tapsect.diagnose.given import Fixing
from tapsect.finding import Finding
from tapsect.published_faults import layernorm_keepdims0

ENGINE = f"{knob_engine.__file__}:Knobby"
THOROUGH = Fixing(thorough=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 8] x) => (float[4, 8] y) { a = Tanh(x)  b = Exp(a)  y = Softplus(b) }
    """
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def fixed(model: Path, fixing: Fixing | None = None, **options: Any) -> Finding:
    return bisect(
        model, engine=ENGINE, engine_options=options, out=model.parent / "out", fixing=fixing
    )


def settings(finding: Finding) -> list[str]:
    return [fix.setting for fix in finding.fixes]


def test_a_diagnosis_names_the_guilty_setting_by_itself(model: Path) -> None:
    log = model.parent / "builds"
    finding = fixed(model, cures=[["P21"]], log=str(log))
    (fix,) = finding.fixes
    assert (fix.kind, fix.setting) == ("knobs", "passes=P21")
    assert fix.error_before == pytest.approx(0.05, rel=0.01)
    assert fix.error_after is not None
    assert fix.error_after < 1e-6
    assert fix.latency_before is not None
    assert fix.latency_after is not None
    assert 0 < fix.latency_after < 1
    step = next(s for s in finding.trail if s.step == "fix")
    assert step.decision == "cured by passes=P21"
    assert "64 settings" in step.why
    # In groups: 2·log2(32) on the smallest case, then 2 of the whole and 2 timed.
    assert step.builds == finding.cost.fix_builds <= 20
    assert finding.cost.builds <= 5


def test_python_asks_as_the_command_does(model: Path) -> None:
    finding = tapsect.fix(
        model, knobs=["k4", "k5"], engine=ENGINE, engine_options={"cures": [["P1"], ["k5"]]},
        out=model.parent / "out",
    )  # fmt: skip
    assert settings(finding) == ["k5=1"]
    assert finding.command == ("tapsect.fix",)


def test_without_a_budget_nothing_is_tried(model: Path) -> None:
    finding = bisect(
        model, engine=ENGINE, engine_options={"cures": [["P21"]]}, out=model.parent / "o", budget=0
    )
    assert finding.cause == "engine_defect"
    assert finding.fixes == ()


def test_two_settings_that_are_needed_together(model: Path) -> None:
    assert settings(fixed(model, cures=[["k3", "k30"]])) == ["k3=1 k30=1"]


def test_what_does_not_hold_in_a_fresh_process_is_no_cure(model: Path) -> None:
    finding = fixed(model, cures=[["k6"]], warm=True)
    assert settings(finding) == []
    assert any(s.decision == "no setting cures" for s in finding.trail)


def test_a_build_error_is_cured_as_well(model: Path) -> None:
    finding = fixed(model, cures=[["k9"]], fails=True)
    assert finding.failure == "build_error"
    assert settings(finding) == ["k9=1"]


@pytest.mark.slow
def test_a_cure_that_another_setting_spoils_needs_the_command(model: Path) -> None:
    rules: dict[str, Any] = {"cures": [["P7"]], "spoils": ["P20"]}
    assert settings(fixed(model, **rules)) == []
    assert settings(fixed(model, THOROUGH, **rules)) == ["passes=P7"]


@pytest.mark.slow
def test_when_nothing_cures_that_is_said(model: Path) -> None:
    finding = fixed(model, THOROUGH, cures=[])
    assert settings(finding) == []
    last = [s for s in finding.trail if s.step == "fix"][-1]
    assert last.decision == "no setting cures"


def test_fixed_sizes_alone_may_cure_where_nothing_can_be_folded(model: Path) -> None:
    built = onnx.load(model)
    for value in (*built.graph.input, *built.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(built, model)
    samples = [{"x": np.full((4, 8), 0.1 * n, np.float32)} for n in (1, 2)]
    finding = bisect(
        model, inputs=samples, engine=ENGINE, engine_options={"static": True},
        out=model.parent / "out", fixing=THOROUGH,
    )  # fmt: skip
    fix = finding.fixes[0]
    assert (fix.kind, fix.setting) == ("fold", "fixed/frozen.onnx")
    assert any(s.decision == "freezing the inputs alone cures" for s in finding.trail)
    (dims,) = [
        v.type.tensor_type.shape for v in onnx.load(model.parent / "out" / fix.setting).graph.input
    ]
    assert [dim.dim_value for dim in dims.dim] == [4, 8]


@pytest.mark.slow
def test_only_the_knobs_that_are_asked_for_are_turned(model: Path) -> None:
    asked = Fixing(thorough=True, knobs=("k4", "k5"))
    assert settings(fixed(model, asked, cures=[["P1"], ["k5"]])) == ["k5=1"]


# ------------------------------------------------------------------------- published faults

PASSES = {
    "ort-layernorm-keepdims0": ("LayerNormFusion", "SimplifiedLayerNormFusion"),
    "ort-layernorm-rank1": ("SimplifiedLayerNormFusion",),
    "ort-pad-avgpool": ("Pad_Fusion",),
    "ort-gemm-identity-transpose": ("GemmTransposeFusion",),
}
"""The passes that must be left out together, by case.  From 1.23 some bear their level, too.

Leaving out SimplifiedLayerNormFusion alone was seen to cure the rank-1 fault of 1.29 and 1.32.
"""

LEVEL = re.compile(r"L[12]$")


def guilty(finding: Finding) -> list[set[str]]:
    """Returns each set of passes that cures when it is left out, their levels stripped."""
    found = [fix.setting.partition("=") for fix in finding.fixes]
    return [
        {LEVEL.sub("", name) for name in names.split(",")}
        for option, _, names in found
        if option == "disabled_optimizers"
    ]


def of_fault(case: BugCase, size: Size, folder: Path, python: Path | None) -> Finding:
    model, inputs = case.build(size).save(folder)
    return bisect(model, inputs=[inputs], engine_python=python, out=folder / "out")


def test_onnx_runtime_is_cured_by_two_passes_together(tmp_path: Path) -> None:
    model, feeds = layernorm_keepdims0()
    onnx.save(model, tmp_path / "m.onnx")
    finding = bisect(tmp_path / "m.onnx", inputs=[feeds], out=tmp_path / "out")
    if finding.status == "agrees":
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} has the fault no more")
    assert guilty(finding) == [{"LayerNormFusion", "SimplifiedLayerNormFusion"}]
    before, after = finding.fixes[0].error_before, finding.fixes[0].error_after
    assert before is not None
    assert after is not None
    assert after < 1e-6 < 0.1 < before
    wrong = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    right = onnxruntime.InferenceSession(
        str(tmp_path / "m.onnx"), disabled_optimizers=finding.fixes[0].setting[20:].split(",")
    )
    apart = wrong.run(None, feeds)[0] - right.run(None, feeds)[0]
    assert np.abs(apart).max() > 1e-3


@pytest.mark.bugs
@pytest.mark.parametrize("size", get_args(Size))
@pytest.mark.parametrize("case", [c for c in CASES if c.id in PASSES], ids=lambda c: c.id)
def test_the_guilty_pass_of_each_published_fault(case: BugCase, size: Size, tmp_path: Path) -> None:
    here = case.version == onnxruntime.__version__
    python = None if here else interpreter(case.version)
    if python is None and not here:
        pytest.skip(f"no interpreter with ONNX Runtime {case.version} can be made here")
    assert set(PASSES[case.id]) in guilty(of_fault(case, size, tmp_path, python))


def test_folding_for_the_given_shapes_is_tried_first(tmp_path: Path) -> None:
    """A fault that sits in shape arithmetic goes with it, and the trail says so."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 8] x) => (float[M, 4] y) <int64[1] zero = {0}, int64[1] four = {4}> {
        s = Shape(x)
        n = Gather<axis = 0>(s, zero)
        f = Cast<to = 1>(n)
        back = Cast<to = 7>(f)
        twice = Add(back, back)
        shape = Concat<axis = 0>(twice, four)
        r = Reshape(x, shape)
        y = Exp(r)
    }
    """
    built = onnx.parser.parse_model(text)
    for node in built.graph.node:
        node.name = node.output[0]
    onnx.save(built, tmp_path / "m.onnx")
    finding = bisect(
        tmp_path / "m.onnx", input_shapes={"x": [3, 8]}, engine="planted",
        engine_options={"kind": "run_error", "nodes": "twice"},
        out=tmp_path / "out", fixing=Fixing(thorough=True),
    )  # fmt: skip
    fold = finding.fixes[0]
    assert (fold.kind, fold.setting) == ("fold", "fixed/folded.onnx")
    assert any(s.decision == "folding alone cures" for s in finding.trail)
    left = onnx.load(tmp_path / "out" / fold.setting).graph
    assert [node.op_type for node in left.node] == ["Reshape", "Exp"]
    assert left.input[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.bugs
def test_the_release_that_mended_a_published_fault(tmp_path: Path) -> None:
    """AveragePool with a Pad before it: wrong in 1.20.1, right in 1.21.0."""
    from tapsect.axes.versions import Releases
    from tapsect.diagnose.given import Options
    from tapsect.progress import Silent
    from tapsect.versions import find_border

    case = next(c for c in CASES if c.id == "ort-pad-avgpool")
    model, inputs = case.build("small").save(tmp_path)
    chosen = Releases(("1.19.2", "1.20.1", "1.21.0", "1.22.1"), ())
    found = find_border(Options(model, (inputs,)), "onnxruntime", chosen, Silent())
    assert (found.bad, found.good, found.mended) == ("1.20.1", "1.21.0", True)

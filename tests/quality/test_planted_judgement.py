"""What a diagnosis makes of a planted fault when more is said or given: harmless errors, samples,
golden values, a judge, tolerances, a wrong reference, little memory, faults that need company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from debugtaps import Tolerance, write_npz
from support import rounding_engine, wrong_reference, zoo
from support.build import Built, Net
from support.diagnosing import Diagnosed, case_status, diagnose, trail_of

ROUNDING = f"{Path(rounding_engine.__file__)}:RoundingEngine"
REFERENCES = Path(wrong_reference.__file__)


def assert_place(found: Diagnosed, *nodes: str, cause: str = "engine_defect") -> None:
    """Asserts one place, its cause, and a smallest case of just these nodes."""
    finding, why = found.finding, trail_of(found)
    assert finding.cause == cause, why
    assert finding.exit_code == 1, why
    assert found.places == [frozenset(nodes)], why
    assert found.minimal == frozenset(nodes), why


def approximated() -> Built:
    """Returns a network in which an Erf reaches the output scaled down to nothing."""
    net = Net(seed=20)
    x = net.input("x", (4, 16))
    erf = net.op("Erf", net.linear(x, 16, 16))
    faint = net.op("Mul", erf, net.const(1e-9, name="faint"))
    net.output(net.op("Tanh", net.linear(net.op("Add", x, faint), 16, 8)))
    return net.build()


def masked() -> Built:
    """Returns a network in which half of what an Exp computes is masked away."""
    net = Net(seed=21)
    x = net.input("x", (4, 16))
    high = net.op("Greater", x, net.const(0.0, name="zero"))
    y = net.op("Where", high, net.linear(x, 16, 16), net.op("Exp", net.op("Relu", x)))
    net.output(net.op("Tanh", net.linear(y, 16, 8)))
    return net.build()


@pytest.mark.parametrize(
    ("build", "harmless", "fault"),
    [
        (approximated, "Erf", {"kind": "value", "nodes": ["Erf"], "error": 1e-3}),
        # A Relu of what is masked is 0: the error is on elements that nobody reads.
        (masked, "Exp", {"kind": "nonfinite", "nodes": ["Exp"], "limit": 1.0}),
    ],
)
def test_error_that_moves_no_output_is_harmless_beside_a_small_fault(
    build: Any, harmless: str, fault: dict[str, Any], tmp_path: Path
) -> None:
    small = {"kind": "value", "nodes": ["MatMul_1"], "error": 1e-4}
    found = diagnose(build(), [fault, small], tmp_path)
    assert_place(found, "MatMul_1")
    assert [h.node for h in found.finding.harmless] == [harmless], trail_of(found)


def test_fault_that_is_never_shown_agrees_with_one_build(tmp_path: Path) -> None:
    found = diagnose(zoo.residual(), [{"kind": "value", "nodes": ["nowhere"]}], tmp_path)
    assert found.finding.exit_code == 0
    assert found.finding.cost.builds == 1
    assert found.minimal is None


def wide() -> tuple[Built, int]:
    """Returns elementwise operators on 10^6 elements, and one whose value is above the rms."""
    net = Net(seed=22)
    x = net.input("x", (1000, 1000))
    y = net.op("Mul", net.op("Tanh", x), net.const(1.7, name="gain"))
    net.output(net.op("Add", y, net.const(0.3, name="shift")))
    built = net.build()
    values = 1.7 * np.tanh(built.feeds["x"]).ravel()
    rms = float(np.sqrt(np.mean(np.square(values))))
    return built, int(np.flatnonzero((values > rms) & (values < 1.05 * rms))[0])


@pytest.mark.slow
def test_one_wrong_element_of_a_million_is_found_under_fp16_rounding(tmp_path: Path) -> None:
    built, index = wide()
    fault = {"kind": "element", "nodes": ["Mul"], "error": 0.05, "index": index}
    options = {"inner": ROUNDING, "inner_options": {"precision": "fp16"}}
    found = diagnose(built, [fault], tmp_path, options=options, precision="fp16")
    assert_place(found, "Mul")


@pytest.mark.parametrize("pool", [False, True], ids=["all-bypassed", "shape-changes"])
def test_two_nodes_that_fail_only_together_fifty_nodes_apart(pool: bool, tmp_path: Path) -> None:
    net = Net(seed=23)
    x = net.op("Relu", net.linear(net.input("x", (4, 16)), 16, 16))
    for i in range(50):
        x = net.op("Tanh" if i % 2 else "Softplus", x)
        if pool and i == 25:
            x = net.op("Reshape", x, net.ints(8, 8, name="shape"))
    net.output(net.op("Sigmoid", x))
    fault = {"kind": "pattern", "nodes": ["Relu", "Sigmoid"]}
    found = diagnose(net.build(), [fault], tmp_path)
    between = {"Reshape"} if pool else set()
    assert found.minimal == frozenset({"Relu", "Sigmoid"} | between), trail_of(found)
    assert found.finding.cause == "engine_defect"
    assert case_status(found) == 1


def test_fault_that_only_the_second_sample_shows(tmp_path: Path) -> None:
    built = zoo.chain_cnn(12)
    calm = {n: 0.1 * v for n, v in built.feeds.items()}
    loud = {n: np.abs(v) + 5 for n, v in built.feeds.items()}
    fault = {"kind": "value", "nodes": ["block2/Conv"], "when": {"above": 4.0}}
    found = diagnose(built, [fault], tmp_path, inputs=[calm, loud])
    assert_place(found, "block2/Conv")
    assert [(o.sample, o.failing) for o in found.finding.outputs] == [(0, False), (1, True)]


@pytest.mark.parametrize("name", ["residual", "transformer"])
def test_little_tap_memory_finds_the_node_in_rounds(name: str, tmp_path: Path) -> None:
    node, memory = {
        "residual": ("stage1/BatchNormalization", 3 * 4096),
        "transformer": ("layer1/mlp/Erf", 8 * 1024),
    }[name]
    found = diagnose(
        zoo.NETWORKS[name](), [{"kind": "value", "nodes": [node]}], tmp_path, tap_memory=memory
    )
    assert_place(found, node)
    assert sum(s.step == "taps" for s in found.finding.trail) > 1


def golden(built: Built, folder: Path) -> Path:
    """Writes what the reference answers."""
    import onnxruntime

    folder.mkdir(parents=True, exist_ok=True)
    session = onnxruntime.InferenceSession(
        built.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    write_npz(folder / "golden.npz", dict(zip(names, session.run(names, built.feeds), strict=True)))
    return folder / "golden.npz"


def test_golden_values_stand_for_the_reference(tmp_path: Path) -> None:
    built = zoo.shared_weight()
    fault = {"kind": "value", "nodes": ["right_tower/MatMul"]}
    found = diagnose(built, [fault], tmp_path, reference=golden(built, tmp_path / "golden"))
    assert_place(found, "right_tower/MatMul")


def judge_file(folder: Path, limit: float) -> str:
    """Writes a judge that takes offence at a largest difference above ``limit``."""
    path = folder / "judge.py"
    path.write_text(
        "import numpy as np\n"
        "def judge(engine, reference):\n"
        "    worst = max(np.abs(engine[n] - reference[n]).max() for n in reference)\n"
        f"    return 'differs by %g' % worst if worst > {limit} else None\n"
    )
    return f"{path}:judge"


@pytest.mark.parametrize(("limit", "status"), [(1e-3, 1), (10.0, 0)])
def test_judge_decides_whether_outputs_fail(limit: float, status: int, tmp_path: Path) -> None:
    fault = {"kind": "value", "nodes": ["block2/Conv"]}
    judge = judge_file(tmp_path, limit)
    found = diagnose(zoo.chain_cnn(8), [fault], tmp_path, judge=judge)
    assert found.finding.exit_code == status
    if status:
        assert_place(found, "block2/Conv")


@pytest.mark.parametrize("rows", [16, 8192])
def test_judge_has_the_outputs_only_and_may_change_them(rows: int, tmp_path: Path) -> None:
    net = Net(seed=26)
    x = net.input("x", (rows, 32))
    net.output(net.linear(net.op("Tanh", net.linear(x, 32, 32)), 32, 32))
    path = tmp_path / "judge.py"
    path.write_text(
        "def judge(engine, reference):\n"
        "    for name, value in engine.items():\n"
        "        value -= reference[name]\n"
        "        reference[name] *= 0\n"
        "    return any(abs(value).max() > 1e-3 for value in engine.values())\n"
    )
    fault = {"kind": "value", "nodes": ["MatMul_1"]}
    found = diagnose(net.build(), [fault], tmp_path, judge=f"{path}:judge", budget=0)
    assert_place(found, "MatMul_1")
    error = found.finding.outputs[0].rel_rms
    assert error is not None
    assert 0.01 < error < 0.1  # of what the engine gave


@pytest.mark.parametrize(("atol", "status"), [(1e-3, 1), (10.0, 0)])
def test_own_tolerance_decides_whether_outputs_fail(
    atol: float, status: int, tmp_path: Path
) -> None:
    fault = {"kind": "value", "nodes": ["block2/Conv"]}
    tolerance = Tolerance(atol={"": atol}, rtol={"": 0.0})
    found = diagnose(zoo.chain_cnn(8), [fault], tmp_path, tolerance=tolerance)
    assert found.finding.exit_code == status
    if status:
        assert_place(found, "block2/Conv")


def test_rounding_beyond_an_own_tolerance_is_reduced_as_precision(tmp_path: Path) -> None:
    found = diagnose(
        zoo.chain_cnn(8), [], tmp_path, tolerance=Tolerance(atol={"": 1e-5}, rtol={"": 0.0}),
        options={"inner": ROUNDING, "inner_options": {"precision": "fp16"}}, precision="fp16",
    )  # fmt: skip
    finding = found.finding
    assert (finding.exit_code, finding.cause) == (1, "precision_limit"), trail_of(found)
    assert found.minimal is not None
    assert len(found.minimal) == 1
    assert finding.first_divergence is not None
    assert finding.first_divergence.evidence == "isolated"
    assert case_status(found) == 1


def test_wrong_reference_is_suspected(tmp_path: Path) -> None:
    built = zoo.residual()
    next(n for n in built.model.graph.node if n.name == "stage2/Mul").name = "wrong"
    found = diagnose(built, [], tmp_path, reference=f"{REFERENCES}:WrongReference")
    assert_place(found, "wrong", cause="reference_suspect")


def test_crash_needs_no_reference(tmp_path: Path) -> None:
    fault = {"kind": "crash", "nodes": ["block4/Conv"]}
    found = diagnose(
        zoo.chain_cnn(), [fault], tmp_path, reference=f"{REFERENCES}:NoReference", budget=0
    )
    finding = found.finding
    assert (finding.failure, finding.cause, finding.exit_code) == ("crash", "engine_defect", 1)
    assert "block4/Conv" in finding.culprit_nodes, trail_of(found)


def test_nan_that_the_engine_loses_is_a_fault(tmp_path: Path) -> None:
    net = Net(seed=24)
    root = net.op("Sqrt", net.linear(net.input("x", (3, 8)), 8, 8))
    net.output(net.op("Mul", root, net.const(2.0, name="two")))
    found = diagnose(net.build(), [{"kind": "lost_nan", "nodes": ["Sqrt"]}], tmp_path)
    assert found.finding.failure == "nonfinite"
    assert_place(found, "Sqrt")


@pytest.mark.parametrize("refusing", [False, True], ids=["tapped", "no-tap-shows-it"])
def test_wrong_shape_inside_reaches_the_output(refusing: bool, tmp_path: Path) -> None:
    net = Net(seed=25)
    x = net.op("Relu", net.linear(net.input("x", (3, 8)), 8, 8))
    net.output(net.op("Sigmoid", net.op("Tanh", net.op("Softplus", x))))
    faults: list[dict[str, Any]] = [{"kind": "wrong_shape", "nodes": ["Softplus"], "how": "row"}]
    faults += [{"kind": "refuses_taps"}] if refusing else []
    found = diagnose(net.build(), faults, tmp_path)
    assert found.finding.failure == "wrong_shape"
    assert_place(found, "Softplus")


def test_taps_of_another_type_are_no_fault(tmp_path: Path) -> None:
    faults = [
        {"kind": "wrong_dtype", "nodes": ["block2/Conv"]},
        {"kind": "value", "nodes": ["block4/Conv"]},
    ]
    found = diagnose(zoo.chain_cnn(12), faults, tmp_path)
    assert_place(found, "block4/Conv")


@pytest.mark.parametrize("phase", ["build", pytest.param("run", marks=pytest.mark.slow)])
def test_crash_that_strikes_at_times_is_found_and_called_flaky(phase: str, tmp_path: Path) -> None:
    crash = {"kind": "crash", "nodes": ["block2/Conv"], "phase": phase}
    sequence = [True, False, False, True, False, True, True, False, True, False]
    fault = {"kind": f"flaky_{phase}", "of": crash, "sequence": sequence}
    found = diagnose(zoo.chain_cnn(8), [fault], tmp_path)
    assert found.finding.failure == "crash"
    assert found.finding.cause == f"flaky_{phase}", trail_of(found)
    assert "block2/Conv" in found.finding.culprit_nodes, trail_of(found)

"""A case folder reproduces alone: its check is run here, in a process without tapsect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import debugtaps
import tapsect.case as case_module
from debugtaps import OutputError, resolve
from tapsect.case import Case, Limit, write_case

GONE, THERE, CANNOT = 0, 1, 2


def model(dtype: int = TensorProto.FLOAT, op: str = "Identity", domain: str = "") -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["file"], "a", domain=domain)],
        "g",
        [helper.make_tensor_value_info("x", dtype, [4])],
        [helper.make_tensor_value_info("file", dtype, [4])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return data


def case(**changes: Any) -> Case:
    values = np.arange(4, dtype=np.float32)
    base: dict[str, Any] = {
        "model": model(),
        "inputs": {"x": values},
        "expected": {"file": values},
        "engine": resolve("ort", {"graph_optimization_level": "basic"}),
        "kind": "accuracy",
        "limits": {"file": Limit(rms=1e-3)},
        "message": "Node 'a' is <wrong>.",
        "facts": {"nodes": "a, `b`"},
        "environment": {"numpy": np.__version__},
        "timeout": 30.0,
    }
    return Case(**{**base, **changes})


def check(folder: Path, *, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(folder / "check.py")],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={**clean, **(env or {})},
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def engine_file(folder: Path, body: str) -> str:
    path = folder / "fake.py"
    path.write_text(
        "import os, signal, time\nimport numpy as np\n"
        "class Session:\n"
        f"    def run(self, feeds):\n        {body}\n"
        "    def close(self): pass\n"
        "class Fake:\n    def build(self, model, taps=()): return Session()\n"
    )
    return f"{path}:Fake"


def test_a_case_holds_what_the_contract_names(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "case", case(extra={"min_good.onnx": b"x"}))
    assert {p.name for p in folder.iterdir()} == {
        "model.onnx",
        "inputs.npz",
        "expected.npz",
        "check.py",
        "engine.py",
        "README.md",
        "environment.json",
        "min_good.onnx",
    }
    readme = (folder / "README.md").read_text()
    assert r"is \<wrong\>." in readme
    assert "- nodes: `` a, `b` ``" in readme


def test_a_right_answer_is_gone_and_a_wrong_one_is_there(tmp_path: Path) -> None:
    code, said = check(write_case(tmp_path / "good", case()))
    assert (code, "rms error 0 " in said) == (GONE, True)
    wrong = np.array([0, 1, 2, 3.5], np.float32)
    code, said = check(write_case(tmp_path / "bad", case(expected={"file": wrong})))
    assert (code, "rms error 0.25" in said, "THE BUG IS THERE" in said) == (THERE, True, True)


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (Limit(rms=0.3), GONE),
        (Limit(rms=0.3, max_abs=0.4), THERE),
        (Limit(atol=0.1, rtol=0.1), THERE),
        (Limit(atol=0.1, rtol=0.9), GONE),
        (Limit(rms=float("inf")), GONE),
    ],
)
def test_limits(tmp_path: Path, limit: Limit, code: int) -> None:
    wrong = np.array([0, 1, 2, 3.5], np.float32)
    changed = case(expected={"file": wrong}, limits={"file": limit})
    assert check(write_case(tmp_path / "case", changed))[0] == code


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wrong_shape", np.zeros(3, np.float32)),
        ("wrong_dtype", np.arange(4, dtype=np.float64)),
        ("nonfinite", np.array([0, 1, 2, np.nan], np.float32)),
    ],
)
def test_kinds_of_wrong_values(tmp_path: Path, kind: str, expected: Any) -> None:
    wrong = case(kind=kind, expected={"file": expected})
    assert check(write_case(tmp_path / "bad", wrong))[0] == THERE
    assert check(write_case(tmp_path / "good", case(kind=kind)))[0] == GONE


def test_bfloat16_needs_no_ml_dtypes(tmp_path: Path) -> None:
    values = np.array([0, 1, 2, 3], ml_dtypes.bfloat16)
    wrong = np.array([0, 1, 2, 4], ml_dtypes.bfloat16)
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "ml_dtypes.py").write_text("raise ImportError('hidden')\n")
    for name, expected, code in (("good", values, GONE), ("bad", wrong, THERE)):
        changed = case(
            model=model(TensorProto.BFLOAT16), inputs={"x": values}, expected={"file": expected}
        )
        folder = write_case(tmp_path / name, changed)
        assert check(folder)[0] == code
        assert check(folder, env={"PYTHONPATH": str(tmp_path / "hide")})[0] == code


def test_a_build_error_is_there_only_with_the_same_message(tmp_path: Path) -> None:
    broken = case(model=model(op="Nope", domain="nowhere"), kind="build_error", expected={})
    code, said = check(write_case(tmp_path / "same", broken))
    assert (code, "Nope" in said) == (THERE, True)
    other = case(model=broken.model, kind="build_error", error="another text", expected={})
    assert check(write_case(tmp_path / "other", other))[0] == CANNOT
    assert check(write_case(tmp_path / "mended", case(kind="build_error")))[0] == GONE


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("os.abort()", "crash"),
        ("time.sleep(60)", "timeout"),
        ("raise ValueError('no')", "run_error"),
        ("raise MemoryError('std::bad_alloc')", "out_of_memory"),
    ],
)
def test_an_engine_that_dies_hangs_or_raises(tmp_path: Path, body: str, kind: str) -> None:
    engine = resolve(engine_file(tmp_path, body))
    dead = case(engine=engine, kind=kind, expected={}, timeout=3.0)
    code, said = check(write_case(tmp_path / "case", dead))
    assert (code, kind in said) == (THERE, True)


def test_a_file_engine_travels_with_the_case(tmp_path: Path) -> None:
    engine = resolve(engine_file(tmp_path, "return {'file': feeds['x'] + 1}"))
    folder = write_case(tmp_path / "case", case(engine=engine))
    (tmp_path / "fake.py").unlink()
    assert check(folder)[0] == THERE


def test_a_flaky_failure_gets_several_tries(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    body = (
        f"first = not os.path.exists({str(mark)!r}); open({str(mark)!r}, 'w').close(); "
        "return {'file': feeds['x'] + (0 if first else 1)}"
    )
    engine = resolve(engine_file(tmp_path, body))
    assert check(write_case(tmp_path / "case", case(engine=engine, tries=3)))[0] == THERE


def test_a_missing_package_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text("import not_installed_anywhere\nclass Fake: pass\n")
    engine = resolve(f"{tmp_path / 'fake.py'}:Fake")
    code, said = check(write_case(tmp_path / "case", case(engine=engine)))
    assert (code, "not_installed_anywhere" in said) == (CANNOT, True)


def test_the_onnx_evaluator(tmp_path: Path) -> None:
    assert check(write_case(tmp_path / "case", case(engine=resolve("onnx"))))[0] == GONE


def test_an_engine_of_tapsect_says_that_it_needs_it(tmp_path: Path) -> None:
    engine = resolve("planted", {"kind": "value", "nodes": ["a"], "error": 0.5})
    folder = write_case(tmp_path / "case", case(engine=engine))
    assert "`tapsect` itself" in (folder / "README.md").read_text()
    assert not (folder / "engine.py").exists()
    taps = str(Path(debugtaps.__file__).parents[1])
    assert check(folder, env={"PYTHONPATH": taps})[0] == THERE
    code, said = check(folder)  # without the path: only where tapsect is installed does it run
    assert code == THERE or "pip install tapsect" in said


def test_weights_beside_the_model_are_taken_in(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["file"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("file", TensorProto.FLOAT, [1, 64])],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "model.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    values = {"x": np.ones((1, 64), np.float32)}
    answer = {"file": np.full((1, 64), 64, np.float32)}
    folder = write_case(tmp_path / "case", case(model=path, inputs=values, expected=answer))
    (tmp_path / "m" / "w.bin").unlink()
    assert check(folder)[0] == GONE


def test_a_case_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_case(tmp_path / "case", case())
    before = (folder / "check.py").read_text()
    write_case(folder, case(timeout=7.0))
    assert "7.0" in (folder / "check.py").read_text() != before

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(case_module, "write_json_atomic", fail)
    with pytest.raises(OSError, match="disk full"):
        write_case(folder, case())
    assert "7.0" in (folder / "check.py").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["case"]


def test_an_unwritable_place_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_case(tmp_path / "file" / "case", case())

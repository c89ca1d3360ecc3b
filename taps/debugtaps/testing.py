"""Is my engine one?  A suite that an engine's author runs on it.

You have written a class with ``build(model, taps)`` and want ``tapsect`` to bisect what it
compiles.  Nothing need be inherited and nothing registered; ``path/to/engine.py:Class`` is a
full name for it.  What the bisector needs of it is small, and is checked here:

* Every graph output comes back under its ONNX name.  A tap is a graph output by the time you
  see the model, so whoever returns all outputs returns all taps.  Return what you *computed*:
  a tap that is computed a second time, outside the engine, hides the very fault that is sought.
* ``feeds`` may name inputs that the model does not have.  The bisector runs many cuts of one
  model on one set of values.
* What you cannot do, raise.  An empty answer, or zeros, looks like a defect of the engine and
  will be reported as one.  Your process may also die or hang: the bisector looks on from
  another one.  After an exception the engine must still be usable.
* Sessions are independent.  Two may live at a time, in any order, and ``close`` gives back
  what one of them holds.
* Equal feeds should give equal bits.  When they do not, nothing breaks: the diagnosis runs more
  often and says so.  Hence this one is noted, not failed.

A type that your engine refuses with an exception is noted; a type that it takes and answers
wrongly, or under another type, fails.

In a test of your own:

    import pytest
    from debugtaps.testing import CHECKS, check

    @pytest.mark.parametrize("name", CHECKS)
    def test_my_engine(name):
        result = check(name, "my_package.engine:Mine")
        assert result.status != "failed", result.detail

or, for a glance at all of them, ``conformance("my_package.engine:Mine")``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnx
from onnx import parser
from onnx.onnx_ml_pb2 import ModelProto

from debugtaps.engines.contract import Array
from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure

__all__ = ["CHECKS", "CheckResult", "check", "conformance"]

Status = Literal["passed", "noted", "failed"]
Check = Callable[[Host, Path], str | None]

_CHAIN = """
    <ir_version: 8, opset_import: ["" : 17]>
    chain (float[2, 3] x) => (float[2, 3] y, float[2, 3] z)
    { [double] twice = Add(x, x)
      [square] y = Mul(twice, x)
      [turn] z = Neg(twice) }
"""
_TAKES_ALL = """
    <ir_version: 8, opset_import: ["" : 17]>
    types (TYPE[SHAPE] x) => (TYPE[SHAPE] y) { [last] y = Identity(x) }
"""
_NO_SUCH_OPERATOR = """
    <ir_version: 8, opset_import: ["" : 17]>
    bad (float[2, 3] x) => (float[2, 3] y) { [bad] y = NoSuchOperator(x) }
"""
_WEIGHTS = """
    <ir_version: 8, opset_import: ["" : 17]>
    weights (float[1, 2048] x) => (float[1, 2048] y) { [product] y = MatMul(x, w) }
"""
_X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found.

    Attributes:
        name: The check, a key of ``CHECKS``.
        status: ``noted`` means that the bisector copes, at a price.
        detail: What was seen and what was expected; empty when it passed.
    """

    name: str
    status: Status
    detail: str = ""


class _NotConforming(Exception):
    """The engine breaks the contract; the text says how."""


def _written(text: str, folder: Path, *taps: str) -> Path:
    model: ModelProto = parser.parse_model(text)
    for tap in taps:
        value = onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, [2, 3])
        model.graph.output.append(value)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def _expect(outputs: Mapping[str, Array], **wanted: Array) -> None:
    missing = sorted(wanted.keys() - outputs.keys())
    if missing:
        raise _NotConforming(f"run left out {', '.join(missing)}; it gave {sorted(outputs)}")
    for name, value in wanted.items():
        seen = outputs[name]
        if seen.shape != value.shape or seen.dtype != value.dtype:
            raise _NotConforming(
                f"output {name!r} is {seen.dtype}{list(seen.shape)}, "
                f"expected {value.dtype}{list(value.shape)}"
            )
        if not np.array_equal(seen, value):
            raise _NotConforming(f"output {name!r} is {seen.tolist()}, expected {value.tolist()}")


def _answers_all_outputs(host: Host, folder: Path) -> None:
    with host.build(_written(_CHAIN, folder)) as build:
        _expect(build.run({"x": _X}), y=2 * _X * _X, z=-2 * _X)


def _returns_taps(host: Host, folder: Path) -> None:
    promoted = () if host.promotes_taps else ("twice",)
    with host.build(_written(_CHAIN, folder, *promoted), ("twice",)) as build:
        _expect(build.run({"x": _X}), y=2 * _X * _X, z=-2 * _X, twice=2 * _X)


def _ignores_extra_feeds(host: Host, folder: Path) -> None:
    with host.build(_written(_CHAIN, folder)) as build:
        _expect(build.run({"x": _X, "not an input": _X}), y=2 * _X * _X)


def _repeats_itself(host: Host, folder: Path) -> str | None:
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    with host.build(_written(_CHAIN, folder)) as build:
        first, second = build.run({"x": x}), build.run({"x": x})
    differing = [name for name in first if first[name].tobytes() != second[name].tobytes()]
    return f"two runs on equal feeds differ in {', '.join(differing)}" if differing else None


def _survives_a_bad_model(host: Host, folder: Path) -> None:
    try:
        host.build(_written(_NO_SUCH_OPERATOR, folder)).run({"x": _X})
    except EngineFailure as failure:
        if failure.kind == "timeout":
            raise _NotConforming(f"a model it cannot build: {failure.message}") from failure
        if failure.kind == "crash":
            raise _NotConforming(
                f"a model it cannot build must raise; instead {failure.message}"
            ) from failure
    else:
        raise _NotConforming("an operator that does not exist was built and run; it must raise")
    _answers_all_outputs(host, folder)


def _keeps_sessions_apart(host: Host, folder: Path) -> None:
    first = host.build(_written(_CHAIN, folder))
    second = host.build(_written(_CHAIN, folder))
    _expect(second.run({"x": _X + 1}), z=-2 * (_X + 1))
    _expect(first.run({"x": _X}), z=-2 * _X)
    first.close()
    _expect(second.run({"x": _X}), z=-2 * _X)
    second.close()


def _frees_sessions(host: Host, folder: Path) -> str | None:
    path = _written(_WEIGHTS, folder)
    model = onnx.load(path)
    weights = np.full((2048, 2048), 0.5, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)
    x = np.ones((1, 2048), np.float32)
    sizes = []
    for _ in range(6):
        with host.build(path) as build:
            _expect(build.run({"x": x}), y=np.full((1, 2048), 1024, np.float32))
        sizes.append(_resident_bytes(host.pid))
    grown = sizes[-1] - sizes[1]
    if grown <= 3 * weights.nbytes:
        return None
    return f"four sessions of {weights.nbytes >> 20} MB, closed, left {grown >> 20} MB behind"


def _resident_bytes(pid: int) -> int:
    """Returns the memory of a process where Linux tells, else 0."""
    statm = Path(f"/proc/{pid}/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _describes_itself(host: Host, folder: Path) -> str | None:
    said = host.describe()
    lacking = [key for key in ("name", "versions", "device") if key not in said]
    return f"describe() lacks {', '.join(lacking)}" if lacking else None


def _takes(dtype: str, shape: tuple[int, ...], value: Array) -> Check:
    """Returns the check that tensors of a type and shape pass through unchanged."""

    def run(host: Host, folder: Path) -> str | None:
        dims = ", ".join(map(str, shape))
        text = _TAKES_ALL.replace("TYPE", dtype).replace("[SHAPE]", f"[{dims}]" if dims else "[]")
        try:
            with host.build(_written(text, folder)) as build:
                outputs = build.run({"x": value})
        except EngineFailure as failure:
            if failure.kind in ("build_error", "run_error"):
                return f"not taken: {failure.message.splitlines()[0]}"
            raise
        _expect(outputs, y=value)
        return None

    return run


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "answers all outputs": _answers_all_outputs,
        "returns taps": _returns_taps,
        "ignores extra feeds": _ignores_extra_feeds,
        "repeats itself": _repeats_itself,
        "survives a bad model": _survives_a_bad_model,
        "keeps sessions apart": _keeps_sessions_apart,
        "frees sessions": _frees_sessions,
        "describes itself": _describes_itself,
        "takes scalars": _takes("float", (), np.array(1.5, np.float32)),
        "takes empty tensors": _takes("float", (0, 3), np.zeros((0, 3), np.float32)),
        "takes int64": _takes("int64", (2,), np.array([-(2**40), 7], np.int64)),
        "takes bool": _takes("bool", (2,), np.array([True, False])),
        "takes float16": _takes("float16", (2,), np.array([0.1, 6e4], np.float16)),
    }
)


def _judge(name: str, host: Host, folder: Path) -> CheckResult:
    try:
        note = CHECKS[name](host, folder)
    except _NotConforming as broken:
        return CheckResult(name, "failed", str(broken))
    except EngineFailure as failure:
        if host.builds_only and failure.phase == "run":
            return CheckResult(name, "noted", "it builds; this engine runs nothing")
        text = f"{failure.kind} during {failure.phase}: {failure.message}\n{failure.tail}"
        return CheckResult(name, "failed", text.strip())
    return CheckResult(name, "noted" if note else "passed", note or "")


def check(
    name: str,
    spec: str,
    options: Mapping[str, Any] | None = None,
    *,
    python: Path | None = None,
    timeout: float = 60.0,
) -> CheckResult:
    """Returns what one check, a key of ``CHECKS``, finds in an engine.

    Args:
        name: The check.
        spec: The engine, as on the command line.
        options: Keyword arguments for its constructor.
        python: The interpreter to run it under; this one when not given.
        timeout: Seconds that a build or a run may take.
    """
    host = Host(resolve(spec, options), python=python, timeout=timeout)
    with host, tempfile.TemporaryDirectory() as folder:
        return _judge(name, host, Path(folder))


def conformance(
    spec: str,
    options: Mapping[str, Any] | None = None,
    *,
    python: Path | None = None,
    timeout: float = 60.0,
) -> list[CheckResult]:
    """Returns what every check finds in an engine; one process serves them all.

    Args:
        spec: The engine, as on the command line.
        options: Keyword arguments for its constructor.
        python: The interpreter to run it under; this one when not given.
        timeout: Seconds that a build or a run may take.
    """
    host = Host(resolve(spec, options), python=python, timeout=timeout)
    with host, tempfile.TemporaryDirectory() as folder:
        return [_judge(name, host, Path(folder)) for name in CHECKS]

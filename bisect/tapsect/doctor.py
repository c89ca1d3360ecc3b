"""Is the tool right on this machine?  What is installed, and a self-test of every engine.

A self-test plants faults around an engine, in a small network, and asks the same diagnosis that a
user asks: an engine without a fault must agree, a wrong operator must be named, and a fusion that
heals when it is looked at must be noticed.  An engine that only builds here (a compiler for a GPU
that is not there) is asked to name an operator that it is made to refuse.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, numpy_helper, parser

from debugtaps import (
    BUILTINS,
    CheckResult,
    Host,
    MissingPackage,
    TapsError,
    conformance,
    resolve,
    save,
)
from tapsect.diagnose.flow import diagnose
from tapsect.finding import Finding
from tapsect.progress import Progress, Silent

__all__ = ["Health", "Proof", "engines", "examine"]

State = Literal["works", "fails", "missing", "builds only"]

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
doctor (float[2, 3, 12, 12] x) => (float[2, 5] y)
{
    [first] a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    [bend] b = Relu (a)
    [second] c = Conv <pads = [1, 1, 1, 1]> (b, w2)
    [soft] d = Sigmoid (c)
    [mean] e = GlobalAveragePool (d)
    [flat] f = Flatten (e)
    [last] y = MatMul (f, w3)
}
"""
WEIGHTS = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 5)}
FUSED = ("first", "bend", "second")
LIMITS = "takes "
"""Checks of the suite that begin so ask for types and shapes an engine may well not take."""
BUILD_ONLY = "build_only=true"
"""What an engine's refusal names where it can build though nothing can run."""
SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Proof:
    """One self-test.

    Attributes:
        name: What was asked.
        passed: Whether it is as it must be; None where this engine cannot be asked.
        detail: What was seen.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """How one engine does here.

    Attributes:
        engine: As it is named on the command line.
        state: ``fails`` when a self-test does not come out, ``missing`` when its package is.
        says: Versions and device in its own words; how to install it; or why it fails.
        suite: What the conformance suite found.
        tests: The self-tests.
        seconds: How long it took.
    """

    engine: str
    state: State
    says: str = ""
    suite: tuple[CheckResult, ...] = ()
    tests: tuple[Proof, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the content as JSON types."""
        return asdict(self)


def engines() -> tuple[str, ...]:
    """Returns the engines that come with the tool, without its reference and its planted one."""
    return tuple(name for name in BUILTINS if name not in ("ort-reference", "planted"))


def examine(
    spec: str, options: Mapping[str, Any] | None = None, progress: Progress | None = None
) -> Health:
    """Returns how an engine does on this machine.

    Args:
        spec: The engine, as on the command line.
        options: Keyword arguments of its constructor.
        progress: Hears of each test.

    Raises:
        SpecError: It names no engine, or an option is not one of its own.
    """
    start, told = time.monotonic(), progress or Silent()
    told.step(spec, "loading it")
    try:
        with Host(resolve(spec, options), timeout=SECONDS) as host:
            says, builds_only = _says(host.describe()), host.builds_only
    except MissingPackage as missing:
        return Health(spec, "missing", str(missing), seconds=time.monotonic() - start)
    except TapsError as error:
        if error.exit_code == 2:
            raise
        if BUILD_ONLY in str(error):  # a compiler without its device
            return examine(spec, {**(options or {}), "build_only": True}, progress)
        return Health(spec, "fails", str(error), seconds=time.monotonic() - start)
    told.step(spec, "the conformance suite")
    suite = tuple(conformance(spec, options, timeout=SECONDS))
    tests = [_basics(suite)]
    with tempfile.TemporaryDirectory() as folder:
        patient = _Patient(spec, dict(options or {}), Path(folder))
        for test in patient.tests(builds_only=builds_only):
            told.step(spec, test.name)
            tests.append(test)
    state: State = "builds only" if builds_only else "works"
    if any(test.passed is False for test in tests):
        state = "fails"
    return Health(spec, state, says, suite, tuple(tests), time.monotonic() - start)


def _says(described: Mapping[str, Any]) -> str:
    """Returns an engine's versions, device and precision in one line."""
    versions = described.get("versions")
    names = versions if isinstance(versions, Mapping) else {}
    parts = [f"{name} {version}" for name, version in names.items() if name != "numpy"]
    parts += [str(described[key]) for key in ("device", "precision") if described.get(key)]
    return ", ".join(parts) or str(described.get("name", ""))


def _basics(suite: Sequence[CheckResult]) -> Proof:
    """Returns whether an engine keeps the contract; types that it does not take are its limits."""
    broken = [c for c in suite if c.status == "failed" and not c.name.startswith(LIMITS)]
    detail = "; ".join(f"{c.name}: {c.detail}" for c in broken)
    return Proof("keeps the contract", not broken, detail)


class _Patient:
    """One engine under test, with the network that faults are planted in."""

    def __init__(self, spec: str, options: dict[str, Any], folder: Path) -> None:
        self.spec, self.options, self.folder = spec, options, folder
        rng = np.random.default_rng(0)
        model: ModelProto = parser.parse_model(NETWORK)
        for name, shape in WEIGHTS.items():
            drawn = rng.standard_normal(shape).astype(np.float32) / 4
            model.graph.initializer.append(numpy_helper.from_array(drawn, name))
        self.model = save(model, folder / "network.onnx")
        self.feeds = {"x": rng.standard_normal((2, 3, 12, 12)).astype(np.float32)}

    def tests(self, *, builds_only: bool) -> Iterator[Proof]:
        """Yields the self-tests one by one."""
        if builds_only:
            yield Proof("agrees where nothing is wrong", None, "it builds here and runs nothing")
            yield self._refused()
            return
        yield self._sound()
        yield self._wrong()
        yield self._healing()

    def _sound(self) -> Proof:
        """An engine without a fault agrees, or differs by the precision it computes in."""
        name = "agrees where nothing is wrong"
        found = self._asked(name, None)
        if isinstance(found, Proof):
            return found
        honest = found.status == "agrees" or found.cause == "precision_limit"
        return Proof(name, honest, found.message)

    def _wrong(self) -> Proof:
        """One wrong operator is named, through taps that change nothing."""
        name = "finds a planted fault"
        found = self._asked(name, {"kind": "value", "nodes": ["second"], "scale": 1.5})
        if isinstance(found, Proof):
            return found
        return Proof(name, found.culprit_nodes == ("second",), found.message)

    def _healing(self) -> Proof:
        """A fusion that heals when it is looked at is named, and the observer proof told."""
        name = "notices taps that heal a fault"
        fault = {"kind": "fusion", "nodes": list(FUSED), "scale": 1.5}
        found = self._asked(name, fault)
        if isinstance(found, Proof):
            return found
        healed = any(s.step == "taps" and "changed the failure" in s.why for s in found.trail)
        culprits = frozenset(found.culprit_nodes)
        return Proof(name, healed and culprits == frozenset(FUSED), found.message)

    def _refused(self) -> Proof:
        """An operator that the builder is made to refuse is named without a single run."""
        name = "finds a planted fault"
        found = self._asked(name, {"kind": "build_error", "nodes": ["second"]})
        if isinstance(found, Proof):
            return found
        return Proof(name, found.culprit_nodes == ("second",), found.message)

    def _asked(self, name: str, fault: Mapping[str, Any] | None) -> Finding | Proof:
        """Returns what the diagnosis says, or the test as failed where it could not be made."""
        planted = {"inner": self.spec, "inner_options": self.options, "faults": [fault]}
        engine, options = (self.spec, self.options) if fault is None else ("planted", planted)
        out = self.folder / name.replace(" ", "-")
        try:
            return diagnose(
                self.model, inputs=[self.feeds], engine=engine, engine_options=options,
                timeout=SECONDS, budget=0.0, out=out,
            )  # fmt: skip
        except TapsError as error:
            return Proof(name, passed=False, detail=str(error))

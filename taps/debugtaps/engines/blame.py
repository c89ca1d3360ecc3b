"""Names for what went wrong in a child: pure functions from what was seen to an error.

========================================  ================  ===================================
seen                                      kind              message
========================================  ================  ===================================
an exception in build, in run             build_error,      ``Type: text``
                                          run_error
``MemoryError``, "out of memory" …        out_of_memory     the same
``TimeoutError``                          timeout           the same
``BadOption``, by that name               (SpecError)       the text
death by a signal, an exit                crash             the signal's name, the exit code
SIGKILL that was not ours                 out_of_memory     the kernel ends what takes too much
SIGABRT with ``std::bad_alloc`` printed   out_of_memory     the signal's name
no answer in time                         timeout           the limit
a file that is not as the answer says     crash             what is there, what was expected
========================================  ================  ===================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debugtaps.engines.child import signal_name
from debugtaps.engines.registry import EngineSpec
from debugtaps.errors import (
    EngineFailure,
    FailureKind,
    MissingPackage,
    Phase,
    SpecError,
    TapsError,
    WorkerError,
)

__all__ = ["died", "ending", "load_died", "load_refused", "raised", "timed_out", "torn"]

_NO_MEMORY = re.compile(
    r"out of memory|outofmemory|bad[_ ]alloc|cannot allocate memory|failed to allocate memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)


def raised(
    spec: EngineSpec, error: Mapping[str, Any], phase: Phase, tail: str
) -> EngineFailure | SpecError:
    """Returns the failure of a build or run that raised, or that its author broke the contract."""
    if "ContractBroken" in error["kinds"]:
        return SpecError(f"engine {spec.spec!r} does not keep the contract: {error['text']}")
    if "BadOption" in error["kinds"]:
        return SpecError(f"engine {spec.spec!r}: {error['text']}")
    kind: FailureKind = "build_error" if phase == "build" else "run_error"
    if "MemoryError" in error["kinds"] or _NO_MEMORY.search(error["text"]):
        kind = "out_of_memory"
    elif "TimeoutError" in error["kinds"]:
        kind = "timeout"
    return EngineFailure(kind, phase, f"{error['type']}: {error['text']}".strip(), tail)


def died(code: int, phase: Phase, tail: str) -> EngineFailure:
    """Returns the failure of a child that ended without an answer."""
    name = signal_name(code)
    no_memory = name == "SIGKILL" or (name == "SIGABRT" and "bad_alloc" in tail)
    message = f"the engine's process {ending(code)} during {phase}"
    if name == "SIGKILL":
        message += "; the system does that to a process that takes too much memory"
    return EngineFailure("out_of_memory" if no_memory else "crash", phase, message, tail)


def ending(code: int) -> str:
    """Returns how a process ended, in words.

    >>> ending(-11), ending(3)
    ('was ended by SIGSEGV', 'exited with code 3')
    """
    name = signal_name(code)
    return f"exited with code {code}" if name is None else f"was ended by {name}"


def timed_out(limit: float, phase: Phase, tail: str) -> EngineFailure:
    """Returns the failure of a build or run that had not answered at its limit."""
    return EngineFailure("timeout", phase, f"the {phase} gave no answer in {limit:g} s", tail)


def torn(seen: str, phase: Phase, tail: str) -> EngineFailure:
    """Returns the failure of a child whose arrays do not lie where its answer says."""
    return EngineFailure("crash", phase, f"the engine's process left a torn answer: {seen}", tail)


def load_refused(
    spec: EngineSpec, python: Path | None, header: Mapping[str, Any], tail: str
) -> TapsError:
    """Returns the error of an engine that could not be loaded."""
    refused = header.get("refused")
    if refused == "class":
        return SpecError(f"engine {spec.spec!r}: {header['text']}")
    if refused == "options":
        return SpecError(_options_text(spec, header))
    if refused == "import":
        return MissingPackage(_import_text(spec, python, header))
    error = header["error"]
    said = f"{error['type']}: {error['text']}"
    if "SyntaxError" in error["kinds"]:
        return SpecError(f"engine {spec.spec!r} is not valid Python: {said}")
    return WorkerError(f"engine {spec.spec!r} could not be set up: {said}{_where(tail)}")


def _where(tail: str) -> str:
    """Returns the line of the user's code at which a printed traceback ends."""
    places = re.findall(r'File "([^"]+)", line (\d+)', tail)
    return f" ({Path(places[-1][0]).name}, line {places[-1][1]})" if places else ""


def load_died(spec: EngineSpec, python: Path | None, code: int, tail: str) -> WorkerError:
    """Returns the error of a worker that ended while it loaded its engine."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    said = f"; the last it printed: {lines[-1][:300]}" if lines else ""
    mend = ""
    if python is not None and not said:
        mend = f"; is {python} a Python interpreter? Give one with --engine-python"
    return WorkerError(
        f"the worker of {spec.spec!r} {ending(code)} while it loaded the engine{said}{mend}"
    )


def _options_text(spec: EngineSpec, header: Mapping[str, Any]) -> str:
    takes = ", ".join(header["takes"]) or "none"
    given = ", ".join(spec.options) or "none"
    return (
        f"engine {spec.spec!r} does not take these options: {header['text']}; "
        f"given: {given}; its options: {takes}"
    )


def _import_text(spec: EngineSpec, python: Path | None, header: Mapping[str, Any]) -> str:
    package = str(header["package"]).partition(".")[0]
    seen = f"engine {spec.spec!r} cannot be imported: {header['text']}"
    if python is not None:
        wanted = "numpy" if package == "numpy" else spec.package or package
        line = f"; install it there: {python} -m pip install {wanted}" if wanted else ""
        return f"{seen}, in the interpreter {python}{line}"
    if spec.needs is not None:
        return f"{seen}; install it: pip install 'tapsect[{spec.needs}]'"
    wanted = spec.package or package
    return f"{seen}; install it: pip install {wanted}" if wanted else seen

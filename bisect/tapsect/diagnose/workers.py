"""The two workers of a diagnosis, begun before the parent has loaded what it needs itself.

Loading an engine takes as long as loading the rest of this program: both go on side by side when
the workers are the first thing that a command begins.  Nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debugtaps import EngineSpec, Host, InputError, SpecError, resolve

__all__ = ["Workers", "begun", "truth_of", "workers"]


@dataclass(frozen=True, slots=True)
class Workers:
    """Engine and reference.

    Attributes:
        engine, truth: Their workers.
        specs: What they load.
        golden: The file of golden values, where one was given as the reference.
    """

    engine: Host
    truth: Host
    specs: tuple[EngineSpec, EngineSpec]
    golden: Path | None

    def start(self) -> None:
        """Starts both; waits for neither."""
        self.engine.start()
        self.truth.start()

    def close(self) -> None:
        """Ends both."""
        self.engine.close()
        self.truth.close()


def workers(
    engine: str, options: Mapping[str, Any], python: Path | None, reference: str | Path | None,
    timeout: float,
) -> Workers:  # fmt: skip
    """Returns the workers of a diagnosis, not started.

    Raises:
        SpecError: There is no such engine, reference or interpreter.
        InputError: There is no such file of golden values.
    """
    spec = resolve(engine, options)
    golden, truth = truth_of(reference)
    if python is not None and not python.exists():
        raise SpecError(f"--engine-python {python}: no such file; name a Python")
    # The time-out is for builds and runs, which name it; loading an engine takes what it takes.
    patience = max(timeout, 600.0)
    host = Host(spec, python=python, timeout=patience)
    return Workers(host, Host(truth, timeout=patience), (spec, truth), golden)


@contextmanager
def begun(
    engine: str, options: Mapping[str, Any], python: Path | None, reference: str | Path | None,
    timeout: float,
) -> Iterator[Workers]:  # fmt: skip
    """Gives the workers, which begin to load at once; they end with it.

    Raises:
        SpecError, InputError: As ``workers``.
        WorkerError: A worker cannot be started.
    """
    both = workers(engine, options, python, reference, timeout)
    try:
        both.start()
        yield both
    finally:
        both.close()


def truth_of(reference: str | Path | None) -> tuple[Path | None, EngineSpec]:
    """Returns the file of golden values, if one was given, and the engine that is believed.

    Raises:
        InputError: There is no such file.
        SpecError: It names no engine.
    """
    if reference is None:
        return None, resolve("ort-reference", {})
    text = str(reference)
    if text.endswith((".npz", ".json")):
        if not Path(text).is_file():
            raise InputError(f"--reference {text}: no such file; expected golden values")
        return Path(text), resolve("ort-reference", {})
    return None, resolve(text, {})

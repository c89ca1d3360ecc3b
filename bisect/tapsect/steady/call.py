"""``tapsect.repeat``: building again and again, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from debugtaps import UsageError
from tapsect.axes.repeat import Until
from tapsect.checks import Ask, CommandLine
from tapsect.diagnose.given import Options, Source, as_path
from tapsect.progress import Progress
from tapsect.steady.again import Repeated, repeat_builds
from tapsect.steady.plan import CANDIDATE, Check, Plan

__all__ = ["repeat"]


def repeat(
    model: str | Path,
    *,
    until: int | str | None = None,
    runs: int | None = None,
    check: Sequence[str] | CommandLine | None = None,
    ask: Ask | None = None,
    inputs: Sequence[Source] = (),
    engine: str = "ort",
    engine_options: Mapping[str, Any] | None = None,
    save_tactics: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    **options: Any,
) -> Repeated:
    """Builds a model again and again, and tells how often the build is bad.

    Args:
        model: An ONNX file, its external weights beside it.
        until: So many builds, or until the first ``"good"`` or ``"bad"`` one; until the answer is
            certain if None.
        runs: How often each build is run and judged: 3 by the reference, else 1, if None.
        check: A command that judges, ``{engine}``, ``{model}`` and ``{inputs}`` in its words
            replaced; the reference judges where neither this nor ``ask`` is given.
        ask: Asks a person who judges.
        inputs: As for ``tapsect.bisect``.
        engine: The engine under suspicion.
        engine_options: Keyword arguments of the engine.
        save_tactics: A file for what each build chose.
        jobs: Builds at a time, where the reference judges.
        progress: Hears of each build.
        **options: ``reference``, ``tolerance``, ``timeout``, ``out`` and other arguments of
            ``tapsect.bisect``.

    Returns:
        The finding and each attempt.

    Raises:
        TapsError: Something that was given cannot be used, or no build could be judged.
    """
    when = Until.parse(None if until is None else str(until))
    if when is None:
        raise UsageError(f"until={until!r} is neither a number from 1 on, 'good' nor 'bad'")
    if check is not None and ask is not None:
        raise UsageError("check and ask exclude each other; give one")
    line = check if isinstance(check, CommandLine) or check is None else _command(check)
    count = runs if runs is not None else 3 if check is None and ask is None else 1
    given = Options(
        Path(model), tuple(inputs), engine=engine, engine_options=dict(engine_options or {}),
        command=("tapsect.repeat",), **{k: _read(k, v) for k, v in options.items()},
    )  # fmt: skip
    plan = Plan(given, Check(line, ask, count), when, as_path(save_tactics), jobs)
    return repeat_builds(plan, progress=progress)


def _read(name: str, value: Any) -> Any:
    return as_path(value) if name in ("engine_python", "reference_model", "out") else value


def _command(words: Sequence[str]) -> CommandLine:
    return CommandLine(tuple(words), artifact=CANDIDATE)

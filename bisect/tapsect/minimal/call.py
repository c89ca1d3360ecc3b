"""``tapsect.reduce``: a reduction from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from debugtaps import Tolerance
from tapsect.checks import CommandLine
from tapsect.diagnose.given import Options, Source, as_path
from tapsect.minimal.flow import Minimized, minimize
from tapsect.minimal.plan import Mode, Plan
from tapsect.progress import Progress
from tapsect.reduction import Confirm

__all__ = ["reduce"]


def reduce(
    model: str | Path,
    *,
    check: Sequence[str] | CommandLine | None = None,
    ask: Callable[[str], str] | None = None,
    engine: str = "ort",
    engine_options: Mapping[str, Any] | None = None,
    engine_python: str | Path | None = None,
    reference: str | Path | None = None,
    reference_model: str | Path | None = None,
    judge: str | None = None,
    inputs: Sequence[Source] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    precision: str | None = None,
    tolerance: Tolerance | None = None,
    output: str | Path = "reduced.onnx",
    out: str | Path | None = None,
    mode: Mode = "full",
    passes: Sequence[str] = (),
    golden: Literal["once", "each"] = "once",
    keep_inputs: bool = False,
    keep_outputs: bool = False,
    confirm: tuple[int, int] | None = None,
    jobs: int = 1,
    min_good: str | Path | None = None,
    timeout: float = 600.0,
    budget: float = 120.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Minimized:
    """Reduces a failing model to the smallest one that fails the same way.

    Args:
        model: An ONNX file that fails, its external weights beside it.
        check: A command that judges: its words, in which ``{model}`` and ``{inputs}`` are
            replaced, or a ``CommandLine`` with rules of its own.
        ask: Asks a person who judges.
        engine: Checked against the reference when neither of both is given.
        engine_options: Keyword arguments of the engine.
        engine_python: Another interpreter to run it under.
        reference: The reference engine, or a file of golden values for the whole model.
        reference_model: The fp32 original of a converted model.
        judge: ``file.py:function`` that says why outputs of the whole fail.
        inputs: As for ``tapsect.bisect``.
        input_shapes: Shapes for random data, by input.
        precision: The precision the engine is meant to compute in; the model's types otherwise.
        tolerance: The user's own rule, in place of floors.
        output: Where the reduced model is written.
        out: Folder for the case and the result; ``tapsect-reduce-<model>`` if None.
        mode: ``full`` ends where no node can go; ``bisect`` and ``linear`` in one stretch.
        passes: Names of passes, or the groups ``nodes`` and ``model``; all of them if empty.
        golden: Whether parts are fed recorded values, or drawn ones.
        keep_inputs: Whether no inner tensor becomes an input.
        keep_outputs: Whether the outputs stay.
        confirm: ``(k, n)``: the failure is flaky, and the end must fail k of n times.
        jobs: Checks at a time.
        min_good: Where the nearest passing model is written.
        timeout: Seconds that one build or run may take.
        budget: Seconds for what only makes the model plainer.
        seed: Of random data and noise.
        progress: Hears of each step.

    Returns:
        Exit status 0 and the finding; 3 when the model does not fail, and nothing was written;
        130 when it was interrupted, and the best so far was written.

    Raises:
        TapsError: Input, environment or reference cannot be used; ``exit_code`` says which.
    """
    line = check if isinstance(check, CommandLine) or check is None else CommandLine(tuple(check))
    options = Options(
        Path(model), tuple(inputs), input_shapes, engine, dict(engine_options or {}),
        as_path(engine_python), reference, as_path(reference_model), precision, tolerance, judge,
        timeout=timeout, budget=budget, out=as_path(out), seed=seed, command=("tapsect.reduce",),
    )  # fmt: skip
    plan = Plan(
        options, Path(output), line, ask, mode, tuple(passes), golden, keep_inputs, keep_outputs,
        confirm=None if confirm is None else Confirm(*confirm), jobs=jobs,
        min_good=as_path(min_good),
    )  # fmt: skip
    return minimize(plan, progress=progress)

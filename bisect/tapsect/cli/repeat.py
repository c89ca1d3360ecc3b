"""``tapsect repeat``: build again and again, and say how often the build is bad."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapsect.cli import checking as c
from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching

if TYPE_CHECKING:
    from tapsect.axes.repeat import Until
    from tapsect.checks import Artifacts, CommandLine
    from tapsect.diagnose.given import Options
    from tapsect.steady import Check, Repeated

__all__ = ["AskMe", "Runs", "add_to", "check_of", "options_of"]

UntilWhen = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="N|good|bad",
        help="After N builds, or at the first good or bad one (given up after 59 others). When not "
        "given: until the answer is certain, about 20 builds.",
    ),
]  # fmt: skip
Runs = Annotated[
    int | None,
    typer.Option(
        "--runs", metavar="N", min=1,
        help="How often each build is run and judged: 3 by the reference, else 1.",
    ),
]  # fmt: skip
AskMe = Annotated[bool, typer.Option("--ask", help="You say whether each build is good.")]
SaveTactics = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Write what the builder chose; sorted into good/ and bad/ of --artifacts-dir.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Build again and again: how often is the build bad?")(repeat)


def repeat(
    model: o.ModelFile,
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    reference: o.Reference = None,
    precision: o.Precision = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    judge: o.Judge = None,
    until: UntilWhen = None,
    runs: Runs = None,
    ask: AskMe = False,
    save_tactics: SaveTactics = None,
    jobs: o.Jobs = 1,
    artifacts: c.ArtifactFiles = None,
    artifacts_dir: c.ArtifactsDir = Path("tapsect_artifacts"),
    fail_regex: c.FailRegex = None,
    fail_code: c.FailCode = None,
    ignore_fail_code: c.IgnoreFailCode = None,
    check_timeout: c.CheckTimeout = None,
    timeout: o.Timeout = 600.0,
    out: o.Out = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    check: c.CheckCommand = None,
) -> int:
    """Builds a model again and again, and says how often the build is bad.

    Good or bad is said by the reference, by a command (--check) or by you (--ask). For these two
    each build is saved as tapsect_candidate.engine, a folder with what the engine saves.

    \b
    Examples:
      tapsect repeat model.onnx --engine my_engine.py:Engine --inputs sample.npz
      tapsect repeat model.onnx --until bad --save-tactics tactics.json
      tapsect repeat model.onnx --until 10 --check python my_check.py {engine}

    \b
    Exit status:
      0  all builds are good    1  some are bad
      2  wrong usage or input, or no build could be judged    4  the environment failed
      130  interrupted: what was built counts, and the same command continues
    """
    from tapsect.folder import check_folder, make_folder
    from tapsect.report import write_reports
    from tapsect.steady import CANDIDATE, Plan, repeat_builds

    folder = out or Path(f"tapsect-repeat-{model.stem}")
    check_folder(folder)
    options = options_of(
        model, inputs, input_shapes, engine, engine_option, engine_python, reference, precision,
        atol, rtol, judge, timeout, folder, seed,
    )  # fmt: skip
    line = c.command_line(check, fail_regex, fail_code, ignore_fail_code, check_timeout, CANDIDATE)
    files = [*(artifacts or ()), *([save_tactics] if save_tactics else ())]
    made = check_of(line, runs, ask=ask, artifacts=c.sorted_artifacts(files, artifacts_dir))
    plan = Plan(options, made, _until(until), save_tactics, jobs)
    with watching(quiet=quiet or ask) as progress:
        found = repeat_builds(plan, progress=progress)
    write_reports(make_folder(found.folder), found.finding)
    _print(found, artifacts_dir if save_tactics else None, quiet=quiet, as_json=as_json)
    return int(found.finding.exit_code)


def options_of(
    model: Path, inputs: list[str] | None, input_shapes: list[str] | None, engine: str,
    engine_option: list[str] | None, engine_python: Path | None, reference: str | None,
    precision: str | None, atol: list[str] | None, rtol: list[str] | None, judge: str | None,
    timeout: float, folder: Path, seed: int,
) -> Options:  # fmt: skip
    """Returns model, inputs, engine and reference as the commands around builds take them."""
    from debugtaps import Tolerance, parse_input_shapes, parse_options
    from tapsect.diagnose.given import Options

    return Options(
        model, tuple(inputs or ()), parse_input_shapes(input_shapes or ()) or None, engine,
        parse_options(engine_option or ()), engine_python, reference, precision=precision,
        tolerance=Tolerance.parse(atol=atol or (), rtol=rtol or ()), judge=judge, timeout=timeout,
        out=folder, seed=seed, command=("tapsect", *sys.argv[1:]),
    )  # fmt: skip


def check_of(
    line: CommandLine | None, runs: int | None, *, ask: bool, artifacts: Artifacts | None = None
) -> Check:
    """Returns who says good or bad.

    Raises:
        UsageError: A command and a person at once.
    """
    from debugtaps import UsageError
    from tapsect.steady import Check

    if ask and line is not None:
        raise UsageError("--ask and --check exclude each other; give one.")
    by_reference = line is None and not ask
    count = runs if runs is not None else 3 if by_reference else 1
    return Check(line, c.ask_person if ask else None, count, artifacts)


def _until(text: str | None) -> Until:
    from debugtaps import UsageError
    from tapsect.axes.repeat import Until

    found = Until.parse(text)
    if found is None:
        raise UsageError(f"--until {text!r} is neither a number from 1 on, good nor bad.")
    return found


def _print(found: Repeated, artifacts: Path | None, *, quiet: bool, as_json: bool) -> None:
    from tapsect.escape import clean

    if as_json:
        say(json.dumps(found.finding.to_json(), indent=2, allow_nan=False))
        return
    say(clean(found.finding.message, limit=2000))
    if quiet:
        return
    chosen = found.finding.repeats.chosen if found.finding.repeats is not None else ()
    for note in (*found.finding.notes, *chosen, f"stopped: {found.tally.stopped}"):
        say(clean(f"  {note}", limit=500))
    if found.differing and artifacts is not None:
        say(f"\nProve it: tapsect tactics prove MODEL --dir {clean(str(artifacts))}")
    say(f"\nWritten to {clean(str(found.folder))}: report.md, result.json")

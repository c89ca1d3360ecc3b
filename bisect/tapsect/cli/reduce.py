"""``tapsect reduce``: any failing model, any check, the smallest model that fails the same way."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapsect.cli import checking as c
from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching

if TYPE_CHECKING:
    from tapsect.minimal import Plan

__all__ = ["add_to"]

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file that fails.")]
EngineUnder = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="SPEC",
        help="Check this engine against the reference: ort, file.py:Class, package.module:Class.",
    ),
]  # fmt: skip
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where the reduced model goes.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--model-input-shapes", "--input-shapes", metavar="NAME:[D,...]...",
        help="Shapes for random data, e.g. x:[1,3,8,8]. A dynamic dimension without is 1.",
    ),
]  # fmt: skip
Mode = Annotated[
    str,
    typer.Option(
        metavar="bisect|linear|full",
        help="bisect: a contiguous part by halves; linear: node by node; full: all passes, until "
        "no node can go.",
    ),
]


def _show_passes(asked: list[str] | None) -> list[str] | None:
    if asked and "list" in asked:
        from tapsect.minimal import passes_table

        say(passes_table())
        raise typer.Exit
    return asked


Passes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME...",
        callback=_show_passes,
        is_eager=True,
        help="Only these passes, or the groups nodes and model; 'list' prints them.",
    ),
]
IterArtifact = Annotated[
    Path, typer.Option(metavar="FILE", help="Where each candidate stands while it is checked.")
]
Golden = Annotated[
    str,
    typer.Option(
        metavar="once|each",
        help="What parts are fed: values recorded once in the whole, or drawn for each.",
    ),
]
KeepInputs = Annotated[
    bool, typer.Option("--no-reduce-inputs", help="No inner tensor becomes an input.")
]
KeepOutputs = Annotated[bool, typer.Option("--no-reduce-outputs", help="The outputs stay.")]
FoldSize = Annotated[
    str, typer.Option(metavar="SIZE", help="Largest constant that folding may make, e.g. 16MiB.")
]
ConfirmOf = Annotated[
    str | None,
    typer.Option(
        "--confirm", metavar="K/N",
        help="The check may be flaky: measure its rate; the end must fail K of N times.",
    ),
]  # fmt: skip
MinGood = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the nearest model that passes here, too."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Reduce a failing model, by any check.")(reduce)


def reduce(
    model: ModelFile,
    inputs: o.Inputs = None,
    model_input_shapes: Shapes = None,
    engine: EngineUnder = None,
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    reference: o.Reference = None,
    reference_model: o.ReferenceModel = None,
    precision: o.Precision = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    check_error_stat: o.CheckErrorStat = None,
    max_mape: o.MaxMape = None,
    judge: o.Judge = None,
    output: Output = Path("reduced.onnx"),
    mode: Mode = "full",
    passes: Passes = None,
    golden: Golden = "once",
    no_reduce_inputs: KeepInputs = False,
    no_reduce_outputs: KeepOutputs = False,
    fold_size_threshold: FoldSize = "16MiB",
    confirm: ConfirmOf = None,
    jobs: o.Jobs = 1,
    min_good: MinGood = None,
    iter_artifact: IterArtifact = Path("tapsect_candidate.onnx"),
    artifacts: c.ArtifactFiles = None,
    artifacts_dir: c.ArtifactsDir = Path("tapsect_artifacts"),
    fail_regex: c.FailRegex = None,
    fail_code: c.FailCode = None,
    ignore_fail_code: c.IgnoreFailCode = None,
    check_timeout: c.CheckTimeout = None,
    timeout: o.Timeout = 600.0,
    budget: o.Budget = 120.0,
    out: o.Out = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    check: c.CheckCommand = None,
) -> int:
    """Reduces a failing model to the smallest one that fails the same way.

    What fails is said by a command (--check), by the engine against the reference (--engine), or,
    with neither, by you: each candidate is written and asked about.

    \b
    Examples:
      tapsect reduce model.onnx --engine my_engine.py:Engine --inputs sample.npz
      tapsect reduce model.onnx --engine tensorrt --reference golden.npz --judge boxes.py:differ
      tapsect reduce model.onnx -o small.onnx --check python my_check.py {model} {inputs}
      tapsect reduce model.onnx --fail-regex "Op: Mul" --check tapsect inspect {model} --show nodes
      tapsect reduce --passes list

    \b
    Exit status:
      0  written; no node of it can be removed or bypassed (--mode full)
      3  the model does not fail, or not each time: nothing was written
      2  wrong usage or input    4  the environment failed
      130  interrupted: the best so far was written, and the same command continues
    """
    from debugtaps import parse_options
    from tapsect.folder import check_folder

    folder = out or Path(f"tapsect-reduce-{model.stem}")
    check_folder(folder)
    settings = parse_options(engine_option or ())
    builtin = check is None and bool(engine or engine_option or engine_python)
    with ExitStack() as stack:
        begun = None
        if builtin:  # engine and reference load while the rest of the program does
            from tapsect.diagnose.workers import begun as begin

            given = (engine or "ort", settings, engine_python, reference, timeout)
            begun = stack.enter_context(begin(*given))
        from debugtaps import Tolerance, parse_input_shapes
        from tapsect.cli.values import parse_memory
        from tapsect.diagnose.given import Options
        from tapsect.minimal import Plan, minimize

        options = Options(
            model, tuple(inputs or ()), parse_input_shapes(model_input_shapes or ()) or None,
            engine or "ort", settings, engine_python, reference, reference_model, precision,
            Tolerance.parse(
                atol=atol or (), rtol=rtol or (), check_error_stat=check_error_stat or (),
                max_mape=max_mape or (),
            ),
            judge, timeout=timeout, budget=budget, out=folder, seed=seed,
            command=("tapsect", *sys.argv[1:]),
        )  # fmt: skip
        line = c.command_line(
            check, fail_regex, fail_code, ignore_fail_code, check_timeout, iter_artifact
        )
        plan = Plan(
            options, output, line, None if line is not None or builtin else c.ask_person,
            c.one_of("--mode", mode, ("bisect", "linear", "full")), _names(passes),
            c.one_of("--golden", golden, ("once", "each")), no_reduce_inputs, no_reduce_outputs,
            parse_memory(fold_size_threshold), _confirm(confirm), jobs, min_good,
            c.sorted_artifacts(artifacts, artifacts_dir), begun,
        )  # fmt: skip
        return _run(plan, minimize, quiet=quiet or plan.ask is not None, as_json=as_json)


def _run(plan: Plan, minimize: Any, *, quiet: bool, as_json: bool) -> int:
    from debugtaps import Interrupted
    from tapsect.escape import clean

    with watching(quiet=quiet) as progress:
        done = minimize(plan, progress=progress)
    if done.exit_code == Interrupted.exit_code:
        raise Interrupted(done.message)
    if done.finding is None:
        sys.stderr.write(f"tapsect: {clean(done.message, limit=2000)}\n")
        return int(done.exit_code)
    if as_json:
        say(json.dumps(done.finding.to_json(), indent=2, allow_nan=False))
        return 0
    say(clean(done.message, limit=2000))
    if not quiet or plan.ask is not None:
        for note in done.finding.notes:
            say(clean(f"  {note}", limit=500))
        say(f"\nWritten: {plan.output}, and {done.folder} with case/ and result.json")
    return 0


def _names(passes: list[str] | None) -> tuple[str, ...]:
    return tuple(name for each in passes or () for name in each.split(",") if name)


def _confirm(text: str | None) -> Any:
    from debugtaps import UsageError
    from tapsect.reduction import Confirm

    if text is None:
        return None
    need, slash, of = text.partition("/")
    if not (slash and need.isdigit() and of.isdigit() and 1 <= int(need) <= int(of)):
        raise UsageError(f"--confirm {text!r} is not of the form K/N, as 2/3.")
    return Confirm(int(need), int(of))

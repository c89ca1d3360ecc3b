"""``tapsect fix``: which change cures the failure, measured before and after."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapsect.cli import options as o
from tapsect.cli.crash import Crash
from tapsect.cli.output import say
from tapsect.cli.progress import watching

if TYPE_CHECKING:
    from tapsect.finding import Finding, Fix

__all__ = ["add_to"]

Knob = Annotated[
    list[str] | None,
    typer.Option(
        "--knob", metavar="NAME...",
        help="Turn only these options of the engine; a wrong name lists those there are.",
    ),
]  # fmt: skip
FoldSize = Annotated[
    str,
    typer.Option(
        "--fold-size-threshold", metavar="SIZE",
        help="A constant may grow up to this when constants are folded, which is tried first.",
    ),
]  # fmt: skip
Frozen = Annotated[
    list[str] | None,
    typer.Option(
        "--override-input-shapes", metavar="NAME:[D,...]...",
        help="Freeze inputs at these shapes for that; the first sample's when not given.",
    ),
]  # fmt: skip
PrecisionSet = Annotated[
    bool,
    typer.Option(
        "--precision-set",
        help="Look for the nodes that must stay in fp32; the mixed model is written.",
    ),
]

FixBudget = Annotated[
    float,
    typer.Option(
        "--budget", metavar="SECONDS", min=0.0,
        help="Time to look for cures, and as much to make the failing case smaller.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Find the setting that cures the failure.")(fix)


def fix(
    model: o.ModelFile,
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    reference: o.Reference = None,
    reference_model: o.ReferenceModel = None,
    precision: o.Precision = None,
    knob: Knob = None,
    precision_set: PrecisionSet = False,
    fold_size_threshold: FoldSize = "10MB",
    override_input_shapes: Frozen = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    judge: o.Judge = None,
    timeout: o.Timeout = 600.0,
    budget: FixBudget = 120.0,
    jobs: o.Jobs = 1,
    out: o.Out = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> int:
    """Finds the smallest set of settings that cures the failure, and measures what it costs.

    Locates the failure first, as bisect does: what cures the smallest case is tried on the model.

    \b
    Examples:
      tapsect fix model.onnx --inputs sample.npz
      tapsect fix model.onnx --knob disabled_optimizers
      tapsect fix model.onnx --engine openvino --knob INFERENCE_PRECISION_HINT
      tapsect fix model_fp16.onnx --reference-model model.onnx --precision-set

    \b
    Exit status:
      0  a cure was found
      3  none was found, or the engine agrees
      2  wrong usage or input    4  the environment failed    130  interrupted, can be continued
    """
    import tapsect
    from debugtaps import TapsError, Tolerance, parse_input_shapes, parse_options
    from tapsect.cli.values import parse_memory
    from tapsect.folder import check_folder, make_folder
    from tapsect.report import write_reports

    folder = out or Path(f"tapsect-{model.stem}")
    check_folder(folder)
    fold_size = parse_memory(fold_size_threshold, "--fold-size-threshold")
    shapes = parse_input_shapes(override_input_shapes or (), "--override-input-shapes")
    try:
        with watching(quiet=quiet) as progress:
            finding = tapsect.fix(
                model, knobs=knob or (), precision_set=precision_set, fold_size=fold_size,
                shapes=shapes or None, inputs=inputs or (),
                input_shapes=parse_input_shapes(input_shapes or ()) or None, engine=engine,
                engine_options=parse_options(engine_option or ()) or None,
                engine_python=engine_python, reference=reference,
                reference_model=reference_model, precision=precision,
                tolerance=Tolerance.parse(atol=atol or (), rtol=rtol or ()), judge=judge,
                timeout=timeout, budget=budget, jobs=jobs, out=folder, seed=seed, progress=progress,
                command=("tapsect", *sys.argv[1:]),
            )  # fmt: skip
        write_reports(make_folder(folder), finding)
    except TapsError:
        raise
    except Exception as error:
        raise Crash(error, folder) from error
    _print(finding, folder, quiet=quiet, as_json=as_json, verbose=verbose)
    return 0 if finding.fixes else 3


def _print(finding: Finding, folder: Path, *, quiet: bool, as_json: bool, verbose: bool) -> None:
    from tapsect.escape import clean

    if as_json:
        say(json.dumps(finding.to_json(), indent=2, allow_nan=False))
        return
    if not quiet:
        say(clean(finding.message, limit=2000))
    steps = [step for step in finding.trail if verbose or step.step in ("fix", "precision")]
    for step in () if quiet else steps:
        say(clean(f"  {step.step}: {step.decision} ({step.why})", limit=2000))
    for fix in finding.fixes:
        say(clean(_line(fix), limit=2000))
    if not finding.fixes:
        say("Nothing to cure." if finding.status == "agrees" else "No cure was found.")
    if not quiet:
        say(f"\nWritten to {clean(str(folder))}: report.md, result.json")


def _line(fix: Fix) -> str:
    from tapsect.report.cures import gain, written

    verb = "Cured" if fix.cures else "Halved or better"
    told = gain(fix)
    return f"{verb} by {written(fix)}" + (f": {told}" if told else "")

"""``tapsect sweep`` and ``tapsect selfcheck``: sizes, rows, order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching
from tapsect.cli.repeat import options_of

__all__ = ["add_to"]

Dims = Annotated[
    list[str],
    typer.Option(
        "--dim", metavar="DIM=N,N,...",
        help="Sizes to try of a dynamic dimension: batch=1,2,8 by its name, or x.0=1,2,8 by input "
        "and axis. Repeatable: all choices of sizes are tried, 64 at most.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(short_help="At which sizes of its dynamic dimensions does it fail?")(sweep)
    app.command(short_help="Does the engine agree with itself? No reference needed.")(selfcheck)


def sweep(
    model: o.ModelFile,
    dim: Dims,
    input_shapes: o.InputShapes = None,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    reference: o.Reference = None,
    precision: o.Precision = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    judge: o.Judge = None,
    timeout: o.Timeout = 600.0,
    out: o.Out = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> int:
    """Runs one build on random data of each size, and says at which sizes it fails.

    \b
    Examples:
      tapsect sweep model.onnx --dim batch=1,2,3,8,16
      tapsect sweep model.onnx --dim x.0=1,4 --dim x.2=224,225 --engine my_engine.py:Engine

    \b
    Exit status:
      0  it agrees with the reference at all sizes    1  it fails at some
      2  wrong usage or input    4  the environment failed
    """
    from tapsect.escape import clean
    from tapsect.folder import check_folder
    from tapsect.steady import sweep_sizes

    folder = out or Path(f"tapsect-sweep-{model.stem}")
    check_folder(folder)
    options = options_of(
        model, None, input_shapes, engine, engine_option, engine_python, reference, precision,
        atol, rtol, judge, timeout, folder, seed,
    )  # fmt: skip
    with watching(quiet=quiet) as progress:
        found = sweep_sizes(options, parse_dims(dim), progress=progress)
    if as_json:
        say(json.dumps(found.finding.to_json(), indent=2, allow_nan=False))
        return int(found.finding.exit_code)
    say(clean(found.finding.message, limit=2000))
    for each in found.sized if not quiet else ():
        say(clean(f"  {each.words}: {each.why or 'agrees'}", limit=500))
    return int(found.finding.exit_code)


def selfcheck(
    model: o.ModelFile,
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    reference: o.Reference = None,
    precision: o.Precision = None,
    timeout: o.Timeout = 600.0,
    out: o.Out = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> int:
    """Asks an engine what it must answer alike, whatever the right answer is.

    Run twice; equal rows of a batch; rows in another order; each row alone; fixed sizes against
    any size. Answers are held together up to rounding at the stated precision. The reference, if
    it can run the model, says how far that is, and which of these the model does not keep itself.

    \b
    Examples:
      tapsect selfcheck model.onnx
      tapsect selfcheck model.onnx --engine my_engine.py:Engine --precision fp16

    \b
    Exit status:
      0  it agrees with itself    1  it does not
      2  wrong usage or input    4  the environment failed
    """
    from tapsect.escape import clean
    from tapsect.folder import check_folder
    from tapsect.steady import check_itself

    folder = out or Path(f"tapsect-selfcheck-{model.stem}")
    check_folder(folder)
    options = options_of(
        model, inputs, input_shapes, engine, engine_option, engine_python, reference, precision,
        None, None, None, timeout, folder, seed,
    )  # fmt: skip
    with watching(quiet=quiet) as progress:
        found = check_itself(options, progress=progress)
    if as_json:
        say(json.dumps(found.finding.to_json(), indent=2, allow_nan=False))
        return int(found.finding.exit_code)
    say(clean(found.finding.message, limit=2000))
    for each in found.answers if not quiet else ():
        say(clean(f"  {each.question}: {each.told}; {each.why}", limit=500))
    return int(found.finding.exit_code)


def parse_dims(given: list[str]) -> dict[str, list[int]]:
    """Returns sizes by dimension.

    Raises:
        UsageError: A word is not of the form DIM=N,N,...
    """
    from debugtaps import UsageError

    found: dict[str, list[int]] = {}
    for text in given:
        name, _, sizes = text.rpartition("=")
        words = sizes.split(",")
        if not name or not all(word.strip().isdigit() for word in words):
            raise UsageError(f"--dim {text!r} is not of the form DIM=N,N,..., as batch=1,2,8")
        found[name] = list(dict.fromkeys(int(word) for word in words))
    return found

"""The commands on builds: compile one, look into it, compare it with a reference."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.escape import clean

if TYPE_CHECKING:
    from debugtaps import Package, Verification

__all__ = ["add_to"]

_LISTED = 20

CompiledModel = Annotated[
    Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX file, as prepare writes it.")
]
OneInput = Annotated[
    list[str],
    typer.Option("--inputs", metavar="FILE", help="The sample to run: .npz, .json or a script."),
]
Archive = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE|DIR",
        help="The build; <model>.<arch>.<precision>.tgz when not given.",
    ),
]
Stated = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="What the engine computes in: fp64, fp32, tf32, fp16, bf16. What it says of itself, "
        "or the model's types, when not given.",
    ),
]
Build = Annotated[Path, typer.Argument(metavar="BUILD", help="A .tgz that compile wrote.")]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATTERN...", help="Files to take out, as '*.npz'; listed without."),
]
Folder = Annotated[
    Path, typer.Option("-o", "--out", metavar="DIR", help="Where to; here when not given.")
]
ReferenceFile = Annotated[
    Path, typer.Argument(metavar="REFERENCE.npz", help="Reference values, as prepare writes them.")
]
Builds = Annotated[
    list[Path],
    typer.Argument(metavar="BUILD.tgz...", help="Builds, or the sample_outputs.npz of one."),
]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write every row to this file.")
]
JsonRows = Annotated[bool, typer.Option("--json", help="Print the rows as JSON, nothing else.")]
AllRows = Annotated[
    bool, typer.Option("--verbose", "-v", help="List tensors that only one side has, too.")
]
Details = Annotated[bool, typer.Option("--verbose", "-v", help="List every tap.")]


def _limit(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="[NAME:]V...", help=f"{text}; beyond it the exit is 1.")


MaxMape = Annotated[list[str] | None, _limit("--max-mape", "Mean error allowed, in percent")]
MaxMse = Annotated[list[str] | None, _limit("--max-mse", "Mean square error allowed")]
MaxDiff = Annotated[list[str] | None, _limit("--max-diff", "Largest difference allowed")]
MinCosine = Annotated[list[str] | None, _limit("--min-cosine", "Least cosine allowed")]
MaxUlp = Annotated[list[str] | None, _limit("--max-ulp", "Most units in the last place")]
MinSnr = Annotated[list[str] | None, _limit("--min-snr", "Least signal-to-noise ratio, in dB")]


def compile_command(
    model: CompiledModel,
    inputs: OneInput,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    out: Archive = None,
    precision: Stated = None,
    timeout: o.Timeout = 600.0,
    verbose: Details = False,
) -> int:
    """Builds a model with the taps it carries, runs a sample, and writes both into one file.

    \b
    Examples:
      tapsect compile model.onnx --inputs model.npz
      tapsect compile model.onnx --inputs model.npz --engine-option graph_optimization_level=basic
      tapsect compile model.onnx --inputs model.npz --engine my_engine.py:Engine -o build/

    \b
    Exit status:
      0  written
      1  the engine failed to build or to run
      2  wrong usage or input, or the build lost a tap    4  the environment failed
    """
    from debugtaps import InputError, compile_model, parse_options, resolve

    if len(inputs) > 1:
        raise InputError(f"--inputs names {len(inputs)} files; a build runs one sample, give one.")
    package = compile_model(
        model,
        inputs[0],
        spec=resolve(engine, parse_options(engine_option or ())),
        output=out,
        python=engine_python,
        timeout=timeout,
        precision=precision,
    )
    _say_package(package, verbose=verbose)
    return 0


def _say_package(package: Package, *, verbose: bool) -> None:
    taps = package.bindings
    outputs = len(package.names) - len(taps)
    without = [tap for tap in taps if tap.state != "bound"]
    say(
        f"{package.precision}: {_count(outputs, 'output')}, {_count(len(taps), 'tap')},"
        f" {len(taps) - len(without)} with a reference"
    )
    for note in package.notes:
        say(clean(note))
    listed = list(taps) if verbose else without[:_LISTED]
    for tap in listed:
        reason = f": {tap.reason}" if tap.reason else ""
        say(clean(f"  {tap.name}  {tap.state}{reason}", limit=300))
    if not verbose and len(without) > _LISTED:
        say(f"  … and {len(without) - _LISTED} more, in plugins.json")
    say(f"Written to {clean(str(package.path))}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def unpack_command(build: Build, patterns: Patterns = None, out: Folder = Path()) -> int:
    """Takes files out of a build, or lists them.

    \b
    Examples:
      tapsect unpack model.x86_64.fp32.tgz
      tapsect unpack model.x86_64.fp32.tgz sample_outputs.npz '*.json' -o seen
    """
    from debugtaps import list_build, unpack_build

    if not patterns:
        for file in list_build(build):
            say(f"{file.size:>12,}  {clean(file.name)}")
        return 0
    for path in unpack_build(build, patterns, out):
        say(clean(str(path)))
    return 0


def verify_command(
    reference: ReferenceFile,
    builds: Builds,
    max_mape: MaxMape = None,
    max_mse: MaxMse = None,
    max_diff: MaxDiff = None,
    min_cosine: MinCosine = None,
    max_ulp: MaxUlp = None,
    min_snr: MinSnr = None,
    csv: CsvFile = None,
    as_json: JsonRows = False,
    verbose: AllRows = False,
) -> int:
    """Compares builds with a reference, tensor by tensor in model order.

    The first row whose numbers fall off is marked: there it has less than two thirds of the
    correct bits that the rows before it had. A tensor that diverges is reported and no failure.

    \b
    Examples:
      tapsect verify model.reference.npz model.x86_64.fp32.tgz
      tapsect verify model.reference.npz model.*.tgz --max-mape 1 logits:0.1
      tapsect verify model.reference.npz model.sm90.fp16.tgz --csv rows.csv --verbose

    \b
    Exit status:
      0  compared
      1  a row is beyond a limit that was given
      2  wrong usage or input    4  the environment failed
    """
    from debugtaps import Bound, OutputError, verify, write_text_atomic

    given = {
        "mape": max_mape,
        "mse": max_mse,
        "max_diff": max_diff,
        "cosine": min_cosine,
        "ulp": max_ulp,
        "snr_db": min_snr,
    }
    bounds = [Bound.parse(key, text) for key, texts in given.items() for text in texts or ()]
    found = verify(reference, builds)
    exceeded = found.exceeded(bounds)
    for warning in found.warnings:
        _warn(warning)
    if csv is not None:
        try:
            write_text_atomic(csv, found.to_csv())
        except OSError as error:
            raise OutputError(f"--csv {csv} cannot be written: {error.strerror or error}") from None
    if as_json:
        say(json.dumps(found.to_json(exceeded), indent=2, allow_nan=False))
    else:
        _say_table(found, verbose=verbose)
    for each in exceeded[:_LISTED]:
        _warn(str(each))
    if len(exceeded) > _LISTED:
        _warn(f"and {len(exceeded) - _LISTED} more are beyond a limit")
    return 1 if exceeded else 0


def _warn(text: str) -> None:
    sys.stderr.write(clean(text, limit=2000) + "\n")


def _say_table(found: Verification, *, verbose: bool) -> None:
    from tapsect.cli.scoretable import closing, plain_table, rich_table

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(rich_table(found, width=console.width, verbose=verbose))
    else:
        say(plain_table(found, verbose=verbose))
    for build in found.builds:
        say(closing(build))


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    add = app.command
    add("compile", short_help="Build a model with its taps into one file.")(compile_command)
    add("unpack", short_help="Take files out of a build.")(unpack_command)
    add("verify", short_help="Compare builds with a reference, tensor by tensor.")(verify_command)

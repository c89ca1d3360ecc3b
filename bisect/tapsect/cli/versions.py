"""``tapsect versions``: which release of an engine went wrong, or was mended."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching
from tapsect.cli.repeat import options_of

__all__ = ["add_to"]

Package = Annotated[
    str, typer.Option(metavar="NAME", help="The engine's package, as pip calls it.")
]
First = Annotated[str, typer.Option("--from", metavar="VERSION", help="The oldest release.")]
Last = Annotated[
    str, typer.Option("--to", metavar="VERSION", help="The newest release; 1.23 takes in 1.23.2.")
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="SPEC", help="The engine; that of the package if not given."),
]

_ENGINES = {"onnxruntime": "ort", "openvino": "openvino", "tensorrt": "tensorrt"}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Find the release of an engine that went wrong.")(versions)


def versions(
    model: o.ModelFile,
    first: First,
    last: Last,
    package: Package = "onnxruntime",
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    engine: Engine = None,
    engine_option: o.EngineOption = None,
    reference: o.Reference = None,
    precision: o.Precision = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    judge: o.Judge = None,
    timeout: o.Timeout = 600.0,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> int:
    """Finds the first bad release of an engine and the last good one, or where it was mended.

    Each release is installed by pip into an environment of its own, kept in ~/.cache/tapsect or
    $TAPSECT_CACHE. Both ends are judged first; what cannot be installed or run is stepped around.

    \b
    Examples:
      tapsect versions model.onnx --from 1.17 --to 1.23 --inputs sample.npz
      tapsect versions model.onnx --package openvino --from 2024.0 --to 2025.3

    \b
    Exit status:
      0  the border was found    3  both ends are alike, or fewer than two can be judged
      2  wrong usage or input    4  the environment failed
    """
    from debugtaps import UsageError
    from tapsect.axes.versions import between, check_bounds, releases
    from tapsect.escape import clean
    from tapsect.versions import find_border

    spec = engine or _ENGINES.get(package)
    if spec is None:
        raise UsageError(
            f"no engine is known for package {package!r}; name one with --engine, or one of"
            f" {', '.join(_ENGINES)} with --package"
        )
    check_bounds(first, last)
    options = options_of(
        model, inputs, input_shapes, spec, engine_option, None, reference, precision,
        atol, rtol, judge, timeout, Path(), seed,
    )  # fmt: skip
    with watching(quiet=quiet) as progress:
        progress.step("releases", f"asking pip for {package}")
        chosen = between(releases(package), first, last, package)
        found = find_border(options, package, chosen, progress)
    if as_json:
        say(json.dumps(asdict(found), indent=2))
        return 0 if found.bad is not None else 3
    for version, seen in () if quiet else found.seen:
        say(clean(f"  {version}: {seen.what} ({seen.why})", limit=500))
    say(clean(found.message, limit=2000))
    return 0 if found.bad is not None else 3

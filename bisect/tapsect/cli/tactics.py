"""``tapsect tactics``: what builders chose, and which choice is bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapsect.cli import checking as c
from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching
from tapsect.cli.repeat import AskMe, Runs, check_of, options_of

if TYPE_CHECKING:
    from tapsect.axes.tactics import Difference, Replays

__all__ = ["add_to"]

SHOWN = 20

Replayed = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="The folder with replays in good/ and bad/."),
]

group = typer.Typer(rich_markup_mode=None)


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(group, name="tactics", short_help="Which choice of the builder makes it bad.")


@group.callback()
def _root() -> None:
    """Says what good and bad builds chose differently, and proves which choice is bad.

    \b
    Examples:
      tapsect repeat model.onnx --save-tactics tactics.json --artifacts-dir replays
      tapsect tactics diff --dir replays
      tapsect tactics prove model.onnx --dir replays
    """


@group.command(short_help="Name the choices that only bad builds made.")
def diff(directory: Replayed, as_json: o.Json = False) -> int:
    """Names the choices that bad builds made and no good one did.

    Reads what --save-tactics of tapsect repeat writes, and Polygraphy's replay files.

    \b
    Example:
      tapsect tactics diff --dir replays

    \b
    Exit status:
      0  suspects are named, or it is known that no choice differs
      3  one side is empty    2  wrong usage or input
    """
    from tapsect.axes.tactics import difference, read_replays

    replays = read_replays(directory)
    found = difference(replays) if replays.good and replays.bad else []
    if as_json:
        say(json.dumps(_body(replays, found), indent=2))
    else:
        for line in _lines(replays, found):
            say(line)
    return 0 if replays.good and replays.bad else 3


def _body(replays: Replays, found: list[Difference]) -> dict[str, object]:
    rows = [{"key": d.key, "choice": d.choice, "bad": d.bad, "good_chose": d.others} for d in found]
    return {"good": len(replays.good), "bad": len(replays.bad), "suspects": rows}


def _lines(replays: Replays, found: list[Difference]) -> list[str]:
    """Returns what was found, in words."""
    from tapsect.escape import clean

    lines = [f"Loaded {len(replays.good)} good and {len(replays.bad)} bad replays."]
    empty = [s for s, held in (("good", replays.good), ("bad", replays.bad)) if not held]
    if empty:
        lines.append(
            f"None is {' or '.join(empty)}, so nothing can be told: build more often, as with"
            f" tapsect repeat MODEL --save-tactics FILE --until {empty[0]}"
        )
        return lines
    if not found:
        lines.append(
            "Every choice of a bad build was made by a good one as well: the cause lies beyond"
            " the tactics, or in a pair of them that only bad builds made together."
        )
        return lines
    were = "choice was" if len(found) == 1 else "choices were"
    lines.append(f"{len(found)} {were} made by bad builds only:")
    for each in found[:SHOWN]:
        instead = f"; good ones: {', '.join(map(repr, each.others[:3]))}" if each.others else ""
        lines.append(
            clean(
                f"  {each.key!r}: {each.choice!r} in {each.bad} of {len(replays.bad)}{instead}",
                limit=500,
            )
        )
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more (--json lists all)")
    return lines


@group.command(short_help="Force choices to prove which one is bad.")
def prove(
    model: o.ModelFile,
    directory: Replayed,
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
    runs: Runs = None,
    ask: AskMe = False,
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
    """Forces choices that only bad builds made, until the one that is bad is known.

    The engine takes its choices as the option tactics={KEY: CHOICE}.

    \b
    Example:
      tapsect tactics prove model.onnx --dir replays --engine my_engine.py:Engine

    \b
    Exit status:
      0  a choice, or the fewest together, is proved to be bad
      3  none is    2  wrong usage or input    4  the environment failed
      130  interrupted; the same command continues
    """
    from tapsect.axes.tactics import read_replays
    from tapsect.escape import clean
    from tapsect.folder import check_folder
    from tapsect.report.cures import written
    from tapsect.steady import CANDIDATE, Plan, prove_tactics

    folder = out or Path(f"tapsect-tactics-{model.stem}")
    check_folder(folder)
    options = options_of(
        model, inputs, input_shapes, engine, engine_option, engine_python, reference, precision,
        atol, rtol, judge, timeout, folder, seed,
    )  # fmt: skip
    line = c.command_line(check, fail_regex, fail_code, ignore_fail_code, check_timeout, CANDIDATE)
    plan = Plan(options, check_of(line, runs, ask=ask))
    with watching(quiet=quiet or ask) as progress:
        proof = prove_tactics(plan, read_replays(directory), progress=progress)
    if as_json:
        say(json.dumps(proof.finding.to_json(), indent=2, allow_nan=False))
        return proof.exit_code
    say(clean(proof.finding.message, limit=2000))
    for fix in proof.finding.fixes if not quiet else ():
        say(clean(f"  Avoid it with {written(fix)}", limit=1000))
    if not quiet:
        say(f"\nWritten to {clean(str(proof.folder))}: result.json")
    return proof.exit_code

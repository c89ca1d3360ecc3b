"""``tapsect doctor``: is the tool right on this machine?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching
from tapsect.escape import clean

if TYPE_CHECKING:
    from tapsect.doctor import Health, Proof

__all__ = ["add_to"]

_HEADS = ("engine", "state", "suite", "agrees", "finds", "observer", "seconds")

Engines = Annotated[
    list[str] | None,
    typer.Option("--engine", metavar="SPEC", help="Only this one; may be repeated. All without."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]


def doctor(
    engine: Engines = None, engine_option: o.EngineOption = None, as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say no progress.")] = False,
) -> int:  # fmt: skip
    """Says what is installed here and proves it: each engine is tested with planted faults.

    A small network is run on every engine: as it is, with one wrong operator, and with a fusion
    that heals when it is looked at. The same diagnosis that bisect makes must name each.

    \b
    Examples:
      tapsect doctor
      tapsect doctor --engine tensorrt
      tapsect doctor --engine openvino --engine-option INFERENCE_PRECISION_HINT=bf16 --json

    \b
    Exit status:
      0  every engine that was asked for works (without --engine: each that is installed)
      4  one of them does not, or only builds here
      2  wrong usage
    """
    from debugtaps import SpecError, parse_options
    from tapsect.doctor import engines, examine
    from tapsect.environment import environment

    options = parse_options(engine_option or ())
    if options and len(engine or ()) != 1:
        raise SpecError("--engine-option is for one engine; name that one with --engine.")
    with watching(quiet=quiet or as_json) as progress:
        found = [examine(name, options, progress) for name in engine or engines()]
    machine = environment()
    bad = {"fails", "missing"} if engine else {"fails"}
    if engine and not options.get("build_only"):
        bad.add("builds only")
    if as_json:
        body = {"machine": machine, "engines": [h.to_json() for h in found]}
        say(json.dumps(body, indent=2, allow_nan=False))
    else:
        _show(machine, found)
    return 4 if any(health.state in bad for health in found) else 0


def _show(machine: Mapping[str, Any], found: Sequence[Health]) -> None:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    say(f"{packages}; Python {machine['python']}")
    say(clean(f"{machine['cpu']}, {machine['cores']} cores; {machine['platform']}", limit=300))
    for gpu in machine.get("gpus", ()):
        say(clean(f"GPU {gpu}", limit=300))
    if not machine.get("gpus"):
        say("no GPU is seen: nvidia-smi is not there or names none")
    say("")
    _table([_HEADS, *(_row(health) for health in found)])
    lines = [line for health in found for line in _lines(health)]
    if lines:
        say("")
    for line in lines:
        say(clean(line, limit=1000))


def _row(health: Health) -> tuple[str, ...]:
    if health.state == "missing":
        return (health.engine, "not installed", *[""] * 5)
    passed = sum(c.status != "failed" for c in health.suite)
    marks = [_mark(test) for test in health.tests[1:]]
    cells = [*marks, *["-"] * (3 - len(marks))]
    suite = f"{passed} of {len(health.suite)}" if health.suite else "-"
    return (health.engine, health.state, suite, *cells, f"{health.seconds:.1f}")


def _mark(test: Proof) -> str:
    return {True: "yes", False: "NO", None: "-"}[test.passed]


def _lines(health: Health) -> list[str]:
    """Returns what an engine says of itself, and whatever is not as it should be."""
    lines = [f"{health.engine}: {health.says}"]
    if health.state == "builds only":
        lines.append(f"{health.engine}: it builds here and runs nothing; values need its device")
    for each in health.suite:
        if each.status == "failed":
            first = each.detail.splitlines()[0] if each.detail else "failed"
            lines.append(f"{health.engine}: {each.name}: {first}")
    for test in health.tests:
        if test.passed is False:
            lines.append(f"{health.engine}: {test.name}: NO. {test.detail}")
    return lines


def _table(rows: Sequence[Sequence[str]]) -> None:
    """Prints a table: a rich one in a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for head in rows[0]:
            table.add_column(head)
        for row in rows[1:]:
            cells = [Text(clean(c), style="bold red" if c in ("NO", "fails") else "") for c in row]
            table.add_row(*cells)
        Console(highlight=False).print(table)
        return
    widths = [max(len(clean(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        padded = (clean(c).ljust(width) for c, width in zip(row, widths, strict=True))
        say("  ".join(padded).rstrip())


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", short_help="Test the tool and its engines on this machine.")(doctor)

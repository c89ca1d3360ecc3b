"""``tapsect report``: an earlier finding in any form; and how ``bisect`` prints its own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say

if TYPE_CHECKING:
    from tapsect.finding import Finding

__all__ = ["add_to", "print_finding"]

Form = Literal["terminal", "html", "markdown", "zip", "junit", "jsonl"]

Format = Annotated[
    Form,
    typer.Option(
        "--format",
        help="terminal; html: one page with pictures; markdown: for a bug tracker; zip: case and "
        "report to hand over; junit, jsonl: for build servers.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE",
        help="Where it goes. A page goes to DIR/report.html and a bundle to DIR.zip when not "
        "given, all else is printed.",
    ),
]  # fmt: skip
Redact = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace names of tensors and nodes, paths, host and user by hashes, and in a bundle "
        "weights and inputs by random ones where it still fails with them.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Show the report of an earlier diagnosis, in any form.")(report)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that bisect wrote.")],
    form: Format = "terminal",
    output: Output = None,
    redact: Redact = False,
    verbose: o.Verbose = False,
) -> int:
    """Shows the report of an earlier diagnosis.

    \b
    Examples:
      tapsect report tapsect-model
      tapsect report tapsect-model --format html
      tapsect report tapsect-model --format markdown --redact -o issue.md
      tapsect report tapsect-model --format zip

    Who gets the bundle runs python check.py in its folder case; it needs numpy, onnx and the
    engine's package, and exits with 1 while the bug is there.
    """
    from tapsect.report import read_result

    finding = read_result(folder)
    folder = folder if folder.is_dir() else folder.parent  # its result.json was named
    if form == "terminal" and output is None and not redact:
        print_finding(finding, folder, verbose=verbose)
        return 0
    _write(finding, folder, form, output, redact=redact)
    return 0


def _write(
    finding: Finding, folder: Path, form: Form, output: Path | None, *, redact: bool
) -> None:
    """Makes one form, and puts it where it belongs."""
    from tapsect.escape import clean
    from tapsect.folder import PAGE
    from tapsect.report import make

    made = make(finding, folder, form, redact=redact)
    if output is None and form in ("html", "zip"):
        output = folder / PAGE if form == "html" else Path(f"{folder.resolve().name}.zip")
    if output is None:
        say(made.data.decode("utf-8").rstrip("\n"))
        return
    made.write(output)
    for note in made.notes:
        say(clean(note, limit=2000))
    say(f"Written to {clean(str(output))}")


def print_finding(
    finding: Finding,
    folder: Path | None,
    *,
    quiet: bool = False,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Prints a finding as the options ask for it, and what lies in its folder."""
    from tapsect.escape import clean
    from tapsect.report import render, render_text

    if as_json:
        say(json.dumps(finding.to_json(), indent=2, allow_nan=False))
        return
    if quiet:
        say(clean(finding.message, limit=2000))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        text = render(finding, folder=folder, width=min(console.width, 100))
        console.print(text, end="")
    else:
        say(render_text(finding, folder=folder).rstrip("\n"))
    if verbose:
        for number, step in enumerate(finding.trail, 1):
            say(clean(f"{number}. {step.step}: {step.decision} ({step.why})"))
    if folder is not None:
        _say_files(finding, folder)


def _say_files(finding: Finding, folder: Path) -> None:
    """Says what lies in the folder, and how to have the page when it is not among it."""
    from tapsect.escape import clean
    from tapsect.folder import MARKDOWN, PAGE, RESULT
    from tapsect.report.page import INSTALL, missing_package

    page = (folder / PAGE).is_file()
    held = [name for name in (MARKDOWN, RESULT, PAGE) if (folder / name).is_file()]
    held += ["case/"] * (finding.minimal is not None)
    say(f"\nWritten to {clean(str(folder))}: {', '.join(held)}")
    if not page:
        place = clean(shlex.quote(str(folder)))
        first = "" if missing_package() is None else f"{INSTALL}, then "
        say(f"A page with pictures: {first}tapsect report {place} --format html")

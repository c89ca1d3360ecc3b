"""The table of commands.  Each turns words into values, calls the library and prints the rest."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

import tapsect
from tapsect.cli.output import say

__all__ = ["app_for"]

# Command -> its module, in the order in which somebody meets them; --help lists them so.
_HOMES = {
    "bisect": "diagnosis",
    "demo": "demo",
    "report": "report",
    "fix": "fix",
    "repeat": "repeat",
    "tactics": "tactics",
    "sweep": "sizes",
    "selfcheck": "sizes",
    "versions": "versions",
    "reduce": "reduce",
    "extract": "models",
    "inspect": "models",
    "prepare": "taps",
    "compile": "builds",
    "unpack": "builds",
    "verify": "builds",
    "triage": "triage",
    "doctor": "doctor",
}


def app_for(word: str | None = None) -> typer.Typer:
    """Returns the command that ``word`` names, or all of them where it names none.

    A command that runs has no use for the others, whose options take longer to read than its own.
    """
    app = typer.Typer(
        name="tapsect",
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    homes = [_HOMES[word]] if word in _HOMES else dict.fromkeys(_HOMES.values())
    for home in homes:
        import_module(f"tapsect.cli.{home}").add_to(app)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        say(f"tapsect {tapsect.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Finds where an engine first diverges from its reference, and the smallest failing case.

    \b
    Examples:
      tapsect demo
      tapsect bisect model.onnx --inputs sample.npz
      tapsect report tapsect-model
    """

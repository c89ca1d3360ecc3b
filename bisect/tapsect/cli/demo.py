"""``tapsect demo``, told scene by scene as it is played."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.cli.progress import watching

if TYPE_CHECKING:
    from tapsect.demo import Scene

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="See it at work on a published model.")(demo)


def demo(out: o.DemoOut = None, quiet: o.Quiet = False) -> int:
    """Finds a planted defect in a published model, and tells two honest differences apart.

    \b
    Example:
      tapsect demo

    The published model is fetched by pip once (12 MB) and kept in ~/.cache/tapsect, or in
    $TAPSECT_CACHE. Exit status: 0, or 4 when it cannot be had; the third scene needs no network.
    """
    return _show(out, quiet=quiet)


def _show(out: Path | None, *, quiet: bool) -> int:
    """Plays the demo and returns the exit status: 4 when a scene could not be played."""
    from tapsect.demo import play
    from tapsect.escape import clean
    from tapsect.report import render_brief, wrapped, write_reports

    played: list[Scene] = []
    for scene in play(partial(watching, quiet=quiet), out):
        played.append(scene)
        if scene.finding is not None and scene.folder is not None:
            write_reports(scene.folder, scene.finding)
        if quiet:
            say(clean(scene.finding.message if scene.finding else scene.missing, limit=2000))
            continue
        say(f"\n{len(played)}. {scene.title}\n")
        say(wrapped(scene.story) + "\n")
        if scene.finding is None:
            say(wrapped(scene.missing, label="Missing"))
            continue
        say(render_brief(scene.finding).rstrip("\n"))
        if scene.moral:
            say(wrapped(scene.moral, label="Shows"))
        say(wrapped(f"{scene.folder}/report.md", label="Results"))
    if not quiet:
        _try_next([scene for scene in played if scene.finding is not None])
    return 4 if any(scene.missing for scene in played) else 0


def _try_next(played: list[Scene]) -> None:
    from tapsect.escape import clean

    proved = next((s for s in played if s.finding is not None and s.finding.minimal), None)
    say("\nTry next\n")
    if proved is not None:
        say(f"  python {clean(str(proved.folder))}/case/check.py   # the smallest failing case")
        say(f"  tapsect report {clean(str(proved.folder))} -v      # the whole report")
    if played:
        say(f"  {clean(played[-1].command, limit=2000)}")
    say("  tapsect bisect YOUR.onnx --inputs YOUR.npz --engine-option K=V")

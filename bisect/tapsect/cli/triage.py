"""``tapsect triage``: many models, every night, one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say

if TYPE_CHECKING:
    from tapsect.triage.history import History
    from tapsect.triage.records import Run

__all__ = ["add_to"]

SuiteFile = Annotated[Path, typer.Argument(metavar="SUITE.yaml", help="See docs/triage.md.")]
Where = Annotated[
    str,
    typer.Argument(metavar="HISTORY", help="A suite, a SQLite file, or postgresql://host/name."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Entries to look at, as 'bert*/ort*'. Repeatable."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="DAY|RUN",
        help="Leave out what is as the last run before then saw it: model, inputs, engine.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Look again where nothing changed, too.")]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="How many at once; one a GPU, or one, if not given."),
]
RayAddress = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on this Ray cluster.")
]
Shared = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="With --ray: a folder that all nodes reach, as fsspec names it, for models and "
        "results; without it they travel through Ray's object store.",
    ),
]
BisectVersions = Annotated[
    bool,
    typer.Option(
        "--bisect-versions",
        help="Try the releases of the engine between last good and first bad, for each new fault.",
    ),
]
HistoryOption = Annotated[
    str | None,
    typer.Option("--history", metavar="FILE|URL", help="In place of the suite's history."),
]
OutDir = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="In place of the suite's folder.")
]
SummaryJson = Annotated[bool, typer.Option("--json", help="Print summary.json, nothing else.")]
All = Annotated[bool, typer.Option("--verbose", "-v", help="List what is known, too.")]
SuiteOut = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where the suite is written.")
]
What = Annotated[
    str | None,
    typer.Argument(metavar="RUN|SIGNATURE|ENTRY", help="The last run when not given."),
]
Keep = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Keep the last N runs of each suite.")
]
Before = Annotated[str | None, typer.Option(metavar="DAY|RUN", help="Forget the runs before then.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    triage = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    triage.callback()(_root)
    triage.command("run", short_help="Look at a suite and tell what is new.")(run)
    triage.command("init", short_help="Write a first suite for a folder of models.")(init)
    triage.command("history", short_help="List the runs.")(list_runs)
    triage.command("show", short_help="Show a run, a fault or an entry.")(show)
    triage.command("flaky", short_help="List entries whose answer changes by itself.")(flaky)
    triage.command("prune", short_help="Forget old runs.")(prune)
    app.add_typer(triage, name="triage", short_help="Many models, every night, one answer.")


def _root() -> None:
    """Many models, every night, one answer: what is new, and since when."""
    from tapsect.triage import check_extra

    check_extra()


def run(
    suite: SuiteFile, only: Only = None, since: Since = None, fresh: Fresh = False,
    jobs: Jobs = None, ray: RayAddress = None, shared: Shared = None,
    bisect_versions: BisectVersions = False,
    history: HistoryOption = None, out: OutDir = None, as_json: SummaryJson = False,
    quiet: o.Quiet = False, verbose: All = False,
) -> int:  # fmt: skip
    """Looks at every entry of a suite and tells what is new, known, fixed, flaky, and since when.

    What did not change since it was looked at is taken from the history. A run that was stopped
    is continued by the same command.

    \b
    Examples:
      tapsect triage run suite.yaml
      tapsect triage run suite.yaml --only 'bert*/*' --jobs 4
      tapsect triage run suite.yaml --history postgresql://ci@db/triage --ray auto

    \b
    Exit status:
      0  nothing new    1  something new or regressed
      2  wrong usage or suite    4  the run itself failed    130  interrupted, can be continued
    """
    from tapsect.cli.progress import watching
    from tapsect.escape import clean
    from tapsect.triage.answers import render_text, to_json
    from tapsect.triage.answers.plain import headline
    from tapsect.triage.whole import How, run_suite

    how = How(only or (), since, fresh, jobs, ray, shared, bisect_versions, history, out)
    with watching(quiet=quiet or as_json) as progress:
        summary, folder = run_suite(suite, how, progress=progress)
    if as_json:
        say(json.dumps(to_json(summary), indent=2))
    elif quiet:
        say(clean(headline(summary), limit=2000))
    else:
        say(render_text(summary, verbose=verbose))
        say(f"\nWritten to {clean(str(folder))}: index.html, junit.xml, digest.md, summary.json")
    return summary.exit_code


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where models lie.")],
    output: SuiteOut = Path("suite.yaml"),
) -> int:
    """Writes a first suite: every model of a folder, with the inputs that lie beside it.

    \b
    Example:
      tapsect triage init models/ -o suite.yaml
    """
    from debugtaps import OutputError, write_text_atomic
    from tapsect.triage.first_suite import first_suite
    from tapsect.triage.plan import read_plan

    text = first_suite(folder, output)
    if output.exists():
        raise OutputError(f"{output} exists; name another file with -o.")
    if not output.parent.is_dir():
        raise OutputError(f"there is no folder {output.parent}; make it, or name another with -o.")
    write_text_atomic(output, text)
    count = len(read_plan(output).entries)
    say(f"{count} entries written to {output}; next: tapsect triage run {output}")
    return 0


def list_runs(where: Where, since: Since = None) -> int:
    """Lists the runs of a history: when, how many entries had each state, what it cost.

    \b
    Example:
      tapsect triage history suite.yaml --since 2030-12-01
    """
    from tapsect.escape import clean
    from tapsect.triage.answers.plain import headline
    from tapsect.triage.summary import summarise
    from tapsect.triage.whole import moment, open_history

    with open_history(where) as history:
        start = moment(history, since) if since is not None else None
        for each in history.runs(since=start):
            summary = summarise(history, each)
            end = "" if each.finished else "  (did not end)"
            line = f"{each.id}  {each.started:%Y-%m-%d %H:%M}  {headline(summary)}"
            say(clean(f"{line}; {summary.seconds:.0f} s{end}"))
    return 0


def show(where: Where, what: What = None, as_json: SummaryJson = False, verbose: All = True) -> int:
    """Shows what a run saw, whom a fault hits, or what became of an entry night by night.

    \b
    Examples:
      tapsect triage show suite.yaml
      tapsect triage show suite.yaml 45789cf40906
      tapsect triage show suite.yaml bert/ort
    """
    from debugtaps import InputError
    from tapsect.escape import clean
    from tapsect.triage.answers import render_text, to_json
    from tapsect.triage.looking import history_of
    from tapsect.triage.summary import summarise
    from tapsect.triage.whole import open_history

    with open_history(where) as history:
        found = _run_called(history, what)
        if found is not None:
            summary = summarise(history, found)
            text = json.dumps(to_json(summary), indent=2) if as_json else render_text(
                summary, verbose=verbose
            )  # fmt: skip
            say(text)
            return 0
        lines = history_of(history, what or "")
    if not lines:
        raise InputError(f"the history knows no run, signature or entry {what!r}.")
    say("\n".join(clean(line, limit=1000) for line in lines))
    return 0


def _run_called(history: History, what: str | None) -> Run | None:
    """Returns the run of a name; the last one that ended when there is no name."""
    from debugtaps import InputError

    runs: list[Any] = history.runs()
    if what is None:
        ended = [each for each in runs if each.finished]
        if not ended:
            raise InputError("no run of this history has ended yet.")
        return ended[-1]  # type: ignore[no-any-return]
    return next((each for each in runs if each.id == what), None)


def flaky(where: Where) -> int:
    """Lists the entries whose answer changes by itself, those that fail most often first.

    \b
    Example:
      tapsect triage flaky suite.yaml
    """
    from tapsect.escape import clean
    from tapsect.triage.looking import flaky_entries
    from tapsect.triage.whole import open_history

    with open_history(where) as history:
        lines = flaky_entries(history)
    say("\n".join(clean(line, limit=1000) for line in lines or ["no entry is flaky"]))
    return 0


def prune(where: Where, keep: Keep = None, before: Before = None, out: OutDir = None) -> int:
    """Forgets runs, with the findings that no other run has seen; their folders go, too.

    \b
    Example:
      tapsect triage prune suite.yaml --keep 60
    """
    from debugtaps import UsageError
    from tapsect.triage.looking import forget, old_runs
    from tapsect.triage.whole import moment, open_history

    if (keep is None) == (before is None):
        raise UsageError("say either --keep N or --before DAY.")
    with open_history(where) as history:
        limit = moment(history, before) if before is not None else None
        runs = old_runs(history, keep=keep, before=limit)
        gone = forget(history, runs, out)
    say(f"{len(runs)} runs forgotten, {gone} folders of findings removed")
    return 0

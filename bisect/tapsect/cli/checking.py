"""Options of commands that a check can judge, and what they mean."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tapsect.checks import Artifacts, CommandLine

__all__ = [
    "ArtifactFiles",
    "ArtifactsDir",
    "CheckCommand",
    "CheckTimeout",
    "FailCode",
    "FailRegex",
    "IgnoreFailCode",
    "ask_person",
    "command_line",
    "one_of",
    "sorted_artifacts",
]

FailRegex = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGEX",
        help="The check fails when its output holds this, whatever its exit status. Repeatable.",
    ),
]
FailCode = Annotated[
    list[int] | None,
    typer.Option(metavar="N...", help="Exit statuses that count as failing; others do not."),
]
IgnoreFailCode = Annotated[
    list[int] | None,
    typer.Option(metavar="N...", help="Exit statuses that do not count as failing."),
]
CheckTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.1,
        help="Longest check; five times the longest so far, at least 10, when not given.",
    ),
]  # fmt: skip
ArtifactFiles = Annotated[
    list[Path] | None,
    typer.Option("--artifacts", metavar="FILE...", help="Files of the check to sort."),
]
ArtifactsDir = Annotated[
    Path, typer.Option(metavar="DIR", help="Where good/ and bad/ are made for --artifacts.")
]
CheckCommand = Annotated[
    str | None,
    typer.Option(
        "--check", metavar="CMD ARGS...",
        help="The last option: all that follows is the command, run without a shell. {model}, "
        "{inputs} (.npz), in reduce {inputs_json} (Polygraphy's) and in repeat {engine} are "
        "replaced. Exit 0 is good, 125 skips, else bad.",
    ),
]  # fmt: skip


def ask_person(text: str) -> str:
    """Shows ``text`` and returns what is typed.

    Raises:
        UsageError: Nobody answers.
    """
    from debugtaps import UsageError

    sys.stdout.write(text)
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise UsageError(
            "nobody answers: give --check CMD for a command, --engine SPEC for an engine, or"
            " answer good, bad or skip"
        )
    return answer


def command_line(
    check: str | None, regexes: list[str] | None, codes: list[int] | None,
    ignored: list[int] | None, timeout: float | None, artifact: Path,
) -> CommandLine | None:  # fmt: skip
    """Returns the check command as the user wrote it; ``None`` when there is none.

    Raises:
        UsageError: The options do not go together.
    """
    import re

    from debugtaps import UsageError
    from tapsect.checks import CommandLine, Rule

    for regex in regexes or ():
        try:
            re.compile(regex)
        except re.error as error:
            raise UsageError(f"--fail-regex {regex!r} is no regular expression: {error}") from None
    if codes and ignored:
        raise UsageError("--fail-code and --ignore-fail-code exclude each other; give one.")
    if check is None:
        if regexes or codes or ignored:
            raise UsageError("--fail-regex and --fail-code judge a command; add --check CMD.")
        return None
    words = tuple(json.loads(check)) if check.startswith("[") else tuple(check.split())
    if not words:
        raise UsageError("--check needs a command: all that follows it is the command.")
    rule = Rule(tuple(regexes or ()), tuple(codes or ()), tuple(ignored or ()))
    return CommandLine(words, rule, timeout, artifact)


def one_of(flag: str, value: str, words: tuple[str, ...]) -> Any:
    """Returns ``value``, which must be one of ``words``."""
    from debugtaps import UsageError

    if value not in words:
        raise UsageError(f"{flag} is {value!r}; it is one of {', '.join(words)}.")
    return value


def sorted_artifacts(files: list[Path] | None, folder: Path) -> Artifacts | None:
    """Returns where files of a check go; ``None`` when none are named."""
    from tapsect.checks import Artifacts

    return Artifacts(files, folder) if files else None

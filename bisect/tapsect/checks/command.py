"""A command says good or bad: when it counts as failing, and one run of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import UsageError
from tapsect.verdict import Signature, Verdict, operator_named

__all__ = ["SKIP", "CommandLine", "Rule", "Seen", "judged", "run_command"]

SKIP = 125
"""The exit status of a command that cannot judge, as ``git bisect run`` has it."""

_NOISE = re.compile(
    r"0x[0-9a-fA-F]+|'[^']*'|\"[^\"]*\"|\S*/\S+|\S+\.onnx|[-+]?\d+(\.\d+)?(e[-+]?\d+)?"
)
_ERROR = re.compile(r"\w*(Error|Exception|Fail|FAIL|Fault|fault|Abort|assert)\w*")


@dataclass(frozen=True, slots=True)
class Rule:
    """When a command counts as failing; without anything, when its exit status is not 0.

    Attributes:
        regexes: One of them is found in what it prints.  Then its exit status does not count,
            unless codes are named as well.
        codes: Exit statuses that count as failing; the others do not.
        ignored: Exit statuses that do not count as failing.
    """

    regexes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    ignored: tuple[int, ...] = ()

    def fails(self, code: int, text: str) -> str | None:
        """Returns what failed, in words; ``None`` when nothing did."""
        if code in self.ignored or (self.codes and code not in self.codes):
            return None
        if self.regexes:
            found = next((r for r in self.regexes if re.search(r, text)), None)
            return None if found is None else f"prints {found!r}"
        return f"exit status {code}" if code != 0 or code in self.codes else None


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A check command.

    Attributes:
        words: The command and its arguments; words in braces, as ``{model}``, are replaced.
        rule: When it counts as failing.
        timeout: Seconds it may take; ``None`` lets the first runs tell.
        artifact: Where the candidate also stands.
    """

    words: tuple[str, ...]
    rule: Rule = field(default_factory=Rule)
    timeout: float | None = None
    artifact: Path = Path("tapsect_candidate.onnx")

    @property
    def placed(self) -> bool:
        """Returns whether the command names the candidate, so that several can run at a time."""
        return self.names("{model}")

    @property
    def fed(self) -> bool:
        """Returns whether the command reads the inputs."""
        return self.names("{inputs}") or self.names("{inputs_json}")

    def names(self, place: str) -> bool:
        """Returns whether ``place``, as ``{engine}``, stands in the command."""
        return any(place in word for word in self.words)

    def filled(self, places: Mapping[str, str]) -> list[str]:
        """Returns the words with each place replaced by what stands there."""
        filled = []
        for word in self.words:
            for place, value in places.items():
                word = word.replace(place, value)
            filled.append(word)
        return filled

    def limit(self, longest: float) -> float | None:
        """Returns the seconds a run may take, when the longest so far took ``longest``."""
        if self.timeout is not None:
            return self.timeout
        return max(10.0, 5 * longest) if longest else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run of a command showed; ``code`` is ``None`` when it was late."""

    code: int | None
    text: str
    seconds: float


def judged(
    seen: Seen, rule: Rule, names: Collection[str] = (), ops: Mapping[str, str] | None = None
) -> tuple[Verdict, Signature | None]:
    """Returns what one run of a command says, and how it failed.

    Args:
        seen: The run.
        rule: When a command counts as failing.
        names: Words that vary between runs, and are no part of a signature.
        ops: The types of the model's nodes, by name, where an error may name one of them.
    """
    if seen.code is None:
        return Verdict.DIVERGES, Signature("timeout")
    if seen.code == SKIP:
        return Verdict.INVALID, None
    if seen.code < 0 and not rule.regexes:
        return Verdict.DIVERGES, Signature("crash", signal.Signals(-seen.code).name)
    why = rule.fails(seen.code, seen.text)
    if why is None:
        return Verdict.AGREES, None
    if rule.regexes:
        return Verdict.DIVERGES, Signature(why)
    line = _error_line(seen.text)
    detail = _normalised(line, names) if line else "without an error message"
    return Verdict.DIVERGES, Signature(why, detail, operator_named(line, ops or {}))


def _error_line(text: str) -> str:
    """Returns the last line that looks like an error."""
    lines = [line.strip() for line in text.splitlines() if _ERROR.search(line)]
    return lines[-1] if lines else ""


def _normalised(line: str, names: Collection[str]) -> str:
    """Returns a message without what varies."""
    words = _NOISE.sub("_", line).split()
    kept = ["_" if word.strip(".,:;()[]") in names else word for word in words]
    return " ".join(kept)[:200]


def run_command(words: Sequence[str], limit: float | None) -> Seen:
    """Runs a command without a shell, in a group of its own, and returns what it showed.

    Raises:
        UsageError: It cannot be started.
    """
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"--check: {words[0]!r} cannot be started ({error.strerror or error});"
            " give a program, then its arguments, as the last words of the command"
        ) from None
    try:
        raw, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _end(process)
        return Seen(None, "", time.monotonic() - start)
    except BaseException:
        _end(process)
        raise
    text = raw.decode("utf-8", "replace")
    return Seen(process.returncode, text, time.monotonic() - start)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

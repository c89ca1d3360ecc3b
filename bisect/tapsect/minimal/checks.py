"""Does a candidate fail?  A command says it; ``person`` and ``builtin`` hold the other judges.

Each is a function from a trial to a verdict and, with ``DIVERGES``, a signature.  A candidate
that the judge skips (exit status 125, "skip") is ``INVALID``: neither good nor bad.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import UsageError, write_npz
from tapsect.minimal.trial import Trial
from tapsect.probe import Journal
from tapsect.reduce import Answer
from tapsect.verdict import Signature, Verdict

__all__ = ["Artifacts", "CommandCheck", "CommandLine", "Rule", "Seen", "together"]

SKIP = 125
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
        words: The command and its arguments; ``{model}`` and ``{inputs}`` are replaced.
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
        return any("{model}" in word for word in self.words)

    @property
    def fed(self) -> bool:
        """Returns whether the command reads the inputs."""
        return any("{inputs}" in word for word in self.words)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run of a command showed; ``code`` is ``None`` when it was late."""

    code: int | None
    text: str
    seconds: float


@dataclass
class Artifacts:
    """Files that a check leaves, sorted by what it said.

    Attributes:
        files: The files, as the check names them.
        folder: Where ``good/``, ``bad/`` and, for what is neither, ``other/`` stand.
    """

    files: Sequence[Path]
    folder: Path
    count: int = 0

    def sort(self, verdict: Verdict, keep: Path) -> None:
        """Moves the files of one run; ``keep``, the candidate, is copied."""
        self.count += 1
        name = {Verdict.DIVERGES: "bad", Verdict.AGREES: "good"}.get(verdict, "other")
        for file in self.files:
            if not file.exists():
                continue
            target = self.folder / name / f"{file.stem}_{self.count:04d}{file.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.absolute() == keep.absolute():
                shutil.copyfile(file, target)
            else:
                shutil.move(file, target)


class CommandCheck:
    """Judges by a command.

    Args:
        line: The command and its rule.
        work: Where candidates and inputs are written.
        journal: Answers of an earlier run; new ones are written down there.
        names: Names in the model: they vary between candidates and are no part of a signature.
        artifacts: Files to sort, if any.

    Attributes:
        longest: Seconds of the longest run that ended by itself.
        last: What the last run showed.
        single: Whether one candidate is judged at a time, where the command expects it.
        wanted: What is being reduced: a sample that fails otherwise does not hide one that does
            not.
    """

    def __init__(
        self, line: CommandLine, work: Path, journal: Journal, names: frozenset[str],
        artifacts: Artifacts | None = None,
    ) -> None:  # fmt: skip
        self.line, self.work, self.journal, self.names = line, work, journal, names
        self.artifacts = artifacts
        self.longest = 0.0
        self.last = Seen(None, "", 0.0)
        self.single = True
        self.wanted: Signature | None = None

    def __call__(self, trial: Trial, *, fresh: int = 0, lane: int = 0) -> Answer:
        """Returns what the command says of a trial: bad when it is for any sample."""
        samples = trial.samples if self.line.fed else trial.samples[:1] or [{}]
        answers: list[Answer] = []
        for number, sample in enumerate(samples):
            part = Trial(trial.model, trial.folder, [sample], trial.nodes, trial.label)
            key = f"{part.key(fed=self.line.fed)}.{fresh}"
            known = self.journal.known.get(key)
            if known is None:
                verdict, signature = self._run(part, lane)
                self._record(key, number, verdict, signature)
            else:
                verdict = Verdict(known["verdict"])
                told = known["signature"]
                signature = Signature(*told) if told else None
            answers.append((verdict, signature))
            if verdict is Verdict.DIVERGES and self._is_wanted(signature):
                return verdict, signature
        return together(answers)

    def _is_wanted(self, signature: Signature | None) -> bool:
        return self.wanted is None or signature is None or self.wanted.matches(signature)

    def _record(self, key: str, sample: int, verdict: Verdict, signature: Signature | None) -> None:
        told = [signature.kind, signature.detail] if signature else None
        entry: dict[str, Any] = {
            "entry": "probe", "key": key, "purpose": "check", "sample": sample,
            "verdict": verdict.value, "signature": told, "seconds": round(self.last.seconds, 4),
        }  # fmt: skip
        self.journal.append(entry)
        self.journal.known[key] = entry

    def _run(self, trial: Trial, lane: int) -> Answer:
        folder = self.work / f"lane{lane}"
        folder.mkdir(parents=True, exist_ok=True)
        model = self.line.artifact if self.single else folder / "candidate.onnx"
        inputs = folder / "inputs.npz"
        trial.write(model)
        if self.line.fed:
            write_npz(inputs, trial.samples[0])
        places = {"{model}": str(model), "{inputs}": str(inputs)}
        seen = run_command(_filled(self.line.words, places), self._limit())
        if seen.code is not None:
            self.longest = max(self.longest, seen.seconds)
        self.last = seen
        verdict, signature = self.judge(seen)
        if self.artifacts is not None:
            self.artifacts.sort(verdict, model)
        return verdict, signature

    def _limit(self) -> float | None:
        if self.line.timeout is not None:
            return self.line.timeout
        return max(10.0, 5 * self.longest) if self.longest else None

    def judge(self, seen: Seen) -> Answer:
        """Returns what one run of the command says."""
        if seen.code is None:
            return Verdict.DIVERGES, Signature("timeout")
        if seen.code == SKIP:
            return Verdict.INVALID, None
        if seen.code < 0 and not self.line.rule.regexes:
            return Verdict.DIVERGES, Signature("crash", signal.Signals(-seen.code).name)
        why = self.line.rule.fails(seen.code, seen.text)
        if why is None:
            return Verdict.AGREES, None
        detail = "" if self.line.rule.regexes else self._detail(seen.text)
        return Verdict.DIVERGES, Signature(why, detail)

    def _detail(self, text: str) -> str:
        """Returns the last line that looks like an error, without what varies."""
        lines = [line.strip() for line in text.splitlines() if _ERROR.search(line)]
        if not lines:
            return "without an error message"
        words = _NOISE.sub("_", lines[-1]).split()
        kept = ["_" if word.strip(".,:;()[]") in self.names else word for word in words]
        return " ".join(kept)[:200]


def together(answers: Sequence[Answer]) -> Answer:
    """Returns what samples say together: bad if one is, else good if one could be judged."""
    for verdict in (Verdict.DIVERGES, Verdict.UNSTABLE, Verdict.AGREES):
        found = next((answer for answer in answers if answer[0] is verdict), None)
        if found is not None:
            return found
    return Verdict.INVALID, None


def _filled(words: Sequence[str], places: Mapping[str, str]) -> list[str]:
    filled = []
    for word in words:
        for place, value in places.items():
            word = word.replace(place, value)
        filled.append(word)
    return filled


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

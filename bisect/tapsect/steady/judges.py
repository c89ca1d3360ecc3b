"""Who says whether a run of a build is good: the reference, a command, a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from debugtaps import Array, Build, EngineFailure, Graph, write_npz
from tapsect.checks import Ask, CommandLine, ask_verdict, judged, run_command
from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.given import Options, read_samples
from tapsect.diagnose.subject import Subject
from tapsect.steady.plan import CANDIDATE
from tapsect.verdict import Verdict

__all__ = ["ByCommand", "ByPerson", "ByReference", "Judge", "Judged", "places"]

Judged = tuple[Verdict, str]
"""A verdict and what was seen, in words."""

_WORDS: Mapping[str, Verdict] = {"good": Verdict.AGREES, "bad": Verdict.DIVERGES}


class Judge(Protocol):
    """Judges one run of one build."""

    def judge(self, build: Build | None, title: str) -> Judged:
        """Returns what a run of the build is; without one the candidate on the disk counts."""


class ByReference:
    """Judges by the reference, as a diagnosis does.

    Args:
        subject: The material of a diagnosis.

    Raises:
        ReferenceFailed: The reference cannot run the model.
    """

    def __init__(self, subject: Subject) -> None:
        self.samples, self.timeout = subject.samples, subject.options.timeout
        try:
            subject.graph = subject.reference.complete(subject.samples[0])
            self.ends = EndJudge(subject, Truth(subject))
        except EngineFailure as failure:
            raise subject.reference.failed(failure) from failure
        self._known: list[tuple[int, Mapping[str, Array], str | None]] = []

    def judge(self, build: Build | None, title: str) -> Judged:
        """Returns what a run on each sample is: bad when any output of any sample fails."""
        assert build is not None
        for number, sample in enumerate(self.samples):
            why = self._why(number, build.run(sample, timeout=self.timeout))
            if why is not None:
                return Verdict.DIVERGES, why
        return Verdict.AGREES, "agrees with the reference"

    def _why(self, number: int, values: Mapping[str, Array]) -> str | None:
        for known, before, why in self._known:
            if known == number and _equal(before, values):
                return why
        ends = self.ends.judge(number, values)
        why = next((f"output {e.name!r}: {e.reason}" for e, _ in ends.values() if e.failing), None)
        self._known = [*self._known[-7:], (number, values, why)]
        return why


class ByCommand:
    """Judges by a command.

    Args:
        line: The command and its rule.
        places: What stands for words in braces.
    """

    def __init__(self, line: CommandLine, places: Sequence[Mapping[str, str]]) -> None:
        self.line, self.places = line, places
        self.longest = 0.0

    def judge(self, build: Build | None, title: str) -> Judged:
        """Returns what the command says: bad when it is for any sample."""
        skipped = True
        for places in self.places:
            seen = run_command(self.line.filled(places), self.line.limit(self.longest))
            self.longest = max(self.longest, seen.seconds if seen.code is not None else 0.0)
            verdict, signature = judged(seen, self.line.rule)
            if verdict is Verdict.DIVERGES:
                return verdict, signature.words if signature is not None else ""
            skipped &= verdict is Verdict.INVALID
        return (Verdict.INVALID, "skipped") if skipped else (Verdict.AGREES, "the check passes")


class ByPerson:
    """Judges by asking.

    Args:
        ask: Asks.
    """

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def judge(self, build: Build | None, title: str) -> Judged:
        """Returns what the person says."""
        word = ask_verdict(self.ask, f"\n{title}\n   {CANDIDATE}")
        return _WORDS.get(word, Verdict.INVALID), f"{word}, by hand"


def places(line: CommandLine, options: Options, graph: Graph, work: Path) -> list[dict[str, str]]:
    """Returns what stands for words in braces, once for each sample that the command reads."""
    fixed = {"{model}": str(options.model), "{engine}": str(CANDIDATE)}
    if not line.fed:
        return [fixed]
    found = []
    for number, feeds in enumerate(read_samples(options, graph).samples):
        path = work / f"inputs-{number}.npz"
        write_npz(path, feeds)
        found.append({**fixed, "{inputs}": str(path)})
    return found


def _equal(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and np.array_equal(a[n], b[n], equal_nan=a[n].dtype.kind == "f")
        for n in a
    )

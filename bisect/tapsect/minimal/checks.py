"""Does a candidate fail?  A command says it; ``person`` and ``builtin`` hold the other judges.

Each is a function from a trial to a verdict and, with ``DIVERGES``, a signature.  A candidate
that the judge skips (exit status 125, "skip") is ``INVALID``: neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from debugtaps import write_npz, write_polygraphy
from tapsect.checks import Artifacts, CommandLine, Seen, judged, run_command
from tapsect.journal import Journal
from tapsect.minimal.trial import Trial
from tapsect.reduction import Answer
from tapsect.verdict import Signature, Verdict

__all__ = ["CommandCheck", "together"]


class CommandCheck:
    """Judges by a command.

    Args:
        line: The command and its rule.
        work: Where candidates and inputs are written.
        journal: Answers of an earlier run; new ones are written down there.
        names: Names in the model: they vary between candidates and are no part of a signature.
        artifacts: Files to sort, if any.
        ops: The types of the model's nodes, by name.

    Attributes:
        longest: Seconds of the longest run that ended by itself.
        last: What the last run showed.
        single: Whether one candidate is judged at a time, where the command expects it.
        wanted: What is being reduced: a sample that fails otherwise does not hide one that does
            not.
    """

    def __init__(
        self, line: CommandLine, work: Path, journal: Journal, names: frozenset[str],
        artifacts: Artifacts | None = None, ops: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.line, self.work, self.journal, self.names = line, work, journal, names
        self.artifacts, self.ops = artifacts, ops
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
        told = [signature.kind, signature.detail, signature.op] if signature else None
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
        places = {
            "{model}": model, "{inputs}": folder / "inputs.npz",
            "{inputs_json}": folder / "inputs.json",
        }  # fmt: skip
        trial.write(model)
        if self.line.names("{inputs}"):
            write_npz(places["{inputs}"], trial.samples[0])
        if self.line.names("{inputs_json}"):
            write_polygraphy(places["{inputs_json}"], trial.samples[:1])
        seen = run_command(
            self.line.filled({p: str(f) for p, f in places.items()}), self.line.limit(self.longest)
        )
        if seen.code is not None:
            self.longest = max(self.longest, seen.seconds)
        self.last = seen
        verdict, signature = judged(seen, self.line.rule, self.names, self.ops)
        if self.artifacts is not None:
            self.artifacts.sort(verdict, [model])
        return verdict, signature


def together(answers: Sequence[Answer]) -> Answer:
    """Returns what samples say together: bad if one is, else good if one could be judged."""
    for verdict in (Verdict.DIVERGES, Verdict.UNSTABLE, Verdict.AGREES):
        found = next((answer for answer in answers if answer[0] is verdict), None)
        if found is not None:
            return found
    return Verdict.INVALID, None

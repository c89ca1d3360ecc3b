"""The built-in check: does the engine answer as the reference does?"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from debugtaps import Host
from tapsect.candidate import Candidate
from tapsect.diagnose.beautify import examine_specimen
from tapsect.diagnose.subject import Subject
from tapsect.localize.errors import ERRORS
from tapsect.localize.examine import Examined, Examiner, Recorded
from tapsect.minimal.checks import together
from tapsect.minimal.glance import glance
from tapsect.minimal.ground import Ground
from tapsect.minimal.magnitude import effect, magnitude
from tapsect.probe import Prober
from tapsect.reduction import Answer
from tapsect.replay.reference import Reference
from tapsect.rounding.floors import limit_for
from tapsect.simplify import Specimen
from tapsect.verdict import Signature, Verdict

__all__ = ["Builtin"]


if TYPE_CHECKING:
    from tapsect.minimal.given_truth import GivenTruth


@dataclass
class Lane:
    """One engine and one reference, used by one check at a time."""

    reference: Reference
    prober: Prober
    examiners: list[Examiner]
    folder: Path
    hosts: tuple[Host, ...] = ()


class Builtin:
    """Judges parts and models by running engine and reference.

    Args:
        ground: What is cut.
        subject: The diagnosis' material.

    Attributes:
        kind: The failure that is looked for, known once the start was judged.
        why_not: Why the whole is not seen to fail, where the user's own truth has a say in it.
    """

    def __init__(self, ground: Ground, subject: Subject) -> None:
        self.ground, self.subject = ground, subject
        self.kind = "accuracy"
        self.bar: float | None = None
        self._failing: int | None = None
        self._size: int | None = None
        self._settled: dict[tuple[Candidate, int], Examined] = {}
        self.wanted: Signature | None = None
        self.why_not = ""
        self._start: Candidate | None = None
        self._given = _given_truth(subject)
        self._lock = threading.Lock()
        self._lanes = {0: self._lane(subject.reference, subject.prober)}

    @property
    def builds(self) -> int:
        """Returns how many engine builds were made."""
        return sum(lane.prober.builds for lane in self._lanes.values())

    @property
    def runs(self) -> int:
        """Returns how many engine runs were made."""
        return sum(lane.prober.runs for lane in self._lanes.values())

    def settle(self, start: Candidate) -> None:
        """Learns from the start which failure is looked for."""
        self._start = start
        for number in range(len(self.ground.samples)):
            if self._is_right(start, number):
                continue
            examiner = self._lanes[0].examiners[number]
            examined = examiner.examine(start, "reference")
            if examined.failure is not None:
                self.kind = examined.failure.kind
            elif examined.verdict is Verdict.DIVERGES and examined.signature is not None:
                self.kind = examined.signature.kind
            else:
                continue
            self._failing, self._size = number, magnitude(examined)
            if examined.failure is None:  # what was looked for changes no more what was seen
                self._settled[(start, number)] = examined
            if self.kind not in ERRORS and self.subject.options.tolerance is None:
                limit = limit_for(max(examiner.classes.contraction, examiner.classes.rest, 2**-24))
                self.bar = max(limit.end, min(limit.norm, examined.score / 4))
            for each in self._lanes[0].examiners:
                each.kind, each.bar = self.kind, self.bar
            return

    def hint(self) -> tuple[int, ...]:
        """Returns operators that seem to be at fault, from one look at all tensors."""
        lane = self._lanes[0]
        if self.kind in ERRORS or self._failing is None or lane.examiners[0].repeats > 1:
            return ()
        recorded = lane.examiners[self._failing].recorded
        return glance(recorded, lane.prober, self.subject.options.tap_memory)

    def part(
        self, candidate: Candidate, *, samples: Sequence[int] | None = None, fresh: int = 0,
        lane: int = 0,
    ) -> Answer:  # fmt: skip
        """Returns what the engine does with a part: bad when it is for any sample."""
        answers: list[Answer] = []
        for number in range(len(self.ground.samples)) if samples is None else samples:
            if self._is_right(candidate, number, fresh):
                answers.append((Verdict.AGREES, None))
                continue
            examined = None if fresh else self._settled.get((candidate, number))
            if examined is None:
                examiner = self._of(lane).examiners[number]
                examined = examiner.examine(candidate, "reference", fresh=fresh)
            self._note_reference(candidate, examined)
            signature = self._sized(candidate, number, examined, lane)
            answers.append((examined.verdict, signature))
            if examined.verdict is Verdict.DIVERGES and self._is_wanted(signature):
                return answers[-1]
        return together(answers)

    def _is_right(self, candidate: Candidate, number: int, fresh: int = 0) -> bool:
        """Returns whether the user's own truth says that the whole is right."""
        if self._given is None or candidate != self._start:
            return False
        right = self._given.fails(number, fresh=fresh) is False
        if right:
            self.why_not = f"{self._given.source} find nothing wrong"
        return right

    def _note_reference(self, candidate: Candidate, examined: Examined) -> None:
        """Says why a whole that the user's own truth finds wrong cannot be reduced."""
        whole = self._given is not None and candidate == self._start
        if self._given is not None and whole and examined.verdict is Verdict.AGREES:
            self.why_not = (
                f"{self._given.source} find it wrong, but the engine answers as the reference does;"
                " tapsect bisect tells what differs"
            )

    def _sized(
        self, candidate: Candidate, number: int, examined: Examined, lane: int
    ) -> Signature | None:
        """Returns the signature with the size that the error has at the outputs of the whole.

        That costs a run of the reference, and is asked only where the part's own size is another.
        """
        own = magnitude(examined)
        if examined.signature is None or own is None:
            return examined.signature
        if self._size is not None and abs(own - self._size) > 1:
            feeds = self.ground.samples[number]
            own = effect(self._of(lane).reference, feeds, candidate, examined)
        return replace(examined.signature, magnitude=own)

    def model(self, specimen: Specimen, *, fresh: int = 0, lane: int = 0) -> Answer:
        """Returns what the engine does with a whole small model."""
        examined = self.examined(specimen, fresh=fresh, lane=lane)
        signature = examined.signature
        if signature is not None:
            signature = replace(signature, magnitude=magnitude(examined))
        return examined.verdict, signature

    def examined(self, specimen: Specimen, *, fresh: int = 0, lane: int = 0) -> Examined:
        """Returns all that one look at a model showed."""
        here = self._of(lane)
        return examine_specimen(specimen, here.examiners[0], here.folder, fresh)

    def wants(self, signature: Signature | None) -> None:
        """Takes note of what is being reduced."""
        self.wanted = signature

    def announce(self, coming: Iterable[Candidate]) -> None:
        """Tells nobody: no person waits."""

    def close(self) -> None:
        """Ends the workers of further lanes."""
        for lane in self._lanes.values():
            for host in lane.hosts:
                host.close()

    def _is_wanted(self, signature: Signature | None) -> bool:
        return self.wanted is None or signature is None or self.wanted.matches(signature)

    def _of(self, number: int) -> Lane:
        with self._lock:
            if number not in self._lanes:
                self._lanes[number] = self._further(number)
            return self._lanes[number]

    def _further(self, number: int) -> Lane:
        """Returns a lane with workers of its own; all candidates lie beside the weights."""
        subject, work = self.subject, self.ground.work
        options = subject.options
        engine = Host(subject.specs[0], python=options.engine_python, timeout=options.timeout)
        engine.room = work
        truth = Host(subject.specs[1], timeout=max(options.timeout, 600.0))
        reference = Reference(
            self.ground.graph, truth, work, stated=subject.stated, seed=options.seed,
            largest=subject.reference.largest, mark=f"lane{number}-",
        )  # fmt: skip
        prober = Prober(engine, subject.journal, subject.prober.identity, options.timeout)
        lane = self._lane(reference, prober)
        lane.hosts = (engine, truth)
        return lane

    def _lane(self, reference: Reference, prober: Prober) -> Lane:
        work = self.ground.work
        models = work / f"{reference.mark}models"
        models.mkdir(parents=True, exist_ok=True)
        examiners = [
            Examiner(
                reference, prober, Recorded(reference, sample, {}), work, kind=self.kind,
                tolerance=self.subject.options.tolerance,
            )
            for sample in self.ground.samples
        ]  # fmt: skip
        for examiner in examiners:
            examiner.bar = self.bar
        return Lane(reference, prober, examiners, models)


def _given_truth(subject: Subject) -> GivenTruth | None:
    """Returns the user's own truth; ``None`` where the reference alone tells what is right."""
    if subject.golden is None and subject.original is None and subject.judge is None:
        return None
    from tapsect.minimal.given_truth import GivenTruth  # half of a diagnosis comes with it

    return GivenTruth(subject)

"""Where one sample goes wrong: taps, whether builds disagree, blame, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tapsect.diagnose.blame import Blame, blame_values
from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.noisily import blame_noisily
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.diagnose.unsteady import looks_for, measure, said, tries_for
from tapsect.diagnose.why import explain_precision, explain_unblamed
from tapsect.journal import Outcome
from tapsect.localize.examine import Examiner, Recorded
from tapsect.localize.kernels import Kernels
from tapsect.localize.taps import Ends, Located, Locator
from tapsect.request import Request

__all__ = ["Place"]

Tell = Callable[[str, str, str], None]

FLAKY_RUNS = 3
AGAIN_UNPLACED = 8
"""Builds before a failure without a place is taken for steady: it may come 7 times of 10."""


class Place:
    """Looks for the place of a failure that outputs show.

    Args:
        subject: The diagnosis' material.
        told: What was decided so far; takes in what is found.
        before: The judged outputs of the untapped build.
        judge: Judges outputs.
        truth: What they should be.
        tell: Writes one step to the trail, with the builds since the last one.
        fusions: Nodes that the untapped build runs as one, where the engine tells.
    """

    def __init__(
        self, subject: Subject, told: Told, before: Ends, judge: EndJudge, truth: Truth, tell: Tell,
        *, fusions: Sequence[frozenset[str]] = (),
    ) -> None:  # fmt: skip
        self.subject, self.told, self.before = subject, told, before
        self.judge, self.truth, self.tell = judge, truth, tell
        self.number = told.sample
        self.alike = 0
        self.locator = Locator(
            subject.reference, subject.prober, subject.work,
            feeds=subject.samples[self.number], before=before,
            measured=truth.measured(self.number),
            judge=lambda values: judge.judge(self.number, values), end_limit=subject.end_limit,
            tap_memory=subject.options.tap_memory, known=subject.coarse,
            kernels=_kernels(subject, fusions),
            border=subject.options.tap_mode in ("auto", "border"), progress=subject.progress,
            tell=lambda what, why: tell("taps", what, why),
        )  # fmt: skip

    def find(self) -> None:
        """Finds the place and blames, or explains why nothing is to blame."""
        told, stated = self.told, self.subject.coarse
        within = self.truth.within(self.number, self.before, stated) if stated else None
        located = self._located() if within is None else self.locator.locate(most=1)
        told.located, evidence = located, located.evidence
        if within is not None and not _one_operator(located):
            # Taps change what a coarse precision rounds; that a region heals proves no fault.
            explain_precision(self.subject, told, self.before, self.truth, self.tell, within)
        elif evidence is not None and not evidence.culprits:
            explain_unblamed(
                self.subject, told, self.before, self.truth, self.tell,
                part=lambda: self._blame(replace(located, evidence=None, healing=())),
            )  # fmt: skip
        elif evidence is None and told.flaky:
            told.take(self._noisily(told.flaky))
        else:
            blame = self._blame(located)
            if blame.cause is None and evidence is None and (flaky := self._flaky(AGAIN_UNPLACED)):
                blame = self._noisily(flaky)
            told.take(blame)

    def _failing(self, outcome: Outcome) -> list[bool]:
        """Returns of each run whether it failed."""
        if outcome.failure is not None:
            return [True]
        ends = [self.judge.judge(self.number, values) for values in outcome.values]
        return [any(e.failing for e, _ in each.values()) for each in ends]

    def _noisily(self, flaky: str) -> Blame:
        """Returns what builds of parts tell when no tapped build fails as the untapped did."""
        subject, seen = self.subject, self.subject.unsteady
        if seen is None:
            return Blame(None, "predicate", flaky=flaky, how="no tapped build failed as before")
        recorded = Recorded(subject.reference, subject.samples[self.number], {})
        kind = self.told.failure or "accuracy"
        examiner = Examiner(
            subject.reference, subject.prober, recorded, subject.work, kind=kind,
            tolerance=subject.options.tolerance,
        )  # fmt: skip
        examiner.expect(flaky, looks_for(seen))
        return blame_noisily(subject, examiner, seen, self.tell, flaky=flaky, sample=self.number)

    def _blame(self, located: Located) -> Blame:
        return blame_values(self.subject, self.number, located, self.before, self._flaky, self.tell)

    def _located(self) -> Located:
        """Returns what taps tell; when the first ones change the failure, after a second look."""
        located = self.locator.locate(most=1)
        if located.observer == "faithful" or not (located.healing or located.evidence is None):
            return self.locator.locate()
        if self._flaky() is None:
            return self.locator.locate()
        # A tapped build that fails as before is evidence.
        for _ in range(tries_for(self.subject.unsteady)):
            if located.evidence is not None:
                break
            self.subject.prober.epoch += 1
            self.locator.forget()
            located = self.locator.locate(most=1)
        return located

    def _flaky(self, builds: int = 2) -> str | None:
        """Returns how builds or runs disagree; builds the untapped model again to see.

        Args:
            builds: How many that fail alike are taken for steady.
        """
        subject, told = self.subject, self.told
        if self.alike >= builds or subject.unsteady is not None:
            return told.flaky
        feeds = [self.number] * FLAKY_RUNS
        samples, prober = [subject.samples[number] for number in feeds], subject.prober

        def request(fresh: int) -> Request:
            return prober.request(
                subject.model, samples, fresh=fresh, purpose="again", details=True,
                kernels=fresh == 1,
            )  # fmt: skip

        for fresh in range(self.alike + 1, builds + 1):
            prober.begin(map(request, range(fresh, builds + 1)))
            again = prober.ask(request(fresh))
            if again.failure is not None:
                return told.flaky
            self.locator.learn(Kernels(subject.graph, again.fusions))
            failing = self._failing(again)
            if not all(failing):
                told.flaky = told.flaky or ("flaky_run" if any(failing) else "flaky_build")
                what = "runs of one build disagree" if any(failing) else "another build agrees"
                self.tell("repeat", "flaky", what)
                subject.unsteady = measure(subject, feeds, self._failing)
                self.tell("repeat", "rate", said(subject.unsteady))
                return told.flaky
        if told.flaky:
            return told.flaky
        self.alike = builds
        self.tell("repeat", "fails alike", "further builds of the untapped model fail as well")
        return None


def _one_operator(located: Located) -> bool:
    """Returns whether a single operator, or kernel, was seen to be at fault."""
    evidence, kernels = located.evidence, located.kernels
    if evidence is None:
        return False
    held = [kernels.holding(s.nodes) if kernels else None for s in evidence.culprits]
    return any(
        len(s.nodes) == 1 or (kernel is not None and kernel >= set(s.nodes))
        for s, kernel in zip(evidence.culprits, held, strict=True)
    )


def _kernels(subject: Subject, fusions: Sequence[frozenset[str]]) -> Kernels:
    """Returns what the engine told of its kernels; says where border taps were asked in vain."""
    kernels = Kernels(subject.graph, fusions)
    if subject.options.tap_mode == "border" and not kernels:
        subject.notes.append("the engine tells of no fused kernels: every tensor was tapped")
    return kernels

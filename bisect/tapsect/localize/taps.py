"""Where: from an output that fails to the operators whose error makes it fail.

One build with every tap, where memory and builder allow; the observer proof that the taps did
not change the failure; the replay of all regions between taps; the causal test.  When taps heal
the failure or the builder refuses them, :func:`tapsect.search.refine` finds taps that do not.

Where the engine tells which operators run as one kernel, only what passes between kernels is
tapped first; the kernel that is wrong is then looked into.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from debugtaps import Array, EngineFailure, promote, save
from tapsect.journal import Outcome
from tapsect.localize.evidence import Ends, Evidenced, Located, Suspect, Taps
from tapsect.localize.inside import look_inside
from tapsect.localize.kernels import Kernels
from tapsect.localize.observer import ObserverProof
from tapsect.localize.weighing import Weigher
from tapsect.probe import Prober
from tapsect.progress import Progress
from tapsect.replay.reference import Reference, numpy_dtype
from tapsect.replay.regions import Classes
from tapsect.request import Request
from tapsect.rounding.outputs import Measured
from tapsect.search.foresight import begun_early
from tapsect.search.frontier import Limit, Look, Refined, refine
from tapsect.search.price import cheapest, rounds

__all__ = ["Ends", "Evidenced", "Located", "Locator", "Suspect"]

Judge = Callable[[Mapping[str, Array]], Ends]


class Locator:
    """Locates the divergence of one sample.

    Args:
        reference: The run we believe.
        prober: Probes the engine.
        folder: Where tapped models are written, beside the weights.
        feeds: The sample.
        before: The judged outputs of the untapped build.
        measured: The reference's outputs and end-to-end spread.
        judge: Judges outputs of this sample as ``before`` was judged.
        end_limit: F at the stated precision.
        tap_memory: Bytes that taps may take in one build.
        known: Precision the engine states, in place of the vote.
        kernels: What the untapped build runs together.
        border: Whether to tap between kernels first.
        progress: Hears of each build.
        tell: Writes one step to the trail: with what was built, and what that showed.
    """

    def __init__(
        self, reference: Reference, prober: Prober, folder: Path, *,
        feeds: Mapping[str, Array], before: Ends, measured: Measured, judge: Judge,
        end_limit: float, tap_memory: int, known: Classes | None, kernels: Kernels,
        border: bool, progress: Progress, tell: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.reference, self.prober, self.folder = reference, prober, folder
        self.graph, self.topology = reference.graph, reference.topology
        self.feeds, self.judge = feeds, judge
        self.tap_memory, self.kernels = tap_memory, kernels
        self.closed = kernels if border else Kernels(reference.graph)
        self.border, self.late = border, False
        self.progress, self.tell = progress, tell
        self.weigher = Weigher(
            reference, feeds, before=before, measured=measured, end_limit=end_limit, known=known,
            progress=progress,
        )  # fmt: skip
        self.evidence: Evidenced | None = None
        self.fresh = 0
        self.looked: dict[tuple[str, ...], Outcome] = {}
        self.weighed: dict[tuple[str, ...], Evidenced] = {}
        self.shown: set[str] = set()
        self.observer: list[str] = []
        self.proof = ObserverProof(
            reference, feeds, before=before, measured=measured, end_limit=end_limit,
            stated=prober.host.unit_roundoff,
        )  # fmt: skip
        self.numbers = itertools.count()

    def forget(self) -> None:
        """Forgets what earlier builds showed, so that they are made again."""
        self.looked.clear()
        self.weighed.clear()
        self.observer.clear()

    def learn(self, kernels: Kernels) -> None:
        """Takes in what runs together, where that is told on request only and was not known."""
        if kernels and not self.kernels:
            self.kernels, self.late = kernels, True
            self.closed = kernels if self.border else self.closed

    def locate(self, *, most: int | None = None) -> Located:
        """Returns where the failure comes from.

        Args:
            most: Most builds; about 2·log2(taps) and some when None.  What was looked at
                before is remembered.
        """
        order = self.topology.tappable
        border = tuple(t for t in order if self.closed.border(t))
        sizes = self._sizes(order)
        limit: Limit[str] = Limit(float(self.tap_memory), lambda t: float(sizes[t]))
        found = self._refined(border, limit, most)
        if self.evidence is None and border != order and most is None:
            found = self._refined(order, limit, most)  # the kernels are not as they were told
        if (self._scattered(found) and limit.fits(found.accepted)) or not order:
            self._look(found.accepted)  # without taps, the outputs alone are replayed
        taps = Taps.of(found)
        if most is None:
            taps = self._inside(taps, limit)
        return Located.of(
            self.graph, order, taps, self.evidence, self.kernels, self.closed, self.shown,
            self.observer[0] if self.observer else "faithful",
        )  # fmt: skip

    def _refined(self, order: Sequence[str], limit: Limit[str], most: int | None) -> Refined[str]:
        most = most or 2 * int(math.log2(len(order) + 2)) + 24
        found = self._search(order, limit, most)
        if self.evidence is None and self.proof.altered:
            # Nothing failed just as before: what fails much as before is the next best.
            self.proof.strict = False
            found = self._search(order, limit, most)
        return found

    def _search(self, order: Sequence[str], limit: Limit[str], most: int) -> Refined[str]:
        def narrow(tensor: str) -> bool:
            return tensor in self.topology.waists  # found when first asked: it costs a pass

        def search(look: Callable[[tuple[str, ...]], Look[str]]) -> Refined[str]:
            return refine(order, look, limit=limit, max_calls=most, favoured=narrow)

        either: tuple[Look[str], ...] = (Look(accepted=False), Look(accepted=True))
        return begun_early(search, self._look, self._begin, lambda _: either)

    def _worth(self, count: int, outcome: Outcome) -> int | None:
        """Returns how many taps make all builds cheapest, where one with ``count`` was late."""
        if outcome.failure is None or outcome.failure.kind != "timeout":
            return None
        usual = self.prober.longest
        each = 2 * max(0.0, outcome.seconds - usual) / count  # it was stopped there: a guess
        return cheapest(count, usual, each)

    def _begin(self, looks: Iterable[tuple[str, ...]]) -> None:
        """Begins builds that are near; the first one alone, which mostly is the only one."""
        if self.looked:
            self.prober.begin(
                self._request(taps) if taps not in self.looked else None for taps in looks
            )

    def _request(self, taps: tuple[str, ...]) -> Request:
        model = promote(self.graph, () if self.prober.exposes else taps)
        path = save(model, self.folder / f"tapped-{next(self.numbers)}.onnx")
        return self.prober.request(
            path, [self.feeds], taps=taps, purpose="taps", details=True, own=True,
            patience=rounds(len(self.topology.tappable), 1) + 1,
        )  # fmt: skip

    def _inside(self, taps: Taps, limit: Limit[str]) -> Taps:
        """Returns the taps after a look into the kernels that hold the fault."""
        evidence = self.evidence
        if evidence is None or not evidence.culprits or not self.closed:
            return taps
        nodes = frozenset().union(*(s.judgement.region for s in evidence.culprits))
        hidden = self.closed.inside(nodes, self.topology.tappable)
        hidden = tuple(t for t in hidden if t not in self.shown and t not in taps.barred)
        found = look_inside(hidden, taps.accepted, self._beside, limit)
        if self.evidence is not None and not self.evidence.culprits:
            judged = self.evidence.judgements.values()
            if not any(j.alone and nodes.intersection(j.region) for j in judged):
                self.evidence = evidence  # what was seen whole is more than its harmless pieces
        return taps.also(found)

    def _beside(self, taps: Collection[str]) -> Look[str]:
        return self._look(tuple(t for t in self.topology.tappable if t in taps))

    def _scattered(self, found: Refined[str]) -> bool:
        """Returns whether trusted taps bound the fault more closely than the last look did."""
        evidence = self.evidence
        return evidence is not None and bool(set(found.accepted) - evidence.values.keys())

    def _sizes(self, tensors: Sequence[str]) -> dict[str, int]:
        shapes = self.reference.shapes(self.feeds)
        sizes = {}
        for tensor in tensors:
            kind = self.graph.types.get(tensor)
            shape = shapes.get(tensor) or (kind.static if kind is not None else None) or ()
            dtype = numpy_dtype(self.graph.elem(tensor))
            sizes[tensor] = int(np.prod(shape, dtype=np.int64)) * (dtype.itemsize if dtype else 8)
        return sizes

    # -- one build -----------------------------------------------------------------------------

    def _look(self, taps: tuple[str, ...]) -> Look[str]:
        self.progress.step("locate", f"build with {len(taps)} taps")
        model = promote(self.graph, () if self.prober.exposes else taps)
        path = save(model, self.folder / "tapped.onnx")
        outcome = self._probe(path, taps)
        if outcome.failure is not None:
            self._note(f"{len(taps)} taps", f"the builder refused: {_first(outcome.failure)}")
            worth = self._worth(len(taps), outcome)
            return Look(accepted=False, refused=True, worth=worth)
        values = outcome.values[0]
        seen = self.proof.seen(self.judge(values))
        self.observer.append(seen)
        if seen != "faithful":
            self._note(f"{len(taps)} taps", f"{seen}: the taps changed the failure")
            return Look(accepted=False)
        missing = [t for t in taps if t not in values]
        if missing:
            self._note(f"{len(taps)} taps", f"{len(missing)} of them were not exposed")
        if taps not in self.weighed:
            self.weighed[taps] = self.weigher.weigh(outcome, taps)
        self.evidence = self.weighed[taps]
        self.shown.update(t for t in taps if t in values)
        self._note(f"{len(taps)} taps", self._summary(self.evidence, outcome))
        return Look(accepted=True, relevant=self._relevant(self.evidence, taps))

    def _probe(self, model: Path, taps: tuple[str, ...]) -> Outcome:
        if taps not in self.looked:
            self.fresh += 1
            self._make_room()
            self.looked[taps] = self.prober.look(
                model, [self.feeds], taps=taps, purpose="taps", details=True,
                # All taps in one build may cost what it takes to find the place one by one.
                patience=rounds(len(self.topology.tappable), 1) + 1,
            )  # fmt: skip
        return self.looked[taps]

    def _make_room(self) -> None:
        """Forgets what earlier builds showed, where it is much: the journal has it on disk."""
        held = (v for each in self.looked.values() for o in each.values for v in o.values())
        if sum(value.nbytes for value in held) > self.tap_memory // 4:
            self.looked.clear()
            self.weighed.clear()

    def _note(self, what: str, why: str) -> None:
        if self.fresh:  # what was looked at before was told before
            self.tell(what, why)
            self.fresh = 0

    def _summary(self, evidence: Evidenced, outcome: Outcome) -> str:
        culprits, harmless = len(evidence.culprits), len(evidence.harmless)
        judged = sum(j.kind != "not_judged" for j in evidence.judgements.values())
        said = (
            f"fails as before; {judged} tensors replayed, {culprits} with an error that moves "
            f"the outputs, {harmless} that move nothing"
        )
        if not self.kernels or self.late:  # tapped builds were not asked
            return said
        same = self.kernels.alike(Kernels(self.graph, outcome.fusions))
        return f"{said}; the kernels are {'as' if same else 'not as'} in the untapped build"

    def _relevant(self, evidence: Evidenced, taps: Collection[str]) -> frozenset[str] | None:
        """Returns the taps inside a bad region or at its border; None when nothing is bad."""
        if not evidence.culprits:
            return None
        found: set[str] = set()
        for suspect in evidence.culprits:
            for index in suspect.judgement.region:
                node = self.graph.nodes[index]
                found.update(node.reads, node.writes)
        inside = found - set(taps)
        return frozenset(found) if inside & set(self.topology.tappable) else frozenset()


def _first(failure: EngineFailure) -> str:
    lines = [s.strip() for s in failure.message.splitlines() if s.strip()]
    return (lines[0] if lines else failure.kind)[:160]

"""Where: from an output that fails to the operators whose error makes it fail.

One build with every tap, where memory and builder allow; the observer proof that the taps did
not change the failure; the replay of all regions between taps; the causal test.  When taps heal
the failure or the builder refuses them, :func:`tapsect.search.refine` finds taps that do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from debugtaps import Array, EngineFailure, promote, save
from tapsect.localize.evidence import Evidenced, Located, Suspect, classes_from, coverage_of
from tapsect.localize.liars import liars
from tapsect.probe import Outcome, Prober
from tapsect.progress import Progress
from tapsect.replay.causal import MOST_SUSPECTS, Effect, causal_test
from tapsect.replay.reference import Reference, numpy_dtype
from tapsect.replay.regions import Classes, Judgement, Replay
from tapsect.rounding.floors import rms
from tapsect.rounding.outputs import End, Measured, same_answer, same_failure
from tapsect.search.frontier import Limit, Look, Refined, refine

__all__ = ["Ends", "Evidenced", "Located", "Locator", "Suspect"]

Ends = Mapping[str, tuple[End, Array | None]]
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
        progress: Hears of each build.
        tell: Writes one step to the trail: with what was built, and what that showed.
    """

    def __init__(
        self, reference: Reference, prober: Prober, folder: Path, *,
        feeds: Mapping[str, Array], before: Ends, measured: Measured, judge: Judge,
        end_limit: float, tap_memory: int, known: Classes | None, progress: Progress,
        tell: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self.reference, self.prober, self.folder = reference, prober, folder
        self.graph, self.topology = reference.graph, reference.topology
        self.feeds, self.before, self.measured, self.judge = feeds, before, measured, judge
        self.end_limit, self.tap_memory, self.known = end_limit, tap_memory, known
        self.progress, self.tell = progress, tell
        self.evidence: Evidenced | None = None
        self.strict, self.altered, self.fresh = True, False, 0
        self.looked: dict[tuple[str, ...], Outcome] = {}
        self.weighed: dict[tuple[str, ...], Evidenced] = {}
        self.observer: list[str] = []
        self.coarse: Measured | None = None

    def forget(self) -> None:
        """Forgets what earlier builds showed, so that they are made again."""
        self.looked.clear()
        self.weighed.clear()
        self.observer.clear()

    def locate(self, *, most: int | None = None) -> Located:
        """Returns where the failure comes from.

        Args:
            most: Most builds; about 2·log2(taps) and some when None.  What was looked at
                before is remembered.
        """
        order = self.topology.tappable
        sizes = self._sizes(order)
        limit: Limit[str] = Limit(float(self.tap_memory), lambda t: float(sizes[t]))
        most = most or 2 * int(math.log2(len(order) + 2)) + 24
        found = refine(order, self._look, limit=limit, max_calls=most)
        if self.evidence is None and self.altered:
            # Nothing failed just as before: what fails much as before is the next best.
            self.strict = False
            found = refine(order, self._look, limit=limit, max_calls=most)
        if (self._scattered(found) and limit.fits(found.accepted)) or not order:
            self._look(found.accepted)  # without taps, the outputs alone are replayed
        coverage = coverage_of(self.graph, order, found, self.evidence)
        return Located(
            self.evidence, coverage, found.healing, found.refusing,
            self.observer[0] if self.observer else "faithful",
        )  # fmt: skip

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
            return Look(accepted=False, refused=True)
        values = outcome.values[0]
        seen = self._seen(self.judge(values))
        self.observer.append(seen)
        if seen != "faithful":
            self._note(f"{len(taps)} taps", f"{seen}: the taps changed the failure")
            return Look(accepted=False)
        missing = [t for t in taps if t not in values]
        if missing:
            self._note(f"{len(taps)} taps", f"{len(missing)} of them were not exposed")
        if taps not in self.weighed:
            self.weighed[taps] = self._weigh(outcome, taps)
        self.evidence = self.weighed[taps]
        self._note(f"{len(taps)} taps", self._summary(self.evidence))
        return Look(accepted=True, relevant=self._relevant(self.evidence, taps))

    def _probe(self, model: Path, taps: tuple[str, ...]) -> Outcome:
        if taps not in self.looked:
            self.fresh += 1
            self.looked[taps] = self.prober.look(
                model, [self.feeds], taps=taps, purpose="taps", details=True
            )
        return self.looked[taps]

    def _seen(self, ends: Ends) -> str:
        """Returns what the observer proof says: faithful, partly healed, healed or changed.

        Where two faults fail together, taps that cure one leave a failure that looks much like
        both.  Only when nothing fails just as before is such a build used.
        """
        seen = same_failure(self.before, ends, self.measured.base)
        if seen == "changed" and self._within_precision(ends):
            return "faithful"
        if seen == "faithful" and not same_answer(self.before, ends, self.end_limit):
            self.altered = True
            return "partly healed" if self.strict else seen
        return seen

    def _within_precision(self, ends: Ends) -> bool:
        """Returns whether both builds lie within 3 floors of the precision the engine states.

        Rounding that coarse points elsewhere with every change of the build; only its size is
        the same failure.
        """
        stated = self.prober.host.unit_roundoff() or 0.0
        if stated <= (self.reference.stated or 2.0**-24):
            return False
        if self.coarse is None:
            self.coarse = self.reference.ends(self.feeds, samples=8, level=stated)
        for name, (end, _) in self.before.items():
            spread = self.coarse.spread.get(name)
            after = ends[name][0]
            if not end.failing and not after.failing:
                continue
            if spread is None or end.error is None or after.error is None:
                return False
            if max(end.error, after.error) > 3.0 * rms(np.nan_to_num(spread, posinf=0.0)):
                return False
        return True

    def _note(self, what: str, why: str) -> None:
        if self.fresh:  # what was looked at before was told before
            self.tell(what, why)
            self.fresh = 0

    def _summary(self, evidence: Evidenced) -> str:
        culprits, harmless = len(evidence.culprits), len(evidence.harmless)
        judged = sum(j.kind != "not_judged" for j in evidence.judgements.values())
        return (
            f"fails as before; {judged} tensors replayed, {culprits} with an error that moves "
            f"the outputs, {harmless} that move nothing"
        )

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

    # -- evidence ------------------------------------------------------------------------------

    def _weigh(self, outcome: Outcome, taps: Sequence[str]) -> Evidenced:
        """Replays, drops taps that lie, and tests what the suspects do."""
        shown = set(taps) | self.graph.outputs.keys()
        values = {t: v for t, v in outcome.values[0].items() if t in shown}
        known = self._stated(outcome.precisions) or self.known
        self.progress.step("locate", "replaying every operator on the engine's own inputs")
        replay = Replay(self.reference, self.feeds, values)
        judgements, classes = replay.judge(known=known)
        unreliable = liars(replay, judgements, classes)
        if unreliable:
            values = {t: v for t, v in values.items() if t not in unreliable}
            replay = Replay(self.reference, self.feeds, values)
            judgements, classes = replay.judge(known=classes)
        culprits, harmless = self._weighed(replay, judgements, values)
        return Evidenced(
            values, judgements, classes, culprits, harmless, unreliable, outcome.fusions
        )

    def _stated(self, precisions: Mapping[str, str]) -> Classes | None:
        return None if not precisions else classes_from(precisions, self.reference)

    def _weighed(
        self, replay: Replay, judgements: Mapping[str, Judgement], values: Mapping[str, Array]
    ) -> tuple[tuple[Suspect, ...], tuple[Suspect, ...]]:
        suspects = [j for j in judgements.values() if j.suspect]
        suspects.sort(key=lambda j: (-j.ratio, self.topology.position.get(j.tensor, 0)))
        shapes = [j for j in suspects if j.kind in ("wrong_shape", "wrong_dtype")]
        others = [j for j in suspects if j not in shapes]
        # A region that holds a smaller bad region is a consequence of it.
        others = [j for j in others if not any(k.region < j.region for k in suspects)]
        others = others[:MOST_SUSPECTS]
        replayed = replay.bases([j.tensor for j in others])
        errors = {t: (values[t], y) for t, y in replayed.items() if values[t].shape == y.shape}
        self.progress.step("locate", f"testing what {len(errors)} suspects do to the outputs")
        effects = causal_test(
            self.reference, self.feeds, errors, [e for e, _ in self.before.values()],
            self.measured, {n: v for n, (_, v) in self.before.items() if v is not None},
            self.end_limit,
        ) if errors else {}  # fmt: skip
        effects |= {j.tensor: Effect(float("inf"), 1.0, culprit=True) for j in shapes}
        found = [self._suspect(j, effects[j.tensor]) for j in suspects if j.tensor in effects]
        culprits = [s for s in found if s.effect.culprit]
        culprits.sort(key=self._blame_order)
        return tuple(culprits), tuple(s for s in found if not s.effect.culprit)

    def _suspect(self, judgement: Judgement, effect: Effect) -> Suspect:
        nodes = self.topology.blamed(judgement.region)
        return Suspect(judgement, effect, nodes, "tapped")

    def _blame_order(self, suspect: Suspect) -> tuple[float, int, int]:
        share = round(min(suspect.effect.share, 1e6), 2)
        tensor = suspect.tensor
        return (
            -share, self.topology.depth.get(tensor, 0), self.topology.position.get(tensor, 0)
        )  # fmt: skip


def _first(failure: EngineFailure) -> str:
    lines = [s.strip() for s in failure.message.splitlines() if s.strip()]
    return (lines[0] if lines else failure.kind)[:160]

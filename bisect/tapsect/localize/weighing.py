"""What one build with taps tells: the replay, taps that lie, and what each suspect does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from debugtaps import Array
from tapsect.journal import Outcome
from tapsect.localize.evidence import Ends, Evidenced, Suspect, classes_from
from tapsect.localize.liars import liars
from tapsect.progress import Progress
from tapsect.replay.causal import MOST_SUSPECTS, Effect, causal_test
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Classes, Judgement, Replay
from tapsect.rounding.outputs import Measured

__all__ = ["Weigher"]


class Weigher:
    """Weighs faithful builds of one sample.

    Args:
        reference: The run we believe.
        feeds: The sample.
        before: The judged outputs of the untapped build.
        measured: The reference's outputs and end-to-end spread.
        end_limit: F at the stated precision.
        known: Precision the engine states, in place of the vote.
        progress: Hears of each step.
    """

    def __init__(
        self, reference: Reference, feeds: Mapping[str, Array], *, before: Ends,
        measured: Measured, end_limit: float, known: Classes | None, progress: Progress,
    ) -> None:  # fmt: skip
        self.reference, self.feeds = reference, feeds
        self.graph, self.topology = reference.graph, reference.topology
        self.before, self.measured, self.end_limit = before, measured, end_limit
        self.known, self.progress = known, progress

    def weigh(self, outcome: Outcome, taps: Sequence[str]) -> Evidenced:
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
        return Evidenced(values, judgements, classes, culprits, harmless, unreliable)

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

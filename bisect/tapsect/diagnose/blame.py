"""From a place to a proof: confirmed alone, reduced, checked against a second leg."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from debugtaps import EngineFailure, Host
from tapsect.candidate import Candidate
from tapsect.diagnose.beautify import beautify
from tapsect.diagnose.second_leg import begun_leg, second_leg
from tapsect.diagnose.shrink import GraphStructure, shrink
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.unsteady import confidence_in, looks_for, measure_part
from tapsect.localize.confirm import Confirmed, confirm, grown
from tapsect.localize.errors import ERRORS
from tapsect.localize.examine import Examined, Examiner, Recorded
from tapsect.localize.taps import Ends, Located, Suspect
from tapsect.reduction import DoesNotFail, Reduced
from tapsect.verdict import Verdict

__all__ = ["Blame", "blame_values", "reduce_part"]

Tell = Callable[[str, str, str], None]


@dataclass(frozen=True, slots=True)
class Blame:
    """What was proved about a located failure.

    Attributes:
        cause: In the words of ``result.json``; None when nothing was proved.
        suspects: Culprits, the first one first; empty for failures without values.
        evidence: How the place was found.
        nodes: Operators at fault.
        confirmed: The part that fails by itself.
        reduced: The smallest part, with its proof.
        final: The smallest part as it was run last.
        plain: The case that is handed over: the same part with smaller sizes and plainer values.
        sample: Which sample it was.
        reduce_builds: Builds that the reduction took.
        how: The decision in words.
        tap: The tap whose exposure heals.
        flaky: ``flaky_build`` or ``flaky_run`` where the part fails only at times.
        bar: End-to-end floors from which the part counts as failing.
        notes: What else should be known.
        examiner: Examined the parts.
        confidence: How probable the place is, where the failure comes only now and then.
    """

    cause: str | None
    evidence: str
    suspects: tuple[Suspect, ...] = ()
    nodes: tuple[int, ...] = ()
    confirmed: Confirmed | None = None
    reduced: Reduced[Candidate] | None = None
    final: Examined | None = None
    plain: Examined | None = None
    sample: int = 0
    reduce_builds: int = 0
    how: str = ""
    tap: str | None = None
    flaky: str | None = None
    bar: float = 0.0
    notes: tuple[str, ...] = field(default=())
    examiner: Examiner | None = None
    confidence: float | None = None


def blame_values(
    subject: Subject, number: int, located: Located, before: Ends,
    flaky: Callable[[], str | None], tell: Tell,
) -> Blame:  # fmt: skip
    """Confirms and reduces what the taps located.

    Args:
        subject: The diagnosis' material.
        number: The failing sample.
        located: What the taps told.
        before: The judged outputs of the untapped build.
        flaky: Returns whether builds or runs disagree; builds the untapped model again if that
            is not known.  Asked when the part does not fail alone.
        tell: Writes one step to the trail.
    """
    evidence = located.evidence
    suspects = evidence.culprits if evidence is not None else ()
    recorded = Recorded(
        subject.reference, subject.samples[number], evidence.values if evidence else {}
    )
    examiner = Examiner(
        subject.reference, subject.prober, recorded, subject.work, kind=_kind(suspects, before),
        classes=evidence.classes if evidence else None,
        # Where an operator is wrong, floors show it: the user's rule is about outputs.
        tolerance=None if suspects else subject.options.tolerance,
    )  # fmt: skip
    found, steadiness = _confirm(subject, examiner, located, before, flaky, tell)
    tap = _healing_tap(subject, located, suspects)
    blame = Blame(
        "engine_defect", "healed" if tap else "tapped", suspects,
        nodes=tuple(i for s in suspects[:1] for i in s.nodes), confirmed=found, sample=number,
        tap=tap, flaky=steadiness,
    )  # fmt: skip
    if suspects and suspects[0].judgement.overflow:
        blame = replace(blame, cause="precision_limit", how="the type cannot hold the value")
    if found is None:
        return _unconfirmed(blame, located, tell)
    return reduce_part(subject, examiner, blame, found, tell)


def _kind(suspects: tuple[Suspect, ...], before: Ends) -> str:
    kinds = [s.judgement.kind for s in suspects] or [
        e.kind or "" for e, _ in before.values() if e.kind
    ]
    return "accuracy" if kinds[0] == "discrete" else kinds[0]


def _healing_tap(subject: Subject, located: Located, suspects: tuple[Suspect, ...]) -> str | None:
    if not located.healing:
        return None
    region = suspects[0].judgement.region if suspects else None
    producer = subject.graph.producer
    inside = [t for t in located.healing if region is None or producer[t] in region]
    return inside[0] if inside else None


def _confirm(
    subject: Subject, examiner: Examiner, located: Located, before: Ends,
    flaky: Callable[[], str | None], tell: Tell,
) -> tuple[Confirmed | None, str | None]:  # fmt: skip
    """Returns the part that fails alone, and whether builds or runs are known to disagree."""
    topology = subject.reference.topology
    ends = tuple(t for t in subject.graph.outputs if t in subject.graph.producer)
    suspects = located.evidence.culprits if located.evidence else ()
    steadiness: str | None = None
    if suspects:
        first = suspects[0]
        # Whole regions, shape arithmetic included: it may be what the fault needs.
        seed = Candidate(first.judgement.region, (first.tensor,))
        subject.progress.step("confirm", f"cutting out {len(seed.nodes)} operator(s)")
        found = confirm(examiner, [seed])
        if found is None:
            steadiness = flaky()
            examiner.expect(steadiness, looks_for(subject.unsteady))
            wider = grown(topology, first.judgement.region, first.tensor, ends)
            found = confirm(examiner, wider, most=60)
        what = f"region of {first.tensor!r}"
    else:
        failing = tuple(n for n, (e, _) in before.items() if e.failing and n in ends)
        nodes = topology.ancestors(failing)
        found = confirm(examiner, [Candidate(nodes, failing)], sources=("reference",))
        what = "the whole model"
    if found is None:
        tell("confirm", "does not fail alone", what)
    else:
        size = len(found.candidate.nodes)
        tell("confirm", "fails alone", f"{size} operator(s), fed with the {found.source}'s values")
    return found, steadiness


def _unconfirmed(blame: Blame, located: Located, tell: Tell) -> Blame:
    if blame.suspects and blame.evidence == "tapped":
        return replace(blame, how="seen in the tapped build; it does not fail when cut out")
    if blame.tap is not None:
        how = f"exposing {blame.tap!r} cures it, and nothing around it fails alone"
        return replace(blame, cause=None, nodes=(), how=how)
    return replace(blame, cause=None, nodes=(), how="no part of the model fails alone")


def reduce_part(
    subject: Subject, examiner: Examiner, blame: Blame, found: Confirmed, tell: Tell
) -> Blame:
    """Shrinks a confirmed part and asks the second leg about what is left."""
    if examiner.kind in ERRORS:  # no values that anybody could be asked about
        blame = _shrunk(subject, examiner, blame, found, tell)
    else:
        with begun_leg(subject) as leg:
            blame = _shrunk(subject, examiner, blame, found, tell)
            blame = _asked_elsewhere(subject, leg, blame, tell)
    return _made_plain(subject, examiner, blame, tell)


def _shrunk(
    subject: Subject, examiner: Examiner, blame: Blame, found: Confirmed, tell: Tell
) -> Blame:
    """Returns the blame with the smallest part that fails in the same way, if one does."""
    shapes: dict[str, tuple[int, ...]] = {}
    with suppress(EngineFailure):  # only the engine need run the model that it crashes on
        shapes |= subject.reference.shapes(examiner.recorded.feeds)
    structure = GraphStructure(subject.reference, shapes)
    before = subject.prober.builds
    subject.progress.step("reduce", f"from {len(found.candidate.nodes)} operator(s)")
    hint = tuple(_hint(subject, blame))
    reduced = shrink(examiner, structure, found, hint=hint)
    if isinstance(reduced, DoesNotFail) and not blame.flaky:
        flaky = examiner.flakiness(found.candidate, found.source)
        blame = replace(blame, flaky=flaky)
        subject.unsteady = subject.unsteady or measure_part(examiner, found, flaky)
        examiner.expect(flaky, looks_for(subject.unsteady))
        reduced = shrink(examiner, structure, found, hint=hint)
    spent = subject.prober.builds - before
    if isinstance(reduced, DoesNotFail):
        tell("reduce", "unstable", "the cut-out part does not fail each time")
        return replace(blame, reduce_builds=spent, final=found.examined, bar=examiner.bar or 0.0)
    why = f"{len(reduced.candidate.nodes)} operator(s) left of {len(found.candidate.nodes)}"
    if reduced.one_minimal:
        why += "; removing or bypassing any one loses the failure"
    tell("reduce", f"{reduced.reproduced} of {reduced.of} fresh builds fail", why)
    if not blame.flaky and (reduced.reproduced < reduced.of or examiner.unsteady):
        blame = replace(blame, flaky=examiner.flakiness(reduced.candidate, found.source))
    final = examiner.examine(reduced.candidate, found.source)
    if final.verdict is not Verdict.DIVERGES:
        final = found.examined
    blame = replace(
        blame, reduced=reduced, final=final, reduce_builds=spent, bar=examiner.bar or 0.0,
        nodes=_nodes(subject, blame, reduced), examiner=examiner,
        confidence=blame.confidence or confidence_in(
            len(reduced.candidate.nodes), max(examiner.repeats, examiner.runs), subject.unsteady
        ),
    )  # fmt: skip
    return _narrowed(subject, blame, reduced)


def _made_plain(subject: Subject, examiner: Examiner, blame: Blame, tell: Tell) -> Blame:
    """Makes the case easy to read, within the budget."""
    final, reduced = blame.final, blame.reduced
    if final is None or reduced is None or blame.flaky or subject.options.budget <= 0:
        return blame
    before = subject.prober.builds
    subject.progress.step("simplify", f"{len(reduced.candidate.nodes)} operator(s)")
    plain = beautify(examiner, final, reduced.signature, subject.options.budget)
    spent = subject.prober.builds - before
    if plain is not final:
        sizes = [sum(v.size for v in each.feeds.values()) for each in (final, plain)]
        tell("simplify", "plainer", f"{sizes[0]} numbers are fed, {sizes[1]} in the end")
    return replace(blame, plain=plain, reduce_builds=blame.reduce_builds + spent)


def _narrowed(subject: Subject, blame: Blame, reduced: Reduced[Candidate]) -> Blame:
    """Returns the blame with the first suspect's region cut to what fails by itself."""
    if not blame.suspects or not set(blame.nodes) < set(blame.suspects[0].nodes):
        return blame
    first, graph = blame.suspects[0], subject.graph
    shown = [t for t in reduced.candidate.outputs if graph.producer[t] in blame.nodes]
    if not shown or first.tensor in shown:
        return blame
    judgement = replace(
        first.judgement, tensor=shown[-1], region=reduced.candidate.nodes, introduced=None
    )
    first = replace(first, judgement=judgement, nodes=blame.nodes)
    evidence = blame.evidence if blame.tap else "isolated"
    return replace(blame, suspects=(first, *blame.suspects[1:]), evidence=evidence)


def _asked_elsewhere(subject: Subject, leg: Host, blame: Blame, tell: Tell) -> Blame:
    """Asks an independent implementation whether the reference is right about the culprit."""
    final, reduced = blame.final, blame.reduced
    if final is None or reduced is None or final.model is None:
        return blame
    side = second_leg(subject, leg, reduced.candidate, final, tell)
    if side == "engine":
        how = "an independent evaluator agrees with the engine"
        return replace(blame, cause="reference_suspect", how=how)
    if side == "neither":
        return replace(blame, notes=(*blame.notes, "an independent evaluator agrees with neither"))
    return blame


def _hint(subject: Subject, blame: Blame) -> Iterable[int]:
    if blame.tap is not None:
        around = {subject.graph.producer[blame.tap], *subject.graph.consumers.get(blame.tap, ())}
        return sorted(around)
    return blame.nodes


def _nodes(subject: Subject, blame: Blame, reduced: Reduced[Candidate]) -> tuple[int, ...]:
    """Returns the operators at fault: what of the region fails alone, or needs more beside it.

    A part that fed values joined by a bypass may lack what the model needs between: where it
    holds nothing of the region, the region stays.
    """
    needed = subject.reference.topology.blamed(reduced.candidate.nodes)
    if blame.suspects and not set(needed) & set(blame.nodes):
        return blame.nodes
    return needed

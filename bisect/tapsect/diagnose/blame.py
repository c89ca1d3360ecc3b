"""From a place to a proof: confirmed alone, reduced, checked against a second leg."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from debugtaps import Array, EngineFailure, Host, TapsError, resolve, save
from tapsect.candidate import Candidate
from tapsect.diagnose.shrink import GraphStructure, shrink
from tapsect.diagnose.subject import Subject
from tapsect.localize.confirm import Confirmed, confirm, grown
from tapsect.localize.examine import ERRORS, Examined, Examiner, Recorded
from tapsect.localize.predicate import locate_failure
from tapsect.localize.taps import Ends, Located, Suspect
from tapsect.numbers.floors import limit_for, ratios
from tapsect.numbers.outputs import end_floor
from tapsect.reduce import DoesNotFail, Reduced
from tapsect.verdict import Verdict

__all__ = ["Blame", "blame_error", "blame_values"]

Tell = Callable[[str, str, str], None]

_UNSUPPORTED = re.compile(
    r"not.?implemented|not supported|unsupported|could not find an implementation|"
    r"not a registered function|no importer|no op registered|no kernel",
    re.IGNORECASE,
)
SECOND_LEG_SECONDS = 30.0


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
        sample: Which sample it was.
        reduce_builds: Builds that the reduction took.
        how: The decision in words.
        tap: The tap whose exposure heals.
        bar: End-to-end floors from which the part counts as failing.
        notes: What else should be known.
    """

    cause: str | None
    evidence: str
    suspects: tuple[Suspect, ...] = ()
    nodes: tuple[int, ...] = ()
    confirmed: Confirmed | None = None
    reduced: Reduced[Candidate] | None = None
    final: Examined | None = None
    sample: int = 0
    reduce_builds: int = 0
    how: str = ""
    tap: str | None = None
    bar: float = 0.0
    notes: tuple[str, ...] = field(default=())


def blame_values(
    subject: Subject, number: int, located: Located, before: Ends, flaky: Callable[[], bool],
    tell: Tell, *, known_flaky: bool,
) -> Blame:  # fmt: skip
    """Confirms and reduces what the taps located.

    Args:
        subject: The diagnosis' material.
        number: The failing sample.
        located: What the taps told.
        before: The judged outputs of the untapped build.
        flaky: Builds the untapped model again and returns whether builds disagree.
        tell: Writes one step to the trail.
        known_flaky: Whether builds or runs are known to disagree already.
    """
    evidence = located.evidence
    suspects = evidence.culprits if evidence is not None else ()
    recorded = Recorded(
        subject.reference, subject.samples[number], evidence.values if evidence else {}
    )
    kind = _kind(suspects, before)
    examiner = Examiner(
        subject.reference, subject.prober, recorded, subject.work, kind=kind,
        classes=evidence.classes if evidence else None, tolerance=subject.options.tolerance,
    )  # fmt: skip
    if known_flaky:
        examiner.repeats = FLAKY_REPEATS
    found = _confirm(subject, examiner, located, before, flaky, tell)
    tap = _healing_tap(subject, located, suspects)
    blame = Blame(
        "engine_defect", "healed" if tap else "tapped", suspects,
        nodes=tuple(i for s in suspects[:1] for i in s.nodes), confirmed=found, sample=number,
        tap=tap,
    )  # fmt: skip
    if suspects and suspects[0].judgement.overflow:
        blame = replace(blame, cause="precision_limit", how="the type cannot hold the value")
    if found is None:
        return _unconfirmed(blame, located, tell)
    return _reduced(subject, examiner, blame, found, tell)


FLAKY_REPEATS = 6


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
    flaky: Callable[[], bool], tell: Tell,
) -> Confirmed | None:  # fmt: skip
    topology = subject.reference.topology
    ends = tuple(t for t in subject.graph.outputs if t in subject.graph.producer)
    failing = tuple(n for n, (e, _) in before.items() if e.failing and n in ends)
    suspects = located.evidence.culprits if located.evidence else ()
    if suspects:
        first = suspects[0]
        # Whole regions, shape arithmetic included: it may be what the fault needs.
        seed = Candidate(first.judgement.region, (first.tensor,))
        subject.progress.step("confirm", f"cutting out {len(seed.nodes)} operator(s)")
        found = confirm(examiner, [seed])
        if found is None and flaky():
            examiner.repeats = FLAKY_REPEATS
        if found is None:
            found = confirm(
                examiner, grown(topology, first.judgement.region, first.tensor, ends), most=60
            )
        what = f"region of {first.tensor!r}"
    else:
        nodes = topology.ancestors(failing)
        found = confirm(examiner, [Candidate(nodes, failing)], sources=("reference",))
        what = "the whole model"
    if found is None:
        tell("confirm", "does not fail alone", what)
    else:
        size = len(found.candidate.nodes)
        tell("confirm", "fails alone", f"{size} operator(s), fed with the {found.source}'s values")
    return found


def _unconfirmed(blame: Blame, located: Located, tell: Tell) -> Blame:
    if blame.suspects and blame.evidence == "tapped":
        return replace(blame, how="seen in the tapped build; it does not fail when cut out")
    if blame.tap is not None:
        how = f"exposing {blame.tap!r} cures it, and nothing around it fails alone"
        return replace(blame, cause=None, nodes=(), how=how)
    return replace(blame, cause=None, nodes=(), how="no part of the model fails alone")


def _reduced(
    subject: Subject, examiner: Examiner, blame: Blame, found: Confirmed, tell: Tell
) -> Blame:
    """Shrinks a confirmed part and asks the second leg about what is left."""
    feeds = examiner.recorded.feeds
    shapes = dict(subject.reference.shapes(feeds))
    structure = GraphStructure(subject.reference, shapes)
    before = subject.prober.builds
    subject.progress.step("reduce", f"from {len(found.candidate.nodes)} operator(s)")
    reduced = shrink(examiner, structure, found, hint=_hint(subject, blame))
    spent = subject.prober.builds - before
    if isinstance(reduced, DoesNotFail):
        tell("reduce", "unstable", "the cut-out part does not fail each time")
        return replace(blame, reduce_builds=spent, final=found.examined, bar=examiner.bar or 0.0)
    why = f"{len(reduced.candidate.nodes)} operator(s) left of {len(found.candidate.nodes)}"
    if reduced.one_minimal:
        why += "; removing or bypassing any one loses the failure"
    tell("reduce", f"{reduced.reproduced} of {reduced.of} fresh builds fail", why)
    final = examiner.examine(reduced.candidate, found.source)
    if final.verdict is not Verdict.DIVERGES:
        final = replace(found.examined)
    blame = replace(
        blame, reduced=reduced, final=final, reduce_builds=spent, bar=examiner.bar or 0.0,
        nodes=_nodes(subject, blame, reduced),
    )  # fmt: skip
    if reduced.reproduced < reduced.of and blame.cause == "engine_defect":
        blame = replace(blame, notes=("some fresh builds of the minimal case do not fail",))
    return _second_leg(subject, examiner, blame, tell)


def _hint(subject: Subject, blame: Blame) -> Iterable[int]:
    if blame.tap is not None:
        around = {subject.graph.producer[blame.tap], *subject.graph.consumers.get(blame.tap, ())}
        return sorted(around)
    return blame.nodes


def _nodes(subject: Subject, blame: Blame, reduced: Reduced[Candidate]) -> tuple[int, ...]:
    """Returns the operators at fault: the region, or what the reduction needed of more."""
    needed = subject.reference.topology.blamed(reduced.candidate.nodes)
    if not blame.suspects or len(blame.nodes) > 4 * len(needed):
        return needed
    if set(needed) - set(blame.nodes):  # the region alone did not fail: more belongs to it
        return tuple(sorted({*needed}))
    return blame.nodes


# -- the second leg ----------------------------------------------------------------------------


def _second_leg(subject: Subject, examiner: Examiner, blame: Blame, tell: Tell) -> Blame:
    """Asks an independent implementation whether the reference is right about the culprit."""
    final = blame.final
    if final is None or examiner.kind in ERRORS or final.model is None:
        return blame
    other = "ort-reference" if subject.specs[1].spec == "onnx" else "onnx"
    subject.progress.step("second leg", f"replaying the minimal case with {other}")
    answers = _answers(subject, other, blame, final)
    if answers is None:
        tell("second leg", "no answer", f"{other} cannot run the minimal case in time")
        return blame
    with_reference = _agree(subject, answers, final.expected, final)
    if with_reference:
        tell("second leg", "reference confirmed", f"{other} agrees with the reference")
        return blame
    if _agree(subject, answers, final.answers, final):
        tell("second leg", "reference suspect", f"{other} agrees with the engine instead")
        return replace(
            blame, cause="reference_suspect",
            how=f"an independent evaluator ({other}) agrees with the engine",
        )  # fmt: skip
    tell("second leg", "undecided", f"{other} differs from both")
    return replace(blame, notes=(*blame.notes, f"{other} agrees with neither side"))


def _answers(
    subject: Subject, other: str, blame: Blame, final: Examined
) -> dict[str, Array] | None:
    from tapsect.replay.reference import widen_array

    assert blame.reduced is not None
    reference = subject.reference
    from debugtaps import extract

    candidate = blame.reduced.candidate
    model = extract(
        reference.wide, candidate.nodes, candidate.outputs, aliases=dict(candidate.bypass)
    )
    path = save(model, reference.path("second"))
    with suppress(TapsError), Host(resolve(other, {}), timeout=SECOND_LEG_SECONDS) as host:
        build = host.build(path)
        return build.run({n: widen_array(v) for n, v in final.feeds.items()})
    return None


def _agree(
    subject: Subject, answers: Mapping[str, Array], side: Mapping[str, Array], final: Examined
) -> bool:
    for name, floor in {**dict.fromkeys(answers, 0.0), **final.floors}.items():
        if name not in answers or name not in side:
            continue
        a, b = answers[name], side[name]
        if a.shape != b.shape:
            return False
        if b.dtype.kind not in "fV" or a.dtype.kind not in "fV":
            if np.any(a != b):
                return False
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        odd = ~(np.isfinite(x) & np.isfinite(y))
        if np.any(odd & ~((x == y) | (np.isnan(x) & np.isnan(y)))):
            return False
        u = subject.reference.roundoff(name)
        error = np.where(odd, 0.0, np.abs(np.where(odd, 0, x) - np.where(odd, 0, y)))
        scale = end_floor(y, np.full(y.shape, floor), u)
        if ratios(error, scale).norm > limit_for(u).norm:
            return False
    return True


# -- failures without values -------------------------------------------------------------------


def blame_error(subject: Subject, failure: EngineFailure, tell: Tell) -> Blame:
    """Locates, confirms and reduces a crash, a hang, or a build or run that fails."""
    if failure.kind == "out_of_memory":
        tell("locate", "resource limit", "memory ran out; no operator is to blame")
        return Blame("resource_limit", "predicate", how=_peak(subject))
    recorded = Recorded(subject.reference, subject.samples[0], {})
    examiner = Examiner(
        subject.reference, subject.prober, recorded, subject.work, kind=failure.kind
    )
    found = locate_failure(examiner, subject.reference.topology, failure, subject.progress)
    if found.confirmed is None:
        tell("locate", "does not fail alone", found.how)
        nodes = () if found.node is None else (found.node,)
        cause = "engine_defect" if nodes else None
        return Blame(cause, "predicate", nodes=nodes, how=found.how)
    tell(
        "locate", "fails alone", f"{len(found.confirmed.candidate.nodes)} operator(s): {found.how}"
    )
    blame = Blame("engine_defect", "predicate", confirmed=found.confirmed, how=found.how)
    if found.node is not None:
        blame = replace(blame, nodes=(found.node,))
    blame = _reduced(subject, examiner, blame, found.confirmed, tell)
    if blame.reduced is not None:
        nodes = subject.reference.topology.blamed(blame.reduced.candidate.nodes)
        blame = replace(blame, nodes=nodes)
    last = blame.final.failure if blame.final is not None else None
    text = (last or failure).message
    if failure.kind in ("build_error", "run_error") and _UNSUPPORTED.search(text):
        blame = replace(
            blame, cause="unsupported", how="the engine says that it does not take this"
        )
    return blame


def _peak(subject: Subject) -> str:
    """Returns the largest tensors, for who must save memory."""
    shapes = subject.reference.shapes(subject.samples[0])
    largest = sorted(shapes.items(), key=lambda item: -int(np.prod(item[1], dtype=np.int64)))[:3]
    text = ", ".join(f"{name!r} {list(shape)}" for name, shape in largest)
    return f"the largest tensors are {text}" if text else "memory ran out"

"""Why outputs differ when no operator is to blame, and why a difference is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tapsect.diagnose.blame import Blame
from tapsect.diagnose.effective import in_words
from tapsect.diagnose.ends import Truth
from tapsect.diagnose.second_leg import shared_kernel
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.localize.explain import (
    amplification,
    amplifier,
    contributors,
    first_nan,
    ill_conditioned,
)
from tapsect.localize.taps import Ends, Evidenced
from tapsect.replay.alone import ALONE, ONE_ROUNDING, one_rounding
from tapsect.replay.precision import Classes
from tapsect.rounding.floors import COARSE_STEPS
from tapsect.rounding.outputs import End
from tapsect.topology import CONTRACTIONS

__all__ = ["explain_agreement", "explain_precision", "explain_unblamed", "note_nan"]

Tell = Callable[[str, str, str], None]


def explain_agreement(subject: Subject, told: Told, tell: Tell) -> None:
    """Says what makes the difference that there is, although no output is in question."""
    told.status = "agrees"
    for number, ends in enumerate(told.ends):
        for end in ends:
            u = subject.reference.roundoff(end.name)
            if end.error and ill_conditioned(end, u):
                found = amplifier(subject.reference, subject.samples[number], end.name)
                told.cause, told.amplifier = "ill_conditioned", found
                told.amplified = (end, amplification(end, u))
                tell("explain", "ill_conditioned", "rounding alone moves this output")
                return
            if end.error and subject.roundoff > 2.0**-24:
                told.cause = "precision_limit"


def note_nan(subject: Subject, told: Told) -> None:
    """Notes where the reference itself first has a NaN: that is the model's, no engine's."""
    for number, ends in enumerate(told.ends):
        if not any(e.nonfinite_reference for e in ends):
            continue
        found = first_nan(subject.reference, subject.samples[number])
        if found is not None:
            where = subject.graph.producer.get(found)
            node = f" (node {subject.graph.nodes[where].name!r})" if where is not None else ""
            subject.notes.append(f"the reference itself has a NaN, first in {found!r}{node}")
            return


def explain_unblamed(
    subject: Subject, told: Told, before: Ends, truth: Truth, tell: Tell,
    *, part: Callable[[], Blame],
) -> None:  # fmt: skip
    """Says why outputs fail although no operator is to blame.

    Precision, conditioning, inputs, or nothing that fits.

    Args:
        subject: The diagnosis' material.
        told: What was decided so far; takes in the explanation.
        before: The judged outputs of the untapped build.
        truth: What they should be.
        tell: Writes one step to the trail.
        part: Finds the smallest part of the model that breaks the user's own rule.
    """
    evidence = told.located.evidence if told.located else None
    assert evidence is not None
    told.status = "diverges"
    within = (
        truth.within(told.sample, before, _seen(subject, evidence))
        or _stated(subject, before)
        or _added_up(subject, told, before, truth)
        or _one_way(subject, told, before, truth)
    )
    if within is not None:
        explain_precision(subject, told, before, truth, tell, within)
        if subject.options.tolerance is not None:
            told.blame = replace(part(), cause="precision_limit", evidence="isolated")
    elif told.flaky:
        told.cause = told.flaky
    elif (bad := _conditioned(subject, before)) is not None:
        told.cause = "ill_conditioned"
        told.amplifier = amplifier(subject.reference, subject.samples[told.sample], bad.name)
        told.amplified = (bad, amplification(bad, subject.reference.roundoff(bad.name)))
        tell("explain", "ill_conditioned", "rounding alone moves this output far")
    elif (kernel := shared_kernel(subject, told.sample, before, tell)) is not None:
        told.cause, told.kernel = "reference_suspect", kernel
    elif len(told.failing_samples) < len(subject.samples):
        told.cause = "input_sensitive"
        tell("explain", "input_sensitive", "only some samples fail")
    else:
        told.status = "inconclusive"
        tell("explain", "inconclusive", "no operator, precision or input explains it")


def _seen(subject: Subject, evidence: Evidenced) -> Classes:
    """Returns what the engine was seen to compute in, its coarsest contraction included."""
    alone = max((j.u for j in evidence.judgements.values() if j.alone), default=0.0)
    u = subject.roundoff
    return evidence.classes.at_least(max(alone, u), u)


def _stated(subject: Subject, before: Ends) -> str | None:
    """Returns why a failing output is no more than rounding at the stated precision, if so."""
    failing = [e for e, _ in before.values() if e.failing]
    limit = subject.end_limit
    if any(e.kind != "accuracy" or e.floors > limit for e in failing):
        return None
    return f"the outputs lie within {limit:g} floors of the stated precision; the rule is stricter"


def _added_up(subject: Subject, told: Told, before: Ends, truth: Truth) -> str | None:
    """Returns why errors that are small at each operator explain the outputs together, if so."""
    evidence = told.located.evidence if told.located else None
    assert evidence is not None
    fine = [j for j in evidence.judgements.values() if j.kind == "ok"]
    largest = max((j.ratio for j in fine), default=0.0)
    if largest <= 1.0:
        return None
    # What each class of operators makes at worst, as if that were its precision.
    worst = {True: 0.0, False: 0.0}
    for judgement in fine:
        contraction = any(subject.graph.nodes[i].op in CONTRACTIONS for i in judgement.region)
        worst[contraction] = max(worst[contraction], judgement.u * judgement.ratio)
    coarse = _seen(subject, evidence).at_least(worst[True], worst[False])
    if truth.within(told.sample, before, coarse) is None:
        return None
    told.explained = (
        f"no operator is off by more than {largest:.0f} times rounding, and errors of that size "
        "explain the outputs together"
    )
    return told.explained


def _one_way(subject: Subject, told: Told, before: Ends, truth: Truth) -> str | None:
    """Returns why roundings that point one way explain the outputs, if every operator is fine.

    Noise is independent from element to element.  A weight rounds alike wherever it is used, and
    kernels that cut low bits off make every product smaller: that adds up on the way.  It is an
    explanation only where each operator that computes coarsely is off by no more than one rounding.
    """
    evidence = told.located.evidence if told.located else None
    assert evidence is not None
    seen = _seen(subject, evidence)
    most = ONE_ROUNDING if max(seen.contraction, seen.rest) < COARSE_STEPS[-1] else 2 * ONE_ROUNDING
    harmless = {s.tensor for s in evidence.harmless}
    moving = [j for t, j in evidence.judgements.items() if t not in harmless]
    # What fp32 makes, up to its T, is nothing beside that.
    if not all(j.kind == "ok" and (j.u < ALONE or one_rounding(j, floors=most)) for j in moving):
        return None
    if truth.within(told.sample, before, seen, coherent=True) is None:
        return None
    told.explained = (
        "no operator is off by more than one rounding of its precision "
        f"({in_words(subject, told)}), and roundings that point one way move the outputs as far"
    )
    return told.explained


def explain_precision(
    subject: Subject, told: Told, before: Ends, truth: Truth, tell: Tell, why: str
) -> None:
    """Says that the precision explains the outputs, and which operators contribute most."""
    evidence = told.located.evidence if told.located else None
    told.status, told.cause = "diverges", "precision_limit"
    tell("explain", "precision_limit", why)
    if evidence is None:
        return
    told.contributors = tuple(contributors(
        subject.reference, subject.samples[told.sample], evidence, before,
        truth.measured(told.sample), subject.end_limit,
    )[:5])  # fmt: skip


def _conditioned(subject: Subject, before: Ends) -> End | None:
    return next(
        (e for e, _ in before.values()
         if e.failing and ill_conditioned(e, subject.reference.roundoff(e.name))), None
    )  # fmt: skip

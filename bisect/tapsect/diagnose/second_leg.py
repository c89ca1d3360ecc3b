"""Is the reference right?  An independent implementation replays the minimal case."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

import numpy as np

from debugtaps import Array, Host, TapsError, extract, resolve, save
from tapsect.candidate import Candidate
from tapsect.diagnose.subject import Subject
from tapsect.localize.examine import Examined
from tapsect.localize.taps import Ends
from tapsect.replay.causal import causal_test
from tapsect.replay.precision import Classes
from tapsect.replay.reference import Reference, widen_array
from tapsect.replay.regions import Judgement, Replay
from tapsect.rounding.boxes import parts, wide
from tapsect.rounding.deviation import end_floor, gap, unlike
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import Measured, judge_output
from tapsect.rounding.ratios import ratios
from tapsect.topology import CONTRACTIONS

__all__ = ["Side", "begun_leg", "second_leg", "shared_kernel"]

Side = Literal["reference", "engine", "neither", "no answer"]
Tell = Callable[[str, str, str], None]

SECONDS = 30.0
SAMPLES = 8
LARGE = 1 << 20
"""Elements of a tensor from which on ``onnx``, which is plain numpy, takes more memory than we may:
its Conv holds each element once for every weight that reads it."""
CHEAP = 100_000
"""Most elements a tensor may have whose operator the slow second leg computes as well."""


@contextmanager
def begun_leg(subject: Subject) -> Iterator[Host]:
    """Gives an independent implementation, which loads while its caller does other things."""
    other = "ort-reference" if subject.specs[1].spec == "onnx" else "onnx"
    with Host(resolve(other, {}), timeout=SECONDS) as leg:
        leg.room = subject.work
        with suppress(TapsError):  # who asks it hears that it cannot
            leg.start()
        yield leg


def second_leg(
    subject: Subject, leg: Host, candidate: Candidate, final: Examined, tell: Tell
) -> Side:
    """Returns with whom an independent implementation agrees about the minimal case.

    Args:
        subject: The diagnosis' material.
        leg: The independent implementation.
        candidate: The minimal case.
        final: How it was run last.
        tell: Writes one step to the trail.
    """
    other = leg.spec.spec
    values = (*final.feeds.values(), *final.expected.values())
    if other == "onnx" and max((v.size for v in values), default=0) > LARGE:
        tell("second leg", "no answer", f"the tensors of the minimal case are large for {other}")
        return "no answer"
    subject.progress.step("second leg", f"replaying the minimal case with {other}")
    answers = _answers(subject, leg, candidate, final)
    if answers is None:
        tell("second leg", "no answer", f"{other} cannot run the minimal case in time")
        return "no answer"
    if _agree(subject, answers, final.expected, final):
        tell("second leg", "reference confirmed", f"{other} agrees with the reference")
        return "reference"
    if _agree(subject, answers, final.answers, final):
        tell("second leg", "reference suspect", f"{other} agrees with the engine instead")
        return "engine"
    tell("second leg", "undecided", f"{other} differs from both")
    return "neither"


def _answers(
    subject: Subject, leg: Host, candidate: Candidate, final: Examined
) -> dict[str, Array] | None:
    reference = subject.reference
    model = extract(
        reference.wide, candidate.nodes, candidate.outputs, aliases=dict(candidate.bypass)
    )
    path = save(model, reference.path("second"))
    with suppress(TapsError):
        build = leg.build(path)
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
        x, y = wide(a), wide(b)
        if any(np.any(unlike(*pair)) for pair in parts(x, y)):
            return False
        u = subject.reference.roundoff(name)
        scale = end_floor(y, np.broadcast_to(floor, b.shape), u)
        # The norm does not ask for the sign.
        if ratios(gap(a, b), scale).norm > limit_for(u).norm:
            return False
    return True


def shared_kernel(subject: Subject, number: int, before: Ends, tell: Tell) -> Judgement | None:
    """Returns where the reference itself leaves the operator's definition, if that is why.

    Engine and reference of one package share kernels, and with them their faults, which no
    comparison of the two can show: both agree, and both leave what the outputs should be.
    Operators that are cheap in the second leg are replayed there, all at once, on the
    reference's own values; what is wrong there must move an output that fails.

    Args:
        subject: The diagnosis' material.
        number: The sample.
        before: Its judged outputs.
        tell: Writes one step to the trail.
    """
    packages = {spec.package for spec in subject.specs}
    if len(packages) > 1 or subject.specs[1].spec == "onnx":
        return None
    own = subject.reference.ends(subject.samples[number], samples=SAMPLES)
    shared = [n for n, (end, _) in before.items() if end.failing and _same(subject, before, own, n)]
    for judgement, error in _off_definition(subject, number) if shared else ():
        if _moves(subject, number, judgement.tensor, error, before, own):
            node = subject.graph.nodes[subject.graph.producer[judgement.tensor]]
            why = f"the package's own {node.op} at {node.name!r} leaves the operator's definition"
            tell("second leg", "reference suspect", why)
            return judgement
    return None


def _same(subject: Subject, before: Ends, own: Measured, name: str) -> bool:
    """Returns whether the engine answers what the reference computes, right or wrong."""
    value, limit = before[name][1], limit_for(subject.roundoff)
    return not judge_output(name, value, own, subject.reference.roundoff(name), limit).failing


def _moves(
    subject: Subject, number: int, tensor: str, error: tuple[Array, Array], before: Ends,
    own: Measured,
) -> bool:  # fmt: skip
    """Returns whether the reference's outputs move when one of its operators is put right."""
    ends = [end for end, _ in before.values()]
    values = {n: v for n, (_, v) in before.items() if v is not None}
    effects = causal_test(
        subject.reference, subject.samples[number], {tensor: error}, ends, own, values,
        subject.end_limit,
    )  # fmt: skip
    return effects[tensor].floors > subject.end_limit


def _off_definition(
    subject: Subject, number: int
) -> Iterator[tuple[Judgement, tuple[Array, Array]]]:
    """Yields what the reference computes unlike the second leg: (right value, its own)."""
    first, feeds = subject.reference, subject.samples[number]
    shapes = first.shapes(feeds)
    cheap = [
        n for n in first.graph.nodes
        if n.op not in CONTRACTIONS and not n.has_body and not n.domain
        and all(t in shapes and math.prod(shapes[t]) <= CHEAP for t in n.writes)
    ]  # fmt: skip
    names = [t for n in cheap for t in n.writes]
    subject.progress.step("second leg", f"replaying {len(cheap)} cheap operators with onnx")
    with suppress(TapsError), Host(resolve("onnx", {}), timeout=SECONDS) as host:
        second = Reference(first.graph, host, subject.work, stated=first.stated)
        reads = [t for n in cheap for t in n.reads if t in shapes]
        values = first.capture(feeds, dict.fromkeys([*names, *reads]))
        replay = Replay(second, feeds, values)
        judged, _ = replay.judge(names, known=Classes(0.0, 0.0))
        suspects = [judged[t] for t in names if t in judged and judged[t].suspect]
        right = replay.bases([j.tensor for j in suspects])
        for judgement in suspects:
            if judgement.tensor in right:
                yield judgement, (right[judgement.tensor], values[judgement.tensor])

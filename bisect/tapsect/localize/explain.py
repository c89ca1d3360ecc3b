"""Why, when no operator is to blame: what rounding does to this model, and where.

*Contributors* are the operators whose introduced error makes most of the difference;
an *amplifier* is the operator whose own rounding, alone, makes most of the end-to-end floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debugtaps import Array, EngineFailure, Plan, perturb
from tapsect.localize.taps import Ends, Evidenced, Suspect
from tapsect.replay.causal import causal_test
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Replay
from tapsect.rounding.floors import AMPLIFICATION, rms
from tapsect.rounding.outputs import End, Measured

__all__ = [
    "Amplifier",
    "amplification",
    "amplifier",
    "contributors",
    "first_nan",
    "ill_conditioned",
]

_GROUPS = 16
_MOST_CONTRIBUTORS = 20


@dataclass(frozen=True, slots=True)
class Amplifier:
    """The edge whose noise alone makes most of an output's floor, and its share of it."""

    tensor: str
    share: float


def amplification(end: End, u: float) -> float:
    """Returns the end-to-end floor over u·rms of an output; 0 where there is none."""
    if not end.floor or not end.scale:
        return 0.0
    return end.floor / (u * end.scale)


def ill_conditioned(end: End, u: float) -> bool:
    """Returns whether rounding is amplified more than a thousandfold on the way to an output."""
    return amplification(end, u) > AMPLIFICATION


def amplifier(reference: Reference, feeds: Mapping[str, Array], output: str) -> Amplifier | None:
    """Returns the edge whose noise alone makes most of the floor of ``output``.

    Edges shake in 16 groups, one group at a time in one session; the group that moves the output
    most is split again.  Cost: about log16(edges) sessions of the reference.
    """
    nodes = sorted(reference.topology.ancestors([output]))
    reached = {
        t
        for i in nodes
        for t in (*reference.graph.nodes[i].reads, *reference.graph.nodes[i].writes)
    }
    order = sorted(
        reference.topology.noisy & reached, key=lambda t: reference.topology.position.get(t, 0)
    )
    whole = 0.0
    while order:
        size = max(1, -(-len(order) // _GROUPS))
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        moves = _moves(reference, feeds, nodes, groups, output)
        if not moves or max(moves) == 0.0:
            return None
        whole = whole or float(np.sqrt(np.sum(np.square(moves))))
        best = int(np.argmax(moves))
        if len(groups[best]) == 1:
            return Amplifier(groups[best][0], min(1.0, moves[best] / whole))
        order = groups[best]
    return None


def _moves(
    reference: Reference, feeds: Mapping[str, Array], nodes: Sequence[int],
    groups: Sequence[Sequence[str]], output: str,
) -> list[float]:  # fmt: skip
    pools = {
        t: f"{reference.graph.elem(t)}{chr(97 + n)}"
        for n, group in enumerate(groups)
        for t in group
    }
    plan = Plan(nodes=nodes, noisy=pools, shapes=reference.shapes(feeds), values=[output])
    made = perturb(reference.wide, plan)
    try:
        build = reference.build(made, "amplify")
    except EngineFailure:
        return []
    moves = []
    try:
        for number in range(len(groups)):
            chosen = [p for p in made.pools if p.split("::")[1].endswith(chr(97 + number))]
            if not chosen:
                moves.append(0.0)
                continue
            runs = reference.noise(chosen, 2)
            measured = reference.sweep(build, made, feeds, runs)
            spread = measured.spread.get(output)
            moves.append(0.0 if spread is None else rms(np.nan_to_num(spread, posinf=0.0)))
    finally:
        build.close()
    return moves


def first_nan(reference: Reference, feeds: Mapping[str, Array]) -> str | None:
    """Returns the first tensor, in model order, in which the reference itself has a NaN."""
    graph, topology = reference.graph, reference.topology
    names = [t for t in topology.position if t in topology.shakeable or t in graph.outputs]
    try:
        values = reference.capture(feeds, names)
    except EngineFailure:
        values = {}
    return next(
        (t for t in names if t in values and values[t].dtype.kind == "f"
         and bool(np.isnan(values[t]).any())), None,
    )  # fmt: skip


def contributors(
    reference: Reference, feeds: Mapping[str, Array], evidence: Evidenced, before: Ends,
    measured: Measured, end_limit: float,
) -> list[Suspect]:  # fmt: skip
    """Returns the tensors whose introduced error makes most of the difference, largest first."""
    ranked = sorted(
        (j for j in evidence.judgements.values() if j.introduced),
        key=lambda j: -(j.introduced or 0),
    )[:_MOST_CONTRIBUTORS]
    if not ranked:
        return []
    replay = Replay(reference, feeds, evidence.values)
    bases = replay.bases([j.tensor for j in ranked])
    errors = {
        t: (evidence.values[t], y) for t, y in bases.items() if evidence.values[t].shape == y.shape
    }
    effects = causal_test(
        reference, feeds, errors, [e for e, _ in before.values()], measured,
        {n: v for n, (_, v) in before.items() if v is not None}, end_limit,
    )  # fmt: skip
    found = [
        Suspect(j, effects[j.tensor], reference.topology.blamed(j.region), "tapped")
        for j in ranked if j.tensor in effects
    ]  # fmt: skip
    return sorted(found, key=lambda s: -s.effect.share)

"""What the reference says of a part of the model: its answer, and what rounding does to it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from debugtaps import Array, Plan, follow, perturb
from tapsect.candidate import Candidate
from tapsect.localize.recorded import Recorded
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Classes
from tapsect.rounding.discrete import unexplained
from tapsect.rounding.outputs import Measured

__all__ = ["MORE_SAMPLES", "measured_part"]

MORE_SAMPLES = 32


def measured_part(
    reference: Reference, recorded: Recorded, classes: Classes, candidate: Candidate, *,
    feeds: Mapping[str, Array], answers: Mapping[str, Array], samples: int,
) -> tuple[Measured, dict[str, Array]]:  # fmt: skip
    """Returns the reference's answer with its spread, and the indices that noise explains.

    Args:
        reference: The run we believe.
        recorded: Values of the whole model.
        classes: The precision the engine computes in.
        candidate: The part.
        feeds: What it is fed with.
        answers: The engine's answer.
        samples: Runs with noise.

    Raises:
        EngineFailure: The reference cannot run it.
    """
    aliases = dict(candidate.bypass)
    shapes = dict(reference.shapes(recorded.feeds)) | {n: v.shape for n, v in feeds.items()}
    shown = [follow(t, aliases) for t in candidate.outputs]
    plan = Plan(
        nodes=sorted(candidate.nodes), noisy=reference.pool_of, shapes=shapes,
        values=shown, aliases=aliases, held=reference.rounded,
    )  # fmt: skip
    made = perturb(reference.wide, plan)
    build = reference.build(made, "part")
    try:
        rest, contraction = classes.rest, classes.contraction
        runs = reference.noise(made.pools, samples, level=rest, contraction=contraction)
        measured = reference.sweep(build, made, feeds, runs)
        odd = [
            n for n in shown
            if n in answers and n in measured.base and measured.base[n].dtype.kind != "f"
            and answers[n].shape == measured.base[n].shape
            and np.any(answers[n] != measured.base[n])
        ]  # fmt: skip
        if not odd:
            return measured, {}
        runs = reference.noise(
            made.pools, MORE_SAMPLES, level=rest, contraction=contraction, factor=2.0
        )
        shaken = reference.sweep(build, made, feeds, runs)
    finally:
        build.close()
    return measured, {n: _explained(reference, recorded, n, feeds, answers[n], shaken) for n in odd}


def _explained(
    reference: Reference, recorded: Recorded, name: str, feeds: Mapping[str, Array], ours: Array,
    shaken: Measured,
) -> Array:  # fmt: skip
    graph = reference.graph
    node = graph.nodes[graph.producer[name]] if name in graph.producer else None
    inputs = dict(feeds)
    if node is not None:
        inputs |= recorded.values(
            [t for t in node.reads if t in graph.producer and t not in feeds], "reference"
        )
        inputs |= reference.constants(node.reads)
    u = reference.roundoff(node.reads[0]) if node is not None and node.reads else 0.0
    return ~unexplained(node, inputs, ours, shaken.base[name], shaken.changed.get(name), u)

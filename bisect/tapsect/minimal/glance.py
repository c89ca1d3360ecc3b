"""One look at all tensors at once: which operators seem to be at fault?

No more than a hint: what it names is tried first, and judged as anything else is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from debugtaps import Array, EngineFailure, Graph, promote, save
from tapsect.localize.examine import Recorded
from tapsect.probe import Prober

__all__ = ["glance"]

# Fewer operators are bisected in as many builds as a look takes.
_WORTH_IT = 24
_SHOWN = 1
_TINY = 1e-7


def glance(recorded: Recorded, prober: Prober, memory: int) -> tuple[int, ...]:
    """Returns the operators where the engine's error grows most, from one tapped build.

    Args:
        recorded: The reference's values; what it is asked for here it need not record again.
        prober: Probes the engine.
        memory: Bytes that taps may take in one build.
    """
    reference = recorded.reference
    graph, taps = reference.graph, reference.topology.tappable
    shapes = reference.shapes(recorded.feeds)
    size = sum(8 * int(np.prod(shapes.get(t, ()), dtype=np.int64)) for t in taps)
    if len(graph.nodes) < _WORTH_IT or size > memory or prober.exposes:
        return ()
    model = save(promote(graph, taps), reference.path("glance"))
    outcome = prober.look(model, [recorded.feeds], taps=taps, purpose="glance", keep=False)
    if outcome.failure is not None:
        return ()
    seen = outcome.values[0]
    names = [t for t in (*taps, *graph.outputs) if t in seen and t in graph.producer]
    try:
        truth = recorded.values(names, "reference")
    except (EngineFailure, KeyError):
        return ()
    errors = {name: _error(seen[name], truth[name]) for name in names}
    return _jumps(graph, errors)


def _jumps(graph: Graph, errors: Mapping[str, float]) -> tuple[int, ...]:
    grown: list[tuple[float, int]] = []
    for node in graph.nodes:
        out = max((errors[t] for t in node.writes if t in errors), default=0.0)
        into = max((errors[t] for t in node.reads if t in errors), default=0.0)
        if out > 10 * _TINY:
            grown.append((out / (into + _TINY), -node.index))
    grown.sort(reverse=True)
    return tuple(-index for _, index in grown[:_SHOWN])


def _error(ours: Array, theirs: Array) -> float:
    """Returns the rms error over the rms of the reference; infinite for another shape or NaN."""
    if ours.shape != theirs.shape:
        return float("inf")
    if ours.dtype.kind in "OUS":
        return 0.0
    with np.errstate(all="ignore"):
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        if np.any(np.isfinite(a) != np.isfinite(b)):
            return float("inf")
        keep = np.isfinite(a) & np.isfinite(b)
        scale = float(np.sqrt(np.mean(b[keep] ** 2))) if keep.any() else 0.0
        error = float(np.sqrt(np.mean((a[keep] - b[keep]) ** 2))) if keep.any() else 0.0
    return error / (scale + _TINY)

"""A reference over a test model, and what an engine with a declared error would have shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from debugtaps import Array, Host, Plan, error_name, load_graph, perturb
from support.build import Built
from tapsect.replay.reference import Reference, numpy_dtype

__all__ = ["engine_values", "reference_of"]


def reference_of(
    built: Built, host: Host, folder: Path, *, stated: float | None = None,
    largest: float | None = None,
) -> Reference:  # fmt: skip
    """Returns a reference over a model, its types complete."""
    model, _ = built.save(folder)
    graph = load_graph(model, folder / "work")
    reference = Reference(graph, host, folder / "work", stated=stated, largest=largest)
    reference.complete(built.feeds)
    return reference


def engine_values(
    reference: Reference,
    feeds: Mapping[str, Array],
    errors: Mapping[str, float | Array] | None = None,
) -> dict[str, Array]:
    """Returns every tensor of an engine that is right but for relative errors at some tensors."""
    graph, wide, wrong = reference.graph, reference.wide, dict(errors or {})
    shown = [t for t in (*reference.topology.tappable, *graph.outputs) if t in graph.producer]
    values = list(dict.fromkeys(shown))
    made = perturb(wide, Plan(nodes=range(len(wide.nodes)), added=list(wrong), values=values))
    plain = reference.capture(feeds, list(wrong))
    given = {error_name(t): (plain[t] * size).astype(plain[t].dtype) for t, size in wrong.items()}
    build = reference.build(made, "engine")
    try:
        answer = build.run({**reference.named(made, feeds), **given})
    finally:
        build.close()
    return {t: _typed(v, numpy_dtype(graph.elem(t))) for t, v in answer.items()}


def _typed(value: Array, dtype: np.dtype[np.generic] | None) -> Array:
    return value if dtype is None or value.dtype == dtype else value.astype(dtype)

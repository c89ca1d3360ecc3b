"""What makes a failure the same as another one, of another model as well."""

from __future__ import annotations

import re
from typing import Any

from debugtaps import EngineFailure, Graph
from tapsect.diagnose.pattern import extent, pattern
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.finding import Divergence

__all__ = ["signature_of"]

_BETWEEN = re.compile(r"([\s'\"(),;:\[\]{}<>=]+)")
_VARIES = re.compile(r"\S*[/\\]\S*|0x[0-9a-fA-F]+|\d[\d.]*")


def signature_of(subject: Subject, told: Told, first: Divergence | None) -> dict[str, Any]:
    """Returns the signature of a failure: who computed what wrongly, and how it shows.

    Args:
        subject: The diagnosis' material.
        told: What it decided.
        first: The place it names; without one only the engine is known.
    """
    blame, graph = told.blame, subject.graph
    known = {"engine": subject.options.engine, "precision": subject.options.precision}
    if first is None:
        return known
    nodes = [graph.by_name[n] for n in first.nodes if n in graph.by_name]
    if blame is not None:
        nodes = list(blame.reduced.candidate.nodes if blame.reduced else blame.nodes) or nodes
    return known | {
        "kind": told.failure,
        "ops": sorted(graph.nodes[i].op for i in nodes),
        "pattern": pattern(graph, nodes),
        "extent": _extent(told),
        "detail": _said(told.engine_failure, graph),
    }


def _said(failure: EngineFailure | None, graph: Graph) -> str:
    """Returns the first line of what an engine said, without the model's names and numbers."""
    if failure is None:
        return ""
    first = next((line for line in failure.message.splitlines() if line.strip()), "")
    names = {n.name for n in graph.nodes} | set(graph.producer) | set(graph.inputs)
    names |= set(graph.constants)
    words = ("_" if w in names else _VARIES.sub("_", w) for w in _BETWEEN.split(first))
    return " ".join("".join(words).split())[:200]


def _extent(told: Told) -> str:
    """Returns how much of the first wrong tensor is wrong; empty without values."""
    blame, located = told.blame, told.located
    if blame is None or not blame.suspects or located is None or located.evidence is None:
        return ""
    value = located.evidence.values.get(blame.suspects[0].tensor)
    return "" if value is None else extent(blame.suspects[0].judgement, value.shape)

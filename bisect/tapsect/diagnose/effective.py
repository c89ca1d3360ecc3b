"""In what precision the engine was seen to compute, by name: classes of operators, single nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.escape import clean
from tapsect.rounding.floors import PRECISIONS
from tapsect.topology import CONTRACTIONS

__all__ = ["in_words", "precision"]

_NAME_LIMIT = 120


def precision(subject: Subject, told: Told) -> dict[str, Any]:
    """Returns what was stated, and what was seen: at its coarsest, by class, by node."""
    named = {u: n for n, u in reversed(PRECISIONS.items())}
    stated = subject.options.precision or named.get(subject.roundoff, "model")
    classes, nodes = _classes(subject, told), _alone(subject, told)
    seen = [*nodes.values(), *classes.values()]
    effective = max(seen, key=lambda n: PRECISIONS.get(n, 0.0)) if seen else None
    found: dict[str, Any] = {"stated": stated, "effective": effective, "classes": classes}
    return {**found, "nodes": nodes} if nodes else found


def in_words(subject: Subject, told: Told) -> str:
    """Returns the precision of each class, and of nodes that compute more coarsely than theirs."""
    seen = precision(subject, told)
    nodes: Mapping[str, str] = seen.get("nodes", {})
    words = [f"{kind} in {name}" for kind, name in seen["classes"].items()]
    words += [f"node '{clean(n, limit=_NAME_LIMIT)}' in {name}" for n, name in nodes.items()]
    return ", ".join(words)


def _classes(subject: Subject, told: Told) -> dict[str, str]:
    if told.located is None:
        return {}
    evidence = told.located.evidence
    seen = evidence.classes if evidence else subject.coarse  # where no tap was sure, what it says
    return seen.named(subject.roundoff, subject.options.precision) if seen else {}


def _alone(subject: Subject, told: Told) -> dict[str, str]:
    """Returns the contractions that alone of their class read fewer bits, with how many."""
    evidence = told.located.evidence if told.located else None
    nodes = subject.graph.nodes
    return {
        nodes[index].name: "fp16" if evidence.values[tensor].dtype.itemsize < 4 else "tf32"
        for tensor, judgement in evidence.judgements.items() if judgement.alone
        for index in judgement.region if nodes[index].op in CONTRACTIONS
    } if evidence else {}  # fmt: skip

"""A small model that fails, and the question that each simpler one must answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from onnx import numpy_helper

from tapsect.reduction import Question
from tapsect.simplify.specimen import Specimen, constants, plainness

__all__ = ["Simplification", "elements", "nearest_passing"]

Key = tuple[int, int, int, int, int, int, str]


class Simplification(Question[Specimen]):
    """One failing model; see ``Question``."""

    def size(self, candidate: Specimen) -> int:
        """Returns how many nodes a model has, bodies and functions included."""
        return candidate.nodes

    def sort_key(self, candidate: Specimen) -> Key:
        """Returns a total order on models; the smaller, the better to read.

        Nodes first, then what must be shipped (inputs, outputs, elements), then how plain the
        values are, then bytes (names, documentation).  The digest decides what is left.
        """
        return _key(candidate)

    def why_invalid(self, candidate: Specimen) -> str:
        """Returns why a model need not be run; a checker or an engine says the rest."""
        graph = candidate.proto.graph
        if not graph.node or not graph.output:
            return "nothing is left to run or to look at"
        missing = [v.name for v in graph.input if v.name not in candidate.feeds]
        held = {t.name for t in graph.initializer}
        unfed = [name for name in missing if name not in held]
        return f"input {unfed[0]!r} has no value" if unfed else ""

    def neighbours(self, candidate: Specimen) -> Iterator[Specimen]:
        """Yields nothing: that no node can go is proved where nodes are dropped."""
        yield from ()


def elements(candidate: Specimen) -> int:
    """Returns how many numbers must be shipped: inputs and constants."""
    held = sum(numpy_helper.to_array(t).size for t in constants(candidate.proto))
    return held + sum(value.size for value in candidate.feeds.values())


def nearest_passing(problem: Simplification) -> Specimen | None:
    """Returns the passing model that differs from the smallest failing one in fewest tensors.

    Only what was asked on the way is looked at, and only models with the same nodes.
    """
    end = problem.current
    held = _tensors(end)
    found: list[tuple[int, int, Specimen]] = []
    for number, each in enumerate(problem.good()):
        if each.nodes == end.nodes:
            other = _tensors(each)
            apart = sum(held.get(name) != value for name, value in other.items())
            found.append((apart + len(held.keys() - other.keys()), -number, each))
    return min(found, key=lambda row: row[:2])[2] if found else None


def _tensors(candidate: Specimen) -> dict[str, bytes]:
    held = {name: value.tobytes() for name, value in candidate.feeds.items()}
    return held | {t.name: t.SerializeToString() for t in constants(candidate.proto)}


@lru_cache(maxsize=256)
def _key(candidate: Specimen) -> Key:
    graph = candidate.proto.graph
    arrays = [numpy_helper.to_array(t) for t in constants(candidate.proto)]
    return (
        candidate.nodes,
        len(graph.input),
        len(graph.output),
        elements(candidate),
        sum(plainness(value) for value in [*arrays, *candidate.feeds.values()]),
        len(candidate.model),
        candidate.digest,
    )

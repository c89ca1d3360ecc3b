"""Where a tapped value is after the rewrites of the exporter, and why it is not where it is not.

A value is followed by its name.  Copies (Identity, Dropout of a model that is not trained) count as
the same value, so a tap on one of them survives in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Followed", "Survey", "survey"]

_COPIES = frozenset({"Identity", "Dropout"})
_FOLDS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of one tap.

    Attributes:
        tensor: The tensor of the model that holds its value, empty when none does.
        place: ``file:line`` of the tap, where the trace tells.
        reason: Why no tensor holds it, and what to do; empty otherwise.
    """

    tensor: str
    place: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Origin:
    """A tapped value as it was before the rewrites."""

    name: str
    op: str
    readers: tuple[str, ...]
    constant: bool
    alive: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """The tapped values before the rewrites, and which values copy which.

    Attributes:
        origins: By tap.
        copies: The values that equal a value, itself among them.
    """

    origins: Mapping[str, _Origin]
    copies: Mapping[str, tuple[str, ...]]

    def followed(
        self, model: Any, places: Mapping[str, str], inner: Iterable[str]
    ) -> dict[str, Followed]:
        """Returns what became of each tap of the trace.

        Args:
            model: The model after the rewrites.
            places: The taps of the trace, with ``file:line``.
            inner: Those inside the body of a control-flow operator.
        """
        left, bodies = _names(model.graph), frozenset(inner)
        return {
            name: self._one(name, place, left, inside=name in bodies)
            for name, place in places.items()
        }

    def _one(self, name: str, place: str, left: frozenset[str], *, inside: bool) -> Followed:
        if inside:
            return Followed(
                "", place,
                "it stands inside a control-flow branch or body (cond, while_loop, scan), and a "
                "value there cannot become an output; tap what the operator returns",
            )  # fmt: skip
        origin = self.origins.get(name)
        if origin is None:
            return Followed("", place, "the exporter did not translate it; tap a neighbour")
        names = (origin.name, *self.copies.get(origin.name, ()))
        found = next((n for n in names if n in left), "")
        return Followed(found, place, "" if found else _reason(origin))


def survey(model: Any, looked: Mapping[str, Any]) -> Survey:
    """Returns what there is to know of tapped values before the rewrites.

    Args:
        model: The ``onnx_ir`` model.
        looked: The value each tap looks at.
    """
    alive = _names(model.graph)
    varying = _varying(model.graph)
    readers: dict[str, list[str]] = {}
    makers: dict[str, str] = {}
    for node in model.graph:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value.name, []).append(node.op_type)
        makers.update({value.name: node.op_type for value in node.outputs})
    origins = {
        tap: _Origin(
            value.name or "",
            makers.get(value.name, ""),
            tuple(readers.get(value.name, ())),
            value.name in alive and value.name not in varying,
            value.name in alive,
        )
        for tap, value in looked.items()
    }
    return Survey(origins, _copies(model.graph))


def _names(graph: Any) -> frozenset[str]:
    found = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    found.update(value.name for node in graph for value in node.outputs)
    return frozenset(found)


def _varying(graph: Any) -> set[str]:
    """Returns the values that depend on an input, and the weights, which stay as they are."""
    found = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    fed = {value.name for value in graph.inputs}
    for node in graph:
        reads = {value.name for value in node.inputs if value is not None}
        if reads & fed or any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values()):
            fed.update(value.name for value in node.outputs)
    return found | fed


def _copies(graph: Any) -> dict[str, tuple[str, ...]]:
    root: dict[str, str] = {}

    def top(name: str) -> str:
        while name in root:
            name = root[name]
        return name

    for node in graph:
        if node.op_type in _COPIES and not node.domain and node.inputs[0] is not None:
            first, second = top(node.inputs[0].name), top(node.outputs[0].name)
            if first != second:
                root[second] = first
    groups: dict[str, list[str]] = {}
    for name in {*root, *root.values()}:
        groups.setdefault(top(name), []).append(name)
    return {n: tuple(sorted(g)) for g in groups.values() for n in g}


def _reason(origin: _Origin) -> str:
    if not origin.alive:
        return (
            "its value was optimised away: no output of the model depends on it; tap a value "
            "that is used"
        )
    if origin.constant:
        return (
            "its value was optimised away: it is a constant, the same for every input; tap a "
            "value that depends on an input"
        )
    if origin.op in _FOLDS and "BatchNormalization" in origin.readers:
        return (
            f"its value was optimised away: the {origin.op} that makes it is folded into the "
            "BatchNorm that reads it; tap after the BatchNorm"
        )
    maker = f" of {origin.op}" if origin.op else ""
    into = ", ".join(sorted(set(origin.readers))) or "nothing"
    return (
        f"its value (tensor {origin.name!r}{maker}, read by {into}) was optimised away by a "
        "rewrite; tap a value that stays, such as what the surrounding module returns"
    )

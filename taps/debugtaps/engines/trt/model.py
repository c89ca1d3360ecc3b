"""The operators of an ONNX file, read without the onnx package, and their names in TensorRT.

TensorRT says which ONNX node a layer came from in the layer's metadata,
``[ONNX Layer: name | scope (Type)]``, and repeats that text for every kernel of the plan.  A
name with ``]`` or ``|`` in it cannot be read back from there, a node without a name goes by
``node_of_<first output>``, and a node inside a body or a function names its surroundings.  So
each layer's metadata is set to what can be read back, and a table leads to the ONNX name.

Python 3.8, the standard library only: the worker loads this under any interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Dict, FrozenSet, List, NamedTuple, Tuple, Union

__all__ = ["Operator", "Operators", "names_of_layers", "read_operators", "tag_layers"]

Field = Tuple[int, Union[int, memoryview]]

STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training")

_CLEAN = re.compile(r"[A-Za-z0-9_./:-]+\Z")
_LAYER = re.compile(r"\[ONNX Layer: (.*)\]\Z", re.DOTALL)
_SCOPE = re.compile(r"(.*) \([^()]*\)\Z", re.DOTALL)
_UNNAMED = "node_of_"


class Operator(NamedTuple):
    """One node: its name, type and domain, its first output, and the bodies it holds."""

    name: str
    op: str
    domain: str
    first: str
    inner: Tuple[Any, ...] = ()

    @property
    def known_as(self) -> str:
        """Returns its name, or that of its first output when it has none."""
        return self.name or self.first

    def everything(self) -> Iterator[Any]:
        """Yields it and the nodes of its bodies."""
        yield self
        for node in self.inner:
            yield from node.everything()


class Operators(NamedTuple):
    """The main graph of a model and the names of its local functions."""

    nodes: Tuple[Operator, ...]
    functions: FrozenSet[Tuple[str, str]]

    def custom(self) -> List[Operator]:
        """Returns the operators outside the standard domains that no local function defines."""
        return [
            node
            for outer in self.nodes
            for node in outer.everything()
            if node.domain not in STANDARD_DOMAINS and (node.domain, node.op) not in self.functions
        ]


def _varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[Field]:
    """Yields the fields of a protobuf message: number, then integer or bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("a field ends behind the file")
            yield number, data[at : at + size]
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("wire type %d" % wire)


def _text(value: Union[int, memoryview]) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""


def _messages(data: memoryview, *numbers: int) -> Iterator[memoryview]:
    for number, value in _fields(data):
        if number in numbers and isinstance(value, memoryview):
            yield value


def _operator(data: memoryview) -> Operator:
    texts: Dict[int, str] = {}
    inner: List[Operator] = []
    for number, value in _fields(data):
        if number in (2, 3, 4, 7):  # output, name, op_type, domain
            texts.setdefault(number, _text(value))
        elif number == 5 and isinstance(value, memoryview):  # attribute: its g, its graphs
            for graph in _messages(value, 6, 11):
                inner += [_operator(node) for node in _messages(graph, 1)]
    domain = texts.get(7, "")
    return Operator(texts.get(3, ""), texts.get(4, ""), domain, texts.get(2, ""), tuple(inner))


def read_operators(data: bytes) -> Operators:
    """Returns the operators of a serialized ``ModelProto``; none of what is not one."""
    try:
        nodes: List[Operator] = []
        functions = set()
        for number, value in _fields(memoryview(data)):
            if number == 7 and isinstance(value, memoryview):  # graph
                nodes += [_operator(node) for node in _messages(value, 1)]
            elif number == 25 and isinstance(value, memoryview):  # function
                texts = {n: _text(v) for n, v in _fields(value) if n in (1, 10)}
                functions.add((texts.get(10, ""), texts.get(1, "")))
        return Operators(tuple(nodes), frozenset(functions))
    except (ValueError, IndexError):  # the parser says better what is wrong with it
        return Operators((), frozenset())


def names_of_layers(metadata: str, operators: Operators) -> str:
    """Returns the name of the main graph's node that a layer's metadata tells of, or nothing.

    >>> node = Operator("foo2", "Foo", "mine", "t")
    >>> names_of_layers("[ONNX Layer: inner | foo2 (Foo)]", Operators((node,), frozenset()))
    'foo2'
    """
    found = _LAYER.search(metadata)
    if found is None:
        return ""
    whole = found.group(1)
    by_name = {node.name: node.known_as for node in operators.nodes if node.name}
    by_name.update((_UNNAMED + node.first, node.first) for node in operators.nodes if not node.name)
    if whole in by_name:
        return by_name[whole]
    outermost = whole.rpartition(" | ")[2]
    bare = _SCOPE.match(outermost)
    return by_name.get(outermost) or by_name.get(bare.group(1) if bare else "", whole)


def tag_layers(network: Any, operators: Operators) -> Dict[str, str]:
    """Gives each layer metadata that can be read back, and returns what the odd ones stand for.

    Args:
        network: A parsed network.
        operators: The operators of the model it was parsed from.
    """
    table: Dict[str, str] = {}
    tokens: Dict[str, str] = {}
    for layer in network:
        name = names_of_layers(layer.metadata, operators)
        if not name:
            continue
        shown = name
        if not _CLEAN.match(name):
            shown = tokens.setdefault(name, "onnx-node:%d" % len(tokens))
            table[shown] = name
        wanted = "[ONNX Layer: %s]" % shown
        if layer.metadata != wanted:
            layer.metadata = wanted
    return table

"""Whether one operator, alone of its class, computes in TF32 or fp16: kernels choose one by one.

A GPU library picks a tensor-core kernel for one matrix product and none for the next.  Such a
kernel reads 11 bits of its operands, rounded to nearest or cut off.  That is no noise: it can be
computed, and what an engine introduced is put down to it only where it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from tapsect.replay.judging import Judgement
from tapsect.rounding.deviation import gap
from tapsect.rounding.floors import rms

__all__ = [
    "ALONE",
    "MODES",
    "ONE_ROUNDING",
    "could_be_rounding",
    "explains",
    "one_rounding",
    "read",
]

Array = npt.NDArray[Any]

ALONE = 2.0**-11
"""The coarser u."""

ONE_ROUNDING = 1.0
"""Floors that one rounding at the right u stays below; at the next finer u it makes eight times
as many."""

MODES = ((False, False), (True, True), (False, True), (True, False))
"""Whether the low bits of the first and of the second operand are cut off, rather than rounded."""

_REST = 0.25
"""Share of an error that the order of its sum may make beside rounded operands."""

_WITH_OPERANDS = frozenset({"Conv", "ConvTranspose", "Einsum", "FusedMatMul", "Gemm", "MatMul"})
_WHERE_SINCE = 9


def one_rounding(judgement: Judgement, *, floors: float = ONE_ROUNDING) -> bool:
    """Returns whether an error is no larger than one rounding at the u it was judged at.

    Args:
        judgement: Of a tensor.
        floors: How many its norm may be; the worst slice may be twice that.
    """
    found = judgement.ratios
    return judgement.kind == "ok" and found.norm <= floors and found.slice <= 2.0 * floors


def could_be_rounding(judgement: Judgement) -> bool:
    """Returns whether a suspect was judged finely enough to be a coarser kernel's."""
    return judgement.kind == "accuracy" and judgement.u < ALONE


def explains(engine: Array, base: Array, rounded: Array) -> bool:
    """Returns whether rounded operands make the engine's error.

    Args:
        engine: The engine's values.
        base: The replayed ones.
        rounded: Those of operators that read rounded operands.
    """
    return rms(gap(engine, rounded)) <= _REST * rms(gap(engine, base))


def read(model: ModelProto, cut: tuple[bool, bool]) -> bool:
    """Makes the contractions of a model read 11 bits of their operands, in place.

    Args:
        model: A model in fp32.
        cut: Whether low bits are cut off, by operand.

    Returns:
        Whether that can be written: every contraction has operands, and the opset knows how.
    """
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if any(cut) and opset < _WHERE_SINCE:
        return False
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    model.graph.ClearField("node")
    found = False
    for number, node in enumerate(nodes):
        if node.op_type in _WITH_OPERANDS:
            found = True
            for place, name in enumerate(node.input[:2]):
                node.input[place] = f"operand{number}_{place}::{name}"
                model.graph.node.extend(_eleven_bits(name, node.input[place], cut=cut[place]))
        model.graph.node.append(node)
    return found


def _eleven_bits(source: str, target: str, *, cut: bool) -> Iterator[NodeProto]:
    """Yields what keeps 11 bits, by Veltkamp's splitting: of c = x·(2¹³ + 1), c - (c - x)."""
    if not cut:
        yield from _nearest(source, target)
        return
    # Where that went up, the number below is nearest to what lies half a step or more below x.
    near, below, less = (f"{target}::{part}" for part in ("near", "below", "less"))
    yield from _nearest(source, near)
    yield _number(f"{target}::shrink", 1 - 2.0**-11)
    yield helper.make_node("Mul", [source, f"{target}::shrink"], [less])
    yield from _nearest(less, below)
    yield helper.make_node("Abs", [near], [f"{near}::size"])
    yield helper.make_node("Abs", [source], [f"{less}::size"])
    yield helper.make_node("Greater", [f"{near}::size", f"{less}::size"], [f"{target}::up"])
    yield helper.make_node("Where", [f"{target}::up", below, near], [target])


def _nearest(source: str, target: str) -> Iterator[NodeProto]:
    yield _number(f"{target}::factor", 2.0**13 + 1)
    yield helper.make_node("Mul", [source, f"{target}::factor"], [f"{target}::big"])
    yield helper.make_node("Sub", [f"{target}::big", source], [f"{target}::rest"])
    yield helper.make_node("Sub", [f"{target}::big", f"{target}::rest"], [target])


def _number(name: str, value: float) -> NodeProto:
    tensor = helper.make_tensor(name, TensorProto.FLOAT, (), [value])
    return helper.make_node("Constant", [], [name], value=tensor)

"""Planted faults to look for: where each network can be wrong, and what each kind must lead to.

``PLACES`` says for each network which node may be wrong by itself and which neighbours may be
wrong together; ``KINDS`` says for each kind of fault how it is declared there and what the
diagnosis must say of it.  Their product is every case; ``CORE`` is a pairing in which each kind
and each network occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support import zoo
from support.build import Built

__all__ = ["CORE", "KINDS", "PLACES", "Expected", "Place", "pairs"]

Fault = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one network can be wrong.

    Attributes:
        build: Makes the network.
        one: A node with a float output of rank 2 or more, whose error reaches an output.
        path: Neighbours, each read by the next, that may be fused.
        other: The same elsewhere.
        limit: Some elements of what ``one`` writes lie beyond it.
        axis: An axis of what ``one`` writes, for channels.
        last: A node that writes a model output.
        saturates: Whether what reads ``one`` makes finite values of infinite ones.
    """

    build: Callable[[], Built]
    one: str
    path: tuple[str, ...]
    other: tuple[str, ...]
    last: str
    limit: float = 0.5
    axis: int = 1
    saturates: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """A declared fault and what must be said of it.

    Attributes:
        faults: What is planted.
        nodes: The culprits: nodes of the minimal case as well, unless ``minimal`` says otherwise.
        failure: As in ``result.json``.
        cause: As in ``result.json``.
        most_builds: Builds to locate and confirm; reduction apart.
        minimal: Nodes of the minimal case where they are not ``nodes``; None where there is none.
        also: Whether a second place is wrong: either may be the first.
        options: What is given to ``tapsect.bisect`` beside.
    """

    faults: Sequence[Fault]
    nodes: tuple[str, ...]
    failure: str = "accuracy"
    cause: str = "engine_defect"
    most_builds: int | None = 5
    minimal: tuple[str, ...] | None = ()
    also: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def smallest(self) -> tuple[str, ...] | None:
        """Returns the nodes that the minimal case must hold; ``None`` when there is no case."""
        return self.nodes if self.minimal == () else self.minimal


PLACES: dict[str, Place] = {
    "chain": Place(
        zoo.chain_cnn, "block5/Conv", ("block3/Conv", "block3/Relu", "block4/Conv"),
        ("block8/Relu", "block9/Conv", "block9/Relu"), "block11/Relu",
    ),
    "residual": Place(
        zoo.residual, "stage1/BatchNormalization",
        ("stage1/Conv_1", "stage1/BatchNormalization_1", "stage1/Add"),
        ("stage3/Add", "stage3/Mul", "stage3/Relu_1"), "head/Gemm",
    ),
    "branching": Place(
        zoo.branching, "cell1/Conv_3", ("cell1/Conv_1", "cell1/Relu_1", "cell1/Conv_2"),
        ("cell2/Conv_3", "cell2/Sigmoid", "cell2/Conv_4"), "Softmax", saturates=True,
    ),
    "u_shaped": Place(
        zoo.u_shaped, "up1/ConvTranspose", ("down1/MaxPool", "down1/Conv", "down1/Relu"),
        ("up0/Concat", "up0/Conv", "up0/Relu"), "head/Sigmoid",
    ),
    "attention": Place(
        zoo.attention, "Softmax", ("query/MatMul", "query/Add", "query/Reshape"),
        ("MatMul_1", "Transpose", "Reshape"), "Add_1", limit=0.3,
    ),
    "transformer": Place(
        zoo.transformer, "layer0/mlp/Erf",
        ("layer0/mlp/MatMul", "layer0/mlp/Add", "layer0/mlp/Div"),
        ("layer1/attention/query/MatMul", "layer1/attention/query/Add",
         "layer1/attention/query/Reshape"), "classifier/Add",
    ),
    "multi_output": Place(
        zoo.multi_output, "boxes/Conv", ("trunk/Conv", "trunk/Relu", "trunk/Conv_1"),
        ("depth/Conv", "depth/Tanh", "depth/Conv_1"), "boxes/Sigmoid",
    ),
    "recurrent": Place(
        zoo.recurrent, "LSTM", ("LSTM", "Transpose", "Reshape"), ("Squeeze", "MatMul", "Add"),
        "Tanh", limit=0.1, saturates=True,
    ),
    "shared_weight": Place(
        zoo.shared_weight, "left_tower/MatMul",
        ("left_tower/MatMul", "left_tower/Relu", "left_tower/MatMul_1"),
        ("right_tower/MatMul", "right_tower/Relu", "right_tower/MatMul_1"), "ReduceSum",
    ),
    "dynamic_shape": Place(
        zoo.dynamic_shape, "MatMul_3", ("MatMul_1", "Add_1", "Reshape_1"),
        ("MatMul_4", "Transpose_4", "Reshape_3"), "Relu",
    ),
    "control_flow": Place(
        zoo.control_flow, "Loop", ("MatMul", "Add", "Tanh"), ("MatMul_1", "Add_1", "Relu"),
        "Relu", limit=0.1,
    ),
}  # fmt: skip


def _at_one(kind: str, **keys: Any) -> Callable[[Place], Expected]:
    def declare(place: Place) -> Expected:
        return Expected([{"kind": kind, "nodes": [place.one], **keys}], (place.one,))

    return declare


def _channel(place: Place) -> Expected:
    fault = {"kind": "channel", "nodes": [place.one], "axis": place.axis, "index": 1}
    return Expected([fault], (place.one,))


def _nonfinite(place: Place) -> Expected:
    fault = {"kind": "nonfinite", "nodes": [place.one], "limit": place.limit}
    return Expected([fault], (place.one,), "accuracy" if place.saturates else "nonfinite")


def _fusion(place: Place) -> Expected:
    fault = {"kind": "fusion", "nodes": place.path}
    return Expected([fault], place.path, most_builds=40)


def _two_fusions(place: Place) -> Expected:
    faults = [{"kind": "fusion", "nodes": path} for path in (place.path, place.other)]
    return Expected(faults, place.path, most_builds=60, also=place.other)


def _pattern(place: Place) -> Expected:
    return Expected([{"kind": "pattern", "nodes": place.path}], place.path, most_builds=None)


def _two_values(place: Place) -> Expected:
    faults = [{"kind": "value", "nodes": [n]} for n in (place.one, place.other[0])]
    return Expected(faults, (place.one,), also=(place.other[0],))


def _refusing(**keys: Any) -> Callable[[Place], Expected]:
    def declare(place: Place) -> Expected:
        faults = [{"kind": "refuses_taps", **keys}, {"kind": "value", "nodes": [place.one]}]
        return Expected(faults, (place.one,), most_builds=None)

    return declare


def _refuses_some(place: Place) -> Expected:
    names = place.build().model.graph.node
    inner = [n.output[0] for n in names if n.name in (place.other[0], place.path[0])]
    value = {"kind": "value", "nodes": [place.one]}
    return Expected(
        [{"kind": "refuses_taps", "tensors": inner}, value], (place.one,), most_builds=None
    )


def _garbles(place: Place) -> Expected:
    node = next(n for n in place.build().model.graph.node if n.name == place.other[0])
    faults = [
        {"kind": "garbles_tap", "tensor": node.output[0]}, {"kind": "value", "nodes": [place.one]},
    ]  # fmt: skip
    return Expected(faults, (place.one,))


def _flaky(kind: str, rate: float, seed: int) -> Callable[[Place], Expected]:
    def declare(place: Place) -> Expected:
        # With this seed the first build, or run, is struck; so are not all of the next ones.
        fault = {"kind": kind, "nodes": [place.one], "rate": rate, "seed": seed}
        return Expected([fault], (place.one,), cause=kind, most_builds=None)

    return declare


def _event(kind: str, failure: str, **keys: Any) -> Callable[[Place], Expected]:
    def declare(place: Place) -> Expected:
        fault = {"kind": kind, "nodes": [place.one], **keys}
        return Expected([fault], (place.one,), failure, most_builds=None)

    return declare


def _unsupported(place: Place) -> Expected:
    message = "{node}: not implemented"
    fault = {"kind": "build_error", "nodes": [place.one], "message": message}
    return Expected([fault], (place.one,), "build_error", "unsupported", most_builds=None)


def _hang(place: Place) -> Expected:
    fault = {"kind": "hang", "nodes": [place.one]}
    return Expected([fault], (place.one,), "timeout", most_builds=None, options={"timeout": 1.0})


def _out_of_memory(place: Place) -> Expected:
    fault = {"kind": "out_of_memory", "nodes": [place.one]}
    return Expected(
        [fault], (), "out_of_memory", "resource_limit", most_builds=None, minimal=None
    )  # fmt: skip


def _wrong_shape(place: Place) -> Expected:
    fault = {"kind": "wrong_shape", "nodes": [place.last]}
    return Expected([fault], (place.last,), "wrong_shape")


def _wrong_dtype(place: Place) -> Expected:
    fault = {"kind": "wrong_dtype", "nodes": [place.last]}
    return Expected([fault], (place.last,), "wrong_dtype")


KINDS: dict[str, Callable[[Place], Expected]] = {
    "value": _at_one("value"),
    "small value": _at_one("value", error=1e-3),
    "element": _at_one("element", scale=-3.0),
    "channel": _channel,
    "fusion": _fusion,
    "two fusions": _two_fusions,
    "pattern": _pattern,
    "two values": _two_values,
    "nonfinite": _nonfinite,
    "flaky build 70 %": _flaky("flaky_build", 0.7, 3),
    "flaky build 50 %": _flaky("flaky_build", 0.5, 0),
    "flaky run": _flaky("flaky_run", 0.6, 3),
    "refuses all taps": _refusing(),
    "refuses some taps": _refuses_some,
    "refuses many taps": _refusing(limit=3),
    "garbles a tap": _garbles,
    "crash at build": _event("crash", "crash"),
    "crash at run": _event("crash", "crash", phase="run"),
    "hang": _hang,
    "build error, named": _event("build_error", "build_error"),
    "build error, unnamed": _event("build_error", "build_error", message="no plan found"),
    "run error, named": _event("run_error", "run_error"),
    "run error, unnamed": _event("run_error", "run_error", message="kernel failed"),
    "unsupported": _unsupported,
    "out of memory": _out_of_memory,
    "wrong shape": _wrong_shape,
    "wrong dtype": _wrong_dtype,
}


def pairs() -> Iterator[tuple[str, str]]:
    """Yields every kind on every network."""
    for kind in KINDS:
        for place in PLACES:
            yield kind, place


def _core() -> list[tuple[str, str]]:
    names = list(PLACES)
    return [(kind, names[n % len(names)]) for n, kind in enumerate(KINDS)]


CORE: Sequence[tuple[str, str]] = tuple(_core())

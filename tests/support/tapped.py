"""A small model that carries taps, with its inputs and reference: what prepare would write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from debugtaps import Manifest, TapEntry, write_manifest, write_npz
from debugtaps.manifest import Kind, Origin
from support.build import Array, Net

__all__ = ["Tapped", "tapped_model"]

_SHAPE = (4, 16)


@dataclass(frozen=True, slots=True)
class Tapped:
    """The files of a prepared model.

    Attributes:
        model: ``model.onnx``, with its manifest.
        inputs: ``model.npz``.
        taps: The names of its taps in model order.
        output: Its one output.
    """

    model: Path
    inputs: Path
    taps: tuple[str, ...]
    output: str

    def reference(self, outputs: dict[str, Array]) -> Path:
        """Writes the reference file and returns its path."""
        path = self.model.with_suffix(".reference.npz")
        write_npz(path, {**outputs, "benchmark_timings_ms": np.ones(3)})
        return path


def tapped_model(folder: Path, *, layers: int = 4, plugin: Origin = "torch") -> Tapped:
    """Writes layers of MatMul, Add and Relu, each tapped as ``layer<i>``, then a plugin Gelu.

    The plugin is ONNX Runtime's own of a domain that is not standard; ``Gelu__in0`` and
    ``Gelu__out0`` are its boundaries, whose reference comes from ``plugin``.
    """
    net = Net()
    x = net.input("x", _SHAPE)
    inner = []
    for _ in range(layers):
        x = net.op("Relu", net.linear(x, 16, 16))
        inner.append(x)
    gelu = net.op("Gelu", x, domain="com.microsoft")
    y = net.op("Sigmoid", gelu)
    net.output(y, dtype=np.float32, shape=_SHAPE)
    model = net.build().model
    entries = [_expose(model, f"layer{i}", t, "manual", "torch") for i, t in enumerate(inner)]
    entries.append(_expose(model, "Gelu__in0", x, "plugin", plugin))
    entries.append(_expose(model, "Gelu__out0", gelu, "plugin", plugin))
    write_manifest(model, Manifest(taps=tuple(entries), outputs=(y,)))
    onnx.save(model, folder / "model.onnx")
    write_npz(folder / "model.npz", net.feeds)
    names = tuple(entry.name for entry in entries)
    return Tapped(folder / "model.onnx", folder / "model.npz", names, y)


def _expose(
    model: onnx.ModelProto, name: str, tensor: str, kind: Kind, reference: Origin
) -> TapEntry:
    """Promotes a tensor the way prepare does: an Identity at the end of the file."""
    output = f"tap/{name}"
    model.graph.node.append(helper.make_node("Identity", [tensor], [output]))
    model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, _SHAPE))
    reason = "torch fuses it" if reference == "none" else ""
    return TapEntry(name, output, tensor, kind, "float32", _SHAPE, None, reference, reason)

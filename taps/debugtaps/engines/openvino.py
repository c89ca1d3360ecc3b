"""OpenVINO: its ONNX front end and the plugin of one device.

Python 3.8, numpy and openvino only: the worker loads this file under any interpreter.
Every property of the device is an option under its own name
(``INFERENCE_PRECISION_HINT=bf16``, ``ENABLE_CPU_PINNING=false`` …).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import openvino as ov

ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
# Switches of the CPU plugin's own passes, which its list of properties leaves out.
UNLISTED = {"SNIPPETS_MODE": ["DISABLE"], "LP_TRANSFORMS_MODE": ["NO"]}
_IDLE = frozenset({"Input", "Output", "Const", "Reorder", "MemoryInput", "MemoryOutput"})


def _precision_name(value: Any) -> str:
    text = value.get_type_name() if hasattr(value, "get_type_name") else str(value)
    return _NAMES.get(text, text)


class OpenVinoEngine:
    """OpenVINO on one device.

    Args:
        device: ``CPU``, ``GPU``, ``AUTO:GPU,CPU`` … as OpenVINO names them.
        f32_nodes: Names of ONNX nodes that stay in f32 where the device infers in less, a list
            or ``A,B``.
        **properties: Properties of the device, by their OpenVINO names.

    A CPU with bf16 instructions infers in bf16 unless it is told otherwise.
    """

    def __init__(
        self, device: str = "CPU", f32_nodes: str | Sequence[str] = (), **properties: Any
    ) -> None:
        self.core = ov.Core()
        kept = f32_nodes.split(",") if isinstance(f32_nodes, str) else f32_nodes
        self.f32_nodes = frozenset(str(name).strip() for name in kept)
        self.device = device
        first = device.split(":")[0].split(".")[0]
        present = {name.split(".")[0] for name in self.core.available_devices}
        if first not in present and first not in ("AUTO", "MULTI", "HETERO", "BATCH"):
            raise ValueError(f"no device {device!r}; OpenVINO sees {', '.join(sorted(present))}")
        known = self._properties()
        for name in properties:
            if known and name not in known and name not in UNLISTED:
                writable = ", ".join(sorted(k for k, v in known.items() if v == "RW"))
                raise TypeError(f"unexpected property {name!r} of {device}; it takes {writable}")
        self.properties = {name: _text(value) for name, value in properties.items()}

    def _properties(self) -> dict[str, str]:
        try:
            found = self.core.get_property(self.device, "SUPPORTED_PROPERTIES")
        except RuntimeError:  # virtual devices answer only for a model
            return {}
        return {str(name): str(kind) for name, kind in dict(found).items()}

    @property
    def unit_roundoff(self) -> float | None:
        """Returns u of the precision the device says it infers in."""
        asked = self.properties.get("INFERENCE_PRECISION_HINT")
        try:
            told = asked or self.core.get_property(self.device, "INFERENCE_PRECISION_HINT")
        except RuntimeError:
            return None
        return ROUNDOFF.get(_precision_name(told))

    def describe(self) -> dict[str, Any]:
        """Returns name, versions, device and the precision it infers in."""
        try:
            device = self.core.get_property(self.device, "FULL_DEVICE_NAME")
        except RuntimeError:
            device = self.device
        u = self.unit_roundoff
        precision = next((name for name, value in ROUNDOFF.items() if value == u), None)
        return {
            "name": "openvino",
            "versions": {"openvino": ov.__version__, "numpy": np.__version__},
            "device": str(device),
            "precision": precision,
        }

    def knobs(self) -> dict[str, Any]:
        """Returns the properties that change what the device computes, with their values."""
        found: dict[str, Any] = {
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": [0],
            "KV_CACHE_PRECISION": ["f32"],
            "INFERENCE_NUM_THREADS": [1],
            "EXECUTION_MODE_HINT": ["ACCURACY", "PERFORMANCE"],
            "INFERENCE_PRECISION_HINT": ["f32", "bf16", "f16"],
        }
        known = self._properties()
        turned: dict[str, Any] = {n: v for n, v in found.items() if known.get(n) == "RW"}
        if self.device == "CPU":
            turned = {**UNLISTED, **turned}
        return {**turned, "f32_nodes": {"any": "nodes"}}

    def build(self, model: Path, taps: Sequence[str] = ()) -> OpenVinoSession:
        """Reads and compiles an ONNX file; taps are outputs of it already."""
        network = self.core.read_model(str(model))
        if self.f32_nodes:
            network = _kept_precise(self.core, network, self.f32_nodes)
        return OpenVinoSession(self.core.compile_model(network, self.device, self.properties))

    def load(self, folder: Path) -> OpenVinoSession:
        """Returns the session that ``OpenVinoSession.save`` wrote, or that of a blob file."""
        path = Path(folder)
        blob = (path if path.is_file() else path / "model.blob").read_bytes()
        return OpenVinoSession(self.core.import_model(blob, self.device, self.properties))


def _kept_precise(core: ov.Core, network: ov.Model, names: frozenset[str]) -> ov.Model:
    """Returns the network with these nodes marked as precise.

    The mark is an attribute that Python cannot set: it is written into the serialized network.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, weights = Path(folder) / "m.xml", Path(folder) / "m.bin"
        ov.serialize(network, str(path), str(weights))
        tree = ElementTree.parse(path)
        for layer in tree.iter("layer"):
            if _part_of(layer.get("name", ""), names):
                mark = ElementTree.Element("rt_info")
                ElementTree.SubElement(mark, "attribute", {"name": "precise", "version": "0"})
                layer[:] = [mark, *(child for child in layer if child.tag != "rt_info")]
        return core.read_model(ElementTree.tostring(tree.getroot()), weights.read_bytes())


def _part_of(layer: str, names: frozenset[str]) -> bool:
    """Returns whether a layer is one of the nodes, or a part of one: ``Conv_7/WithoutBiases``."""
    while layer not in names:
        layer, slash, _ = layer.rpartition("/")
        if not slash:
            return False
    return True


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return value if isinstance(value, (str, int)) else str(value)


class OpenVinoSession:
    """A compiled model."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.request = compiled.create_infer_request()
        self.inputs = {name: port for port in compiled.inputs for name in port.get_names()}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns every output under each of its tensor names."""
        given, used = {}, set()
        for name, value in feeds.items():
            port = self.inputs.get(name)
            if port is not None and port.index not in used:
                used.add(port.index)
                given[port.index] = ov.Tensor(np.ascontiguousarray(value))
        results = self.request.infer(given, share_inputs=False, share_outputs=False)
        return {
            name: np.array(results[port])
            for port in self.compiled.outputs
            for name in port.get_names()
        }

    def _layers(self) -> list[tuple[list[str], str, str]]:
        """Returns, for each executed layer, its ONNX names, its precision and its kind."""
        found = []
        for layer in self.compiled.get_runtime_model().get_ops():
            info = layer.get_rt_info()
            told = {key: _info(info, key) for key in _KEYS}
            names = [n for n in told["originalLayersNames"].split(",") if n]
            if names and told["layerType"] not in _IDLE:
                found.append((names, told["runtimePrecision"], told["layerType"]))
        return found

    def fusions(self) -> list[list[str]]:
        """Returns the sets of ONNX nodes that run as one layer."""
        return [names for names, _, _ in self._layers() if len(names) > 1]

    def precisions(self) -> dict[str, str]:
        """Returns the type each node computes in, by node name."""
        return {
            name: precision
            for names, precision, _ in self._layers()
            for name in names
            if precision in ROUNDOFF
        }

    def save(self, folder: Path) -> None:
        """Writes the compiled model."""
        blob = self.compiled.export_model()
        (Path(folder) / "model.blob").write_bytes(
            blob.getvalue() if hasattr(blob, "getvalue") else bytes(blob)
        )

    def close(self) -> None:
        """Frees the compiled model."""
        del self.request, self.compiled


_KEYS = ("originalLayersNames", "runtimePrecision", "layerType")


def _info(info: Any, key: str) -> str:
    try:
        value = info[key]
    except (KeyError, RuntimeError):
        return ""
    return str(value.astype(str)) if hasattr(value, "astype") else str(value)

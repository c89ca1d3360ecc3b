"""The faults that are measured: planted in generated and published models, and a real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[1]
sys.path.extend(str(ROOT / each) for each in ("taps", "bisect", "tests"))

from benchmarks.check_candidate import plant  # noqa: E402
from debugtaps.store import write_npz  # noqa: E402
from support.zoo import transformer_nodes  # noqa: E402
from tapsect.published import fetch, sample  # noqa: E402
from tapsect.published_faults import layernorm_keepdims0  # noqa: E402

__all__ = ["SCALE", "Task", "every_tensor", "generated", "large", "published", "real"]

SCALE = 1.05
DETECTOR = "ch_PP-OCRv4_det_infer"
WIDTH = 4096
"""Of the products of the large model: 64 MiB of weights each."""


@dataclass(frozen=True)
class Task:
    """A model with a fault, on disk.

    Attributes:
        title: For the table.
        folder, model, inputs: Where it lies.
        nodes: How many operators it has.
        culprits: Any of these is right.
        planted: The node whose output is scaled; none where the engine's own fault is looked for.
    """

    title: str
    folder: Path
    model: Path
    inputs: Path
    nodes: int
    culprits: frozenset[str]
    planted: str = ""

    @property
    def engine(self) -> list[str]:
        """Returns the words that name the engine with the fault to tapsect."""
        if not self.planted:
            return ["--engine", "ort"]
        fault = json.dumps([{"kind": "value", "nodes": [self.planted], "scale": SCALE}])
        return ["--engine", "planted", "--engine-option", f"faults={fault}"]

    def counting(self, counter: Path) -> list[str]:
        """Returns the words that name the same engine where it counts operators."""
        kind = "CountedPlanted" if self.planted else "CountedOrt"
        engine = Path(__file__).with_name("counted_engine.py")
        return [
            *("--engine", f"{engine}:{kind}", "--engine-option", f"log={json.dumps(str(counter))}"),
            *self.engine[2:],
        ]

    def golden(self) -> Path:
        """Writes the values of every tensor, as a rival's user has to, and returns the file."""
        path = self.folder / "golden.npz"
        if not path.exists():
            with np.load(self.inputs) as feeds:  # noqa: TID251 - just written
                given = dict(feeds)
            write_npz(path, {**given, **every_tensor(onnx.load(self.model), given)})
        return path

    def faulty(self) -> Path:
        """Writes the model as the engine computes it, and returns the file."""
        path = self.folder / "faulty.onnx"
        model = onnx.load(self.model)
        if self.planted:
            plant(model.graph, self.planted, SCALE)
        onnx.save(model, path)
        return path


def generated(folder: Path, nodes: int) -> Task:
    """Returns a transformer with one wrong product in the middle."""
    built = transformer_nodes(nodes)
    model, inputs = built.save(folder)
    products = [n.name for n in built.model.graph.node if n.op_type == "MatMul" and "mlp" in n.name]
    node = products[len(products) // 2]
    return Task("transformer", folder, model, inputs, len(built.names), frozenset([node]), node)


def published(folder: Path) -> Task:
    """Returns a published detector with one wrong convolution in the middle."""
    folder.mkdir()
    model = folder / "model.onnx"
    model.write_bytes(fetch(DETECTOR).read_bytes())
    feeds = sample(DETECTOR)
    proto = onnx.load(model)
    names = [n.name for n in proto.graph.node if n.op_type == "Conv"]
    node, count = names[len(names) // 2], _operators(proto)
    return _task("published detector", folder, model, feeds, count, [node], node)


def real(folder: Path) -> Task:
    """Returns a fault that ONNX Runtime has: a fusion into a layer norm that is none."""
    folder.mkdir()
    proto, feeds = layernorm_keepdims0()
    model = folder / "model.onnx"
    onnx.save(proto, model)
    norm = [n.name for n in proto.graph.node if n.name.startswith("norm/")]
    return _task("ONNX Runtime's own fault", folder, model, feeds, len(proto.graph.node), norm)


def large(folder: Path, gibibytes: float) -> Task:
    """Returns a chain of products whose weights fill an external file of that size."""
    folder.mkdir()
    size = WIDTH * WIDTH * 4
    row = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
    nodes, weights, count = [], [], round(gibibytes * 2**30 / size)
    with (folder / "model.data").open("wb") as file:
        for n in range(count):
            tensor = TensorProto(name=f"w{n}", data_type=1, dims=[WIDTH, WIDTH], raw_data=b"-")
            onnx.external_data_helper.set_external_data(tensor, "model.data", n * size, size)
            tensor.ClearField("raw_data")
            weights.append(tensor)
            file.write(np.roll(row, n, axis=1).astype(np.float32).tobytes())
            read = f"t{n - 1}" if n else "x"
            nodes.append(helper.make_node("MatMul", [read, f"w{n}"], [f"m{n}"], name=f"product{n}"))
            nodes.append(helper.make_node("Tanh", [f"m{n}"], [f"t{n}"], name=f"tanh{n}"))
    ends = [helper.make_tensor_value_info(n, 1, [4, WIDTH]) for n in ("x", f"t{count - 1}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    model = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    node, feeds = f"product{count // 2}", {"x": row[:4].astype(np.float32)}
    title = f"{gibibytes:g} GiB of weights"
    return _task(title, folder, model, feeds, len(nodes), [node], node)


def _task(
    title: str, folder: Path, model: Path, feeds: Mapping[str, np.ndarray], nodes: int,
    culprits: list[str], planted: str = "",
) -> Task:  # fmt: skip
    write_npz(folder / "inputs.npz", feeds)
    inputs = folder / "inputs.npz"
    return Task(title, folder, model, inputs, nodes, frozenset(culprits), planted)


def _operators(model: onnx.ModelProto) -> int:
    return sum(n.op_type != "Constant" for n in model.graph.node)


def every_tensor(given: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the golden values of all tensors (reference: optimisation off)."""
    model = onnx.shape_inference.infer_shapes(given)
    have = {o.name for o in model.graph.output}
    made = {t for n in model.graph.node for t in n.output if n.op_type != "Constant"}
    kept = [i for i in model.graph.value_info if i.name not in have and i.name in made]
    model.graph.output.extend(kept)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))

"""A small builder of ONNX models, so that a test model reads like the network it stands for.

``Net`` keeps nodes in the order they were written (which is a topological order), gives each a
readable unique name (``scope/Op``, ``scope/Op_1`` …), names tensors after their producer, and
draws weights from one seeded generator, scaled so that activations stay near 1.

>>> net = Net()
>>> x = net.input("x", (1, 4))
>>> net.output(net.op("Relu", net.linear(x, 4, 3)))
>>> [node.name for node in net.build().model.graph.node]
['MatMul', 'Add', 'Relu']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from debugtaps.store import write_npz

Array = npt.NDArray[Any]
Shape = Sequence[int | str]

CONTRIB = "com.microsoft"
ML = "ai.onnx.ml"

__all__ = ["CONTRIB", "ML", "Array", "Builder", "Built", "Net", "Shape", "ir_version_for"]


@dataclass(frozen=True, slots=True)
class Built:
    """A model and one sample of inputs for it."""

    model: onnx.ModelProto
    feeds: dict[str, Array]

    @property
    def names(self) -> list[str]:
        """Returns the node names in model order."""
        return [node.name for node in self.model.graph.node]

    def save(self, folder: Path, *, external: bool = False) -> tuple[Path, Path]:
        """Writes ``model.onnx`` and ``inputs.npz`` and returns both paths.

        With ``external`` weights of about 100 bytes and more go to ``model.weights`` beside it
        (runtimes refuse a model whose shape operands lie outside).
        """
        folder.mkdir(parents=True, exist_ok=True)
        model, inputs = folder / "model.onnx", folder / "inputs.npz"
        proto = onnx.ModelProto()
        proto.CopyFrom(self.model)
        onnx.save(
            proto,
            model,
            save_as_external_data=external,
            location="model.weights" if external else None,
            size_threshold=128,
        )
        write_npz(inputs, self.feeds)
        return model, inputs


Builder = Callable[[], Built]


def ir_version_for(opset: int) -> int:
    """Returns the IR version of the first ONNX release that knew ``opset``."""
    table = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8}
    later = {19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 11}
    return {**table, **later}[opset]


class Net:
    """Collects nodes, weights and inputs of one model."""

    def __init__(self, *, seed: int = 0, opset: int = 17, ir_version: int | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.ir_version = ir_version or ir_version_for(opset)
        self.domains: dict[str, int] = {"": opset}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.feeds: dict[str, Array] = {}
        self.expose_weights = False
        """Whether initializers are graph inputs as well, as IR version 3 has it in any case."""
        self._seen: Counter[str] = Counter()
        self._scope: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Puts ``name/`` before the names made inside."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def input(self, name: str, shape: Shape, value: Any = None, *, dtype: Any = np.float32) -> str:
        """Declares a graph input and its sample; symbolic dimensions take the sample's size.

        Without ``value`` the sample is standard normal noise (all dimensions must be numbers).
        """
        if value is None:
            value = self.rng.standard_normal([int(d) for d in shape])
        array = np.asarray(value, dtype)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        self.feeds[name] = array
        return name

    def const(self, value: Any, dtype: Any = np.float32, *, name: str = "const") -> str:
        """Adds an initializer and returns its name."""
        unique = self._unique(name)
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), unique))
        return unique

    def ints(self, *values: int, name: str = "ints") -> str:
        """Adds a rank-1 int64 initializer (a shape, axes, pads …)."""
        return self.const(values, np.int64, name=name)

    def weight(self, *shape: int, fan_in: int | None = None, name: str = "weight") -> str:
        """Adds random weights with variance 1 / fan_in (the product of all but the first)."""
        fan = fan_in or int(np.prod(shape[1:])) or 1
        return self.const(self.rng.standard_normal(shape) / np.sqrt(fan), name=name)

    def op(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output and returns the tensor's name."""
        return self.multi(op_type, *inputs, domain=domain, **attributes)[0]

    def multi(
        self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node with several outputs and returns the tensors' names."""
        name = self._unique(op_type)
        made = [f"{name}_output_{i}" for i in range(outputs)]
        if domain:
            self.domains.setdefault(domain, 1)
        node = helper.make_node(op_type, list(inputs), made, name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return made

    def output(self, *names: str, dtype: Any = None, shape: Shape | None = None) -> None:
        """Makes tensors graph outputs; types are inferred unless ``dtype`` is given."""
        for name in names:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if dtype is not None else 0
            info = helper.make_tensor_value_info(name, kind, shape) if kind else None
            self.outputs.append(info or onnx.ValueInfoProto(name=name))

    def conv(self, x: str, cin: int, cout: int, *, kernel: int = 3, stride: int = 1) -> str:
        """Adds a 2-d convolution that keeps the size (divided by ``stride``)."""
        weight = self.weight(cout, cin, kernel, kernel, name="Conv.weight")
        bias = self.const(0.1 * self.rng.standard_normal(cout), name="Conv.bias")
        return self.op(
            "Conv", x, weight, bias,
            kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4, strides=[stride, stride],
        )  # fmt: skip

    def linear(self, x: str, cin: int, cout: int) -> str:
        """Adds MatMul and Add, as exporters write a linear layer on more than two axes."""
        weight = self.weight(cin, cout, fan_in=cin, name="MatMul.weight")
        bias = self.const(0.1 * self.rng.standard_normal(cout), name="Add.bias")
        return self.op("Add", self.op("MatMul", x, weight), bias)

    def batch_norm(self, x: str, channels: int) -> str:
        """Adds BatchNormalization with plausible statistics."""
        near_one = [self.const(1 + 0.1 * self.rng.standard_normal(channels)) for _ in range(2)]
        near_zero = [self.const(0.1 * self.rng.standard_normal(channels)) for _ in range(2)]
        scale, var = near_one
        bias, mean = near_zero
        return self.op("BatchNormalization", x, scale, bias, mean, var)

    def layer_norm(self, x: str, dim: int, *, epsilon: float = 1e-5) -> str:
        """Adds a layer norm as the nine nodes that exporters decompose it into."""
        mean = self._mean(x)
        centred = self.op("Sub", x, mean)
        var = self._mean(self.op("Pow", centred, self.const(2.0, name="two")))
        std = self.op("Sqrt", self.op("Add", var, self.const(epsilon, name="epsilon")))
        scale = self.const(1 + 0.1 * self.rng.standard_normal(dim), name="scale")
        bias = self.const(0.1 * self.rng.standard_normal(dim), name="bias")
        return self.op("Add", self.op("Mul", self.op("Div", centred, std), scale), bias)

    def gelu(self, x: str) -> str:
        """Adds GELU as the five nodes around Erf that exporters decompose it into."""
        erf = self.op("Erf", self.op("Div", x, self.const(np.sqrt(2.0), name="sqrt2")))
        inner = self.op("Mul", x, self.op("Add", erf, self.const(1.0, name="one")))
        return self.op("Mul", inner, self.const(0.5, name="half"))

    def graph(self, *, infer: bool = True, keep_value_info: bool = True) -> onnx.ModelProto:
        """Returns the model without looking at the sample."""
        weights = self.initializers if self.ir_version < 4 or self.expose_weights else []
        declared = [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [*self.inputs, *declared],
            self.outputs,
            initializer=self.initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, v) for d, v in self.domains.items()],
            functions=self.functions,
            ir_version=self.ir_version,
            producer_name="tapsect-tests",
        )
        if infer:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        untyped = [o.name for o in model.graph.output if not o.HasField("type")]
        if untyped:
            raise ValueError(f"outputs {untyped} have no inferred type: pass dtype= to output()")
        if not keep_value_info:
            del model.graph.value_info[:]
        return model

    def build(self, *, infer: bool = True, keep_value_info: bool = True) -> Built:
        """Returns the model and its sample."""
        return Built(self.graph(infer=infer, keep_value_info=keep_value_info), self.feeds)

    def _mean(self, x: str) -> str:
        if self.opset < 18:
            return self.op("ReduceMean", x, axes=[-1])
        return self.op("ReduceMean", x, self.ints(-1, name="axes"))

    def _unique(self, name: str) -> str:
        full = "/".join([*self._scope, name])
        count = self._seen[full]
        self._seen[full] += 1
        return f"{full}_{count}" if count else full


def _element(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


assert _element(np.float32) == TensorProto.FLOAT  # the mapping the builder stands on

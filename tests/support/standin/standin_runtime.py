"""The runtime half of the stand-in: a plan is run by ONNX Runtime over addresses."""

import ctypes
import json
import math

import numpy as np
import onnx
import onnxruntime
import standin_script
from onnx import helper, numpy_helper
from standin_words import _TYPES, Severity, TensorIOMode, TensorLocation


class Runtime:
    def __init__(self, logger):
        self.logger = logger

    def deserialize_cuda_engine(self, data):
        if "refuse" in standin_script.read():
            self.logger.log(Severity.ERROR, standin_script.read()["refuse"])
            return None
        try:
            return Engine(json.loads(bytes(data)))
        except ValueError:
            self.logger.log(Severity.ERROR, "Serialization assertion header.magicTag failed.")
            return None


class Engine:
    def __init__(self, plan):
        self.plan = plan
        self.model = onnx.load_from_string(bytes.fromhex(plan["model"]))
        graph = onnx.shape_inference.infer_shapes(self.model).graph
        self.values = {v.name: v.type.tensor_type for v in [*graph.input, *graph.output]}
        self.kinds = {v.name: v.type.tensor_type for v in graph.value_info} | self.values
        self.names, self.num_io_tensors = list(self.values), len(self.values)
        self.inputs = [v.name for v in graph.input]
        self.num_optimization_profiles = max(1, len(plan["profiles"]))

    def get_tensor_name(self, number):
        return self.names[number]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return _TYPES[self.values[name].elem_type]

    def get_tensor_location(self, name):
        return TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name, number):
        profiles = self.plan["profiles"]
        if profiles and name in profiles[number]:
            return profiles[number][name]
        return [[d.dim_value for d in self.values[name].shape.dim]] * 3

    def create_execution_context(self):
        return Context(self)

    def create_engine_inspector(self):
        return Inspector()


class Inspector:
    execution_context = None

    def get_engine_information(self, layout):
        assert self.execution_context is not None
        layer = {"Name": "k", "LayerType": "gemm", "Metadata": "[ONNX Layer: told]", "Inputs": []}
        return json.dumps({"Layers": [layer]})


class Context:
    def __init__(self, engine):
        self.engine, self.shapes, self.addresses, self.allocators = engine, {}, {}, {}
        self.listener, self.heard = None, set()
        self.profile = (engine.plan["profiles"] or [None])[0]

    def set_debug_listener(self, listener):
        self.listener = listener

    def set_tensor_debug_state(self, name, on):
        self.heard.add(name)

    def set_optimization_profile_async(self, number, stream):
        self.profile = self.engine.plan["profiles"][number]
        return True

    def set_input_shape(self, name, shape):
        profiles = self.engine.plan["profiles"]
        if profiles and name in profiles[0]:
            low, _, high = self.profile[name]
            if not all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)):
                return False
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name, allocator):
        assert allocator.ready
        self.allocators[name] = allocator

    def infer_shapes(self):
        return [name for name in self.engine.inputs if name not in self.shapes]

    def get_tensor_shape(self, name):
        return [d.dim_value or -1 for d in self.engine.values[name].shape.dim]

    def execute_async_v3(self, stream):
        standin_script.at("run")
        script, feeds = standin_script.read(), {}
        for name in self.engine.inputs:
            kind = self.engine.values[name].elem_type
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            size = math.prod(self.shapes[name]) * dtype.itemsize
            data = ctypes.string_at(self.addresses[name], size)
            feeds[name] = np.frombuffer(data, dtype).reshape(self.shapes[name])
        for name, value in self._computed(feeds, script).items():
            value = np.array(value, order="C")
            if name in self.heard and not script.get("deaf"):
                kind = _TYPES[self.engine.kinds[name].elem_type]
                self.listener.process_debug_tensor(
                    value.ctypes.data, TensorLocation.HOST, kind, value.shape, name, stream
                )
            if name in self.allocators:
                allocator = self.allocators[name]
                place = allocator.reallocate_output_async(name, 0, value.nbytes, 256, stream)
                allocator.notify_shape(name, value.shape)
                if not place:
                    return False
                if name not in script.get("silent", ()):
                    ctypes.memmove(place, value.ctypes.data, value.nbytes)
        return True

    def _computed(self, feeds, script):
        model = onnx.ModelProto()
        model.CopyFrom(self.engine.model)
        for name in self.engine.plan["debug"]:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
        for node, tactic in self.engine.plan["tactics"].items():
            factor = script.get("bad", {}).get(str(tactic))
            if factor is not None:
                _spoil(model.graph, node, factor)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))


def _spoil(graph, name, factor):
    """Puts an error behind a node: what reads it, and the outputs, see it."""
    at = next(i for i, node in enumerate(graph.node) if node.name == name)
    node = graph.node[at]
    true, node.output[0] = node.output[0], node.output[0] + "__true"
    graph.initializer.append(numpy_helper.from_array(np.array(factor, np.float32), name + "__f"))
    spoiled = helper.make_node("Mul", [true + "__true", name + "__f"], [true])
    graph.node.insert(at + 1, spoiled)

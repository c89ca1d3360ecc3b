"""A stand-in for TensorRT 10.8 and later: the names the adapter uses, acted by ONNX Runtime.

It builds and runs what the adapter asks for, over host memory, and does what ``standin_script``
says.  What it proves is the adapter's side: calls in order, addresses, shapes, poison, errors.
"""

import json

import onnx
import standin_script
from standin_cache import TimingCache, TimingCacheKey, TimingCacheValue  # noqa: F401
from standin_runtime import Runtime  # noqa: F401
from standin_words import *  # noqa: F403
from standin_words import _TYPES, BuilderFlag, DataType, LayerType, ProfilingVerbosity, Severity

__version__ = "10.99.0"


class ILogger:
    def __init__(self):
        self.ready = True


class _Overridden:
    def __init__(self):
        self.ready = True  # a subclass that does not call this is refused by the real one


class IProgressMonitor(_Overridden): ...


class IOutputAllocator(_Overridden): ...


class IDebugListener(_Overridden): ...


class Tensor:
    def __init__(self, name, elem, shape):
        self.name, self.dtype, self.shape = name, _TYPES.get(elem, DataType.FLOAT), shape
        self.is_shape_tensor = False


class ILayer:
    """One layer; 10.x has a precision of its own."""

    def __init__(self, node, tensors):
        self.name, self.metadata = node.name, f"[ONNX Layer: {node.name}]"
        kinds = {"Conv": LayerType.CONVOLUTION, "MatMul": LayerType.MATRIX_MULTIPLY}
        self.type, self.tensors = kinds.get(node.op_type, LayerType.OTHER), tensors
        self.num_outputs, self.precision, self.asked = len(tensors), None, {}

    def get_output(self, number):
        return self.tensors[number]

    def set_output_type(self, number, dtype):
        self.asked[number] = dtype


class Network:
    def __init__(self, flags):
        self.flags, self.layers, self.inputs, self.debug = flags, [], [], []
        self.num_inputs = self.num_outputs = 0
        self.model = None

    def __iter__(self):
        return iter(self.layers)

    def __len__(self):
        return len(self.layers)

    def get_input(self, number):
        return self.inputs[number]

    def mark_debug(self, tensor):
        self.debug.append(tensor.name)
        return True


class OnnxParser:
    num_errors = 0

    def __init__(self, network, logger):
        self.network = network

    def supports_operator(self, op):
        return op in ("Relu", "MatMul", "Add")

    def parse(self, data, path=None):
        model = onnx.load(path) if path else onnx.load_from_string(data)
        known = onnx.shape_inference.infer_shapes(model).graph
        types = {v.name: v.type.tensor_type for v in [*known.value_info, *known.output]}
        net = self.network
        net.model, net.num_outputs = model, len(model.graph.output)
        for value in model.graph.input:
            kind = value.type.tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
            net.inputs.append(Tensor(value.name, kind.elem_type, shape))
        net.num_inputs = len(net.inputs)
        for node in model.graph.node:
            tensors = [Tensor(o, types[o].elem_type if o in types else 1, []) for o in node.output]
            net.layers.append(ILayer(node, tensors))
        return True


class IBuilderConfig:
    builder_optimization_level = 3
    max_num_tactics = -1
    progress_monitor = None
    profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY

    def __init__(self):
        self.flags, self.profiles, self.cache = {BuilderFlag.TF32}, [], None

    def set_flag(self, flag):
        self.flags.add(flag)

    def clear_flag(self, flag):
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool, size): ...

    def set_tactic_sources(self, mask): ...

    def create_timing_cache(self, data):
        return TimingCache(data)

    def set_timing_cache(self, cache, ignore_mismatch):
        self.cache = cache
        return True

    def add_optimization_profile(self, profile):
        self.profiles.append(profile)
        return len(self.profiles) - 1


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, low, usual, high):
        self.shapes[name] = (low, usual, high)

    set_shape_input = set_shape


def key_of(node):
    return f"0x{abs(hash_of(node)):032x}"


def hash_of(text):
    return int.from_bytes(text.encode()[:15], "big")


class Builder:
    def __init__(self, logger):
        assert logger.ready
        self.logger = logger

    def create_network(self, flags):
        return Network(flags)

    def create_builder_config(self):
        return IBuilderConfig()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        standin_script.at("build")
        script = standin_script.read()
        if "fail" in script:
            self.logger.log(Severity.ERROR, script["fail"])
            return None
        if config.progress_monitor is not None:
            config.progress_monitor.phase_start("Building engine", None, 1)
            if not config.progress_monitor.step_complete("Timing", 0):
                self.logger.log(Severity.ERROR, "Error Code 7: BuildCanceled")
                return None
        number = standin_script.count_build()
        tactics = {}
        for node, sequence in script.get("choose", {}).items():
            tactic, key = sequence[min(number, len(sequence) - 1)], key_of(node)
            if config.cache is not None:
                tactic = config.cache.entries.setdefault(key, tactic)
            tactics[node] = tactic
            self.logger.log(
                Severity.VERBOSE,
                f"Autotuning op {node}(key: {key}):\n 0, 0.1, 0.1, 0.1, kernel_good, 0x1\n"
                f" 1, 0.1, 0.1, 0.1, kernel_bad, 0x2\n(tactic hash, cost(in ms)): {tactic:#x}, 0.1",
            )
        self.logger.log(Severity.VERBOSE, _plan_text(network, script))
        profiles = [profile.shapes for profile in config.profiles]
        plan = {"model": network.model.SerializeToString().hex(), "tactics": tactics,
                "debug": network.debug, "profiles": profiles}  # fmt: skip
        return json.dumps(plan).encode()


def _plan_text(network, script):
    groups = [list(group) for group in script.get("fuse", [])]
    fused = {name for group in groups for name in group}
    groups += [[layer.name] for layer in network if layer.name not in fused]
    kinds = {layer.name: layer.type for layer in network}
    lines = ["Layers:"]
    for number, group in enumerate(groups):
        gemm = any(kinds.get(name) == LayerType.MATRIX_MULTIPLY for name in group)
        metadata = "\x1f".join(f"[ONNX Layer: {name}]" for name in group)
        lines.append(
            f"Name: k{number}, LayerType: {'gemm' if gemm else 'kgen'}, Inputs: [ {{ Name: a, "
            "Dimensions: [2,3], Format/Datatype: Float }], Outputs: [ { Name: b, Dimensions: "
            f"[2,3], Format/Datatype: Float }}], TacticName: t{number}, StreamId: 0, "
            f"Metadata: {metadata}"
        )
    return "\n".join(lines)


def get_plugin_registry():
    return _REGISTRY


class _Registry:
    def load_library(self, path):
        return None


_REGISTRY = _Registry()


def init_libnvinfer_plugins(logger, namespace):
    return True

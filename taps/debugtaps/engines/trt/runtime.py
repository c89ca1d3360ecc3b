"""Running a TensorRT plan: profiles, output allocator, debug tensors.

Works on the modules it is given: TensorRT, and the CUDA runtime of ``cuda-python``.
Python 3.8, numpy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Dict, Tuple

import numpy as np

from debugtaps.engines.trt.log import NoMemory, TensorRtError, errors_of
from debugtaps.engines.trt.memory import CudaError, Memory
from debugtaps.engines.trt.settings import BadOption, Profile, covers

__all__ = ["Runner", "numpy_type"]

_PLAIN = {
    "FLOAT": "float32", "HALF": "float16", "INT32": "int32", "INT64": "int64", "INT8": "int8",
    "UINT8": "uint8", "BOOL": "bool",
}  # fmt: skip
_ODD = {"BF16": "bfloat16", "FP8": "float8_e4m3fn", "E8M0": "float8_e8m0fnu"}


def numpy_type(dtype: Any) -> Any:
    """Returns the numpy type of a TensorRT type; bits tagged with a name where numpy has none.

    Raises:
        TensorRtError: Its elements are smaller than a byte.
    """
    name = getattr(dtype, "name", str(dtype))
    if name in _PLAIN:
        return np.dtype(_PLAIN[name])
    if name in _ODD:
        return np.dtype([(_ODD[name], "u2" if name == "BF16" else "u1")])
    raise TensorRtError("tensors of type %s cannot be read" % name)


def _allocator(trt: Any, memory: Memory) -> Any:
    """Returns an allocator for outputs, whose shapes may be known only when they are computed."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.places: Dict[str, int] = {}
            self.shapes: Dict[str, Tuple[int, ...]] = {}

        def reallocate_output(self, name: str, memory_: int, size: int, alignment: int) -> int:
            try:
                self.places[name] = memory.take(size)
            except (NoMemory, CudaError) as error:  # nothing may be raised through TensorRT
                print("no memory for %r: %s" % (name, error), flush=True)  # noqa: T201
                return 0
            return self.places[name]

        def reallocate_output_async(
            self, name: str, memory_: int, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(name, memory_, size, alignment)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shapes[name] = tuple(int(size) for size in shape)

    return Allocator()


def _listener(trt: Any, memory: Memory) -> Any:
    """Returns what hears debug tensors; their memory is valid during the call only."""

    class Listener(trt.IDebugListener):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IDebugListener.__init__(self)
            self.seen: Dict[str, Any] = {}

        def process_debug_tensor(
            self, addr: int, location: Any, type_: Any, shape: Any, name: str, stream: int
        ) -> bool:
            try:
                sizes, dtype = tuple(int(size) for size in shape), numpy_type(type_)
                if location == trt.TensorLocation.HOST:
                    array = np.empty(sizes, dtype)
                    ctypes.memmove(array.ctypes.data, addr, array.nbytes)
                    self.seen[name] = array
                else:
                    memory.wait()
                    self.seen[name] = memory.download(addr, sizes, dtype)
            except TensorRtError as error:
                print("debug tensor %r lost: %s" % (name, error), flush=True)  # noqa: T201
            return True

    return Listener()


def _unloadable(errors: Sequence[str]) -> Exception:
    """Returns why a plan was not loaded; a GPU that TensorRT does not serve is no fault of it."""
    said = " ".join(errors[-1].split()) if errors else "it is damaged, or another version's"
    if "cannot run on this GPU" in said:
        return BadOption("TensorRT does not serve this GPU: %s" % said)
    return TensorRtError("the plan cannot be read: %s" % said)


def _three(shapes: Sequence[Sequence[int]]) -> Any:
    return tuple(tuple(int(size) for size in shape) for shape in shapes)


class Runner:
    """A deserialised plan, ready to run.

    Args:
        trt: TensorRT.
        cuda: The CUDA runtime.
        logger: The process's logger, whose ``lines`` hold what it heard last.
        plan: The serialised engine.
        debug: Tensors to be heard by a debug listener.
    """

    def __init__(
        self, trt: Any, cuda: Any, logger: Any, plan: bytes, *,
        debug: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.trt, self.debug = trt, tuple(debug)
        self.runtime = trt.Runtime(logger)  # lives as long as the engine
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        if self.engine is None:
            raise _unloadable(errors_of(logger.lines))
        self.memory = Memory(cuda)
        self.context = self._context()
        if self.context is None:
            raise NoMemory("no execution context: out of memory on the GPU")
        count = self.engine.num_io_tensors
        self.names = [self.engine.get_tensor_name(number) for number in range(count)]
        mode = self.trt.TensorIOMode.INPUT
        self.inputs = [n for n in self.names if self.engine.get_tensor_mode(n) == mode]
        self.outputs = [n for n in self.names if n not in self.inputs]
        self.profiles = self._profiles_of_plan()
        self.listener = _listener(trt, self.memory) if debug else None
        if self.listener is not None:
            self.context.set_debug_listener(self.listener)
            for name in self.debug:
                self.context.set_tensor_debug_state(name, True)  # noqa: FBT003

    def _context(self) -> Any:
        if not hasattr(self.trt, "DynamicShapesKernelSpecializationStrategy"):
            return self.engine.create_execution_context()
        # TensorRT-RTX exchanges kernels in the background unless it is told not to: two runs of
        # one build would then be two programs.
        settings = self.engine.create_runtime_config()
        strategy = self.trt.DynamicShapesKernelSpecializationStrategy
        settings.dynamic_shapes_kernel_specialization_strategy = strategy.EAGER
        return self.engine.create_execution_context(settings)

    def run(self, feeds: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns every output and every debug tensor that was heard.

        Raises:
            BadOption: The data lie outside every profile.
            TensorRtError: TensorRT or CUDA failed.
        """
        try:
            self._choose_profile(feeds)
            kept = [self._give(name, feeds) for name in self.inputs]
            allocator = _allocator(self.trt, self.memory)
            missing = self.context.infer_shapes()
            if missing:
                raise TensorRtError("shapes of %s are not known" % ", ".join(missing))
            host = {name: self._take(name, allocator) for name in self.outputs}
            if self.listener is not None:
                self.listener.seen.clear()
            if not self.context.execute_async_v3(self.memory.stream):
                raise TensorRtError("execute_async_v3 failed; the log says why")
            self.memory.wait()
            del kept
            found = {name: self._fetch(name, host[name], allocator) for name in self.outputs}
            if self.listener is not None:
                found.update(self.listener.seen)
            return found
        finally:
            self.memory.free()

    def _profiles_of_plan(self) -> Tuple[Profile, ...]:
        """Returns the plan's own profiles: what its inputs on the device may be shaped like."""
        count, device = self.engine.num_optimization_profiles, self.trt.TensorLocation.DEVICE
        names = [n for n in self.inputs if self.engine.get_tensor_location(n) == device]
        return tuple(
            {n: _three(self.engine.get_tensor_profile_shape(n, number)) for n in names}
            for number in range(count)
        )

    def _choose_profile(self, feeds: Mapping[str, Any]) -> None:
        shapes = {name: list(np.shape(feeds[name])) for name in self.inputs if name in feeds}
        ranges = {n: {"min": shape, "opt": shape, "max": shape} for n, shape in shapes.items()}
        reasons = [covers(profile, ranges) for profile in self.profiles]
        if reasons and all(reasons):
            raise BadOption("%s; give a profile that holds the data" % reasons[0])
        if len(reasons) > 1:
            self.context.set_optimization_profile_async(reasons.index(None), self.memory.stream)
            self.memory.wait()

    def _give(self, name: str, feeds: Mapping[str, Any]) -> Any:
        """Hands one input to the context; returns what must live until the run is over."""
        if name not in feeds:
            raise TensorRtError("input %r was not fed" % name)
        wanted = numpy_type(self.engine.get_tensor_dtype(name))
        array = np.asarray(feeds[name])
        if array.dtype == np.float64 and wanted == np.float32:
            array = array.astype(wanted)  # TensorRT has no double: it made the input a float
        if array.dtype != wanted and array.dtype.itemsize == wanted.itemsize and wanted.names:
            array = array.view(wanted)
        if array.dtype != wanted:
            raise TensorRtError("input %r is %s, the plan reads %s" % (name, array.dtype, wanted))
        array = np.ascontiguousarray(array).reshape(array.shape)
        if not self.context.set_input_shape(name, tuple(array.shape)):
            raise TensorRtError("input %r: the plan takes no %s" % (name, list(array.shape)))
        on_host = self.engine.get_tensor_location(name) == self.trt.TensorLocation.HOST
        address = array.ctypes.data if on_host else self.memory.upload(array)
        if not self.context.set_tensor_address(name, address):
            raise TensorRtError("input %r: its address is not taken" % name)
        return array

    def _take(self, name: str, allocator: Any) -> Any:
        """Gives one output a place: host memory for a shape, else the allocator's."""
        if self.engine.get_tensor_location(name) != self.trt.TensorLocation.HOST:
            self.context.set_output_allocator(name, allocator)
            return None
        shape = tuple(self.context.get_tensor_shape(name))
        array = np.full(shape, -1, numpy_type(self.engine.get_tensor_dtype(name)))
        self.context.set_tensor_address(name, array.ctypes.data)
        return array

    def _fetch(self, name: str, host: Any, allocator: Any) -> Any:
        if host is not None:
            return host
        if name not in allocator.places:
            raise TensorRtError("output %r was never computed" % name)
        shape = allocator.shapes.get(name)
        if shape is None:
            shape = tuple(self.context.get_tensor_shape(name))
        dtype = numpy_type(self.engine.get_tensor_dtype(name))
        return self.memory.download(allocator.places[name], shape, dtype)

    def inspect(self) -> str:
        """Returns what the engine inspector says, as JSON."""
        inspector = self.engine.create_engine_inspector()
        inspector.execution_context = self.context
        told = inspector.get_engine_information(self.trt.LayerInformationFormat.JSON)
        return str(told)

    def close(self) -> None:
        """Frees context, engine and memory."""
        self.context = None
        self.engine = None
        self.memory.close()

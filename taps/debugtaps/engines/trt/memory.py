"""Memory of the GPU: one stream, allocations that are poisoned, copies; and whether there is a GPU.

Works on the CUDA runtime of ``cuda-python``.  What is allocated is filled with ones (NaN in
every float type), so that what a kernel does not write shows.  Python 3.8, numpy.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Sequence
from typing import Any, List, Optional

import numpy as np

from debugtaps.engines.trt.log import NoMemory, TensorRtError

__all__ = ["CudaError", "Memory", "cuda_runtime", "no_gpu"]

POISON = 0xFF


def no_gpu() -> Optional[str]:
    """Returns why nothing can run on a GPU here, or None when there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "this machine has no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return "the NVIDIA driver answers with error %d" % status
    return None if count.value else "the NVIDIA driver sees no GPU"


def cuda_runtime() -> Any:
    """Returns the CUDA runtime of ``cuda-python``, wherever this version of it keeps it.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ImportError:
        return importlib.import_module("cuda.cudart")


class CudaError(TensorRtError):
    """The CUDA runtime failed; the process cannot be used any more."""

    fatal = True


class Memory:
    """Memory of the device and one stream, freed together.

    Args:
        cuda: The CUDA runtime.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self.held: List[int] = []
        self.stream = int(self._call("cudaStreamCreate"))

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *rest = getattr(self.cuda, name)(*arguments)
        if int(status) == 0:
            return rest[0] if rest else None
        text = self.cuda.cudaGetErrorString(status)[1]
        told = text.decode() if isinstance(text, bytes) else str(text)
        if int(status) == 2:
            raise NoMemory("out of memory on the GPU: %s of %s" % (name, arguments[:1]))
        raise CudaError("%s: CUDA error %d, %s" % (name, int(status), told))

    def take(self, size: int) -> int:
        """Returns the address of ``size`` poisoned bytes; never null, even of none."""
        address = int(self._call("cudaMalloc", max(size, 1)))
        self.held.append(address)
        self._call("cudaMemsetAsync", address, POISON, max(size, 1), self.stream)
        return address

    def upload(self, array: Any) -> int:
        """Returns the address of a copy of a contiguous array."""
        address = self.take(array.nbytes)
        kind = self.cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        if array.nbytes:
            self._call(
                "cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, kind, self.stream
            )
        return address

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> Any:
        """Returns a copy of a tensor of the device."""
        array = np.empty(tuple(shape), dtype)
        kind = self.cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        if array.nbytes:
            self._call(
                "cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, kind, self.stream
            )
        self.wait()
        return array

    def wait(self) -> None:
        """Waits for the stream; what went wrong on it is raised here."""
        self._call("cudaStreamSynchronize", self.stream)

    def free(self) -> None:
        """Gives memory back; the stream stays."""
        held, self.held = self.held, []
        with contextlib.suppress(CudaError):  # after a first one: that one is told
            for address in held:
                self._call("cudaFree", address)

    def close(self) -> None:
        """Gives everything back."""
        self.free()
        with contextlib.suppress(CudaError):
            self._call("cudaStreamDestroy", self.stream)

"""A stand-in for the CUDA runtime: "device" memory is host memory that is asked for by address."""

import ctypes
import enum

import standin_script


class cudaMemcpyKind(enum.IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


ALLOCATED: dict[int, ctypes.Array[ctypes.c_char]] = {}
_STREAM = 7


def _status() -> int:
    return int(standin_script.read().get("cuda_error", 0))


def cudaStreamCreate():
    return 0, _STREAM


def cudaStreamDestroy(stream):
    return (0,)


def cudaStreamSynchronize(stream):
    assert stream == _STREAM
    return (_status(),)


def cudaMalloc(size):
    if size > standin_script.read().get("memory", 1 << 40):
        return 2, 0
    buffer = ctypes.create_string_buffer(size)
    address = ctypes.addressof(buffer)
    ALLOCATED[address] = buffer
    return 0, address


def cudaFree(address):
    return (0 if ALLOCATED.pop(address, None) is not None else 1,)


def cudaMemsetAsync(address, value, size, stream):
    assert len(ALLOCATED[address]) >= size
    ctypes.memset(address, value, size)
    return (0,)


def cudaMemcpyAsync(target, source, size, kind, stream):
    device = target if kind == cudaMemcpyKind.cudaMemcpyHostToDevice else source
    assert len(ALLOCATED[device]) >= size
    ctypes.memmove(target, source, size)
    return (0,)


def cudaGetErrorString(status):
    return 0, b"an illegal memory access was encountered"


def cudaGetDeviceProperties(device):
    return 0, type("Properties", (), {"name": b"Stand-in 1000"})()

"""GPU memory through the real CUDA runtime: needs a GPU and ``cuda-python``, no TensorRT."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from debugtaps.engines.trt.log import NoMemory
from debugtaps.engines.trt.memory import Memory, cuda_runtime, no_gpu


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_why() -> None:
    assert "NVIDIA driver" in (no_gpu() or "")


@pytest.fixture
def memory() -> Iterator[Memory]:
    if no_gpu() is not None:
        pytest.skip(f"no GPU: {no_gpu()}")
    made = Memory(cuda_runtime())
    yield made
    made.close()


@pytest.mark.gpu
@pytest.mark.engines
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1000, 257)])
def test_what_goes_there_comes_back(memory: Memory, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype).reshape(shape)
    found = memory.download(memory.upload(array), shape, array.dtype)
    assert found.shape == shape
    np.testing.assert_array_equal(found, array)


@pytest.mark.gpu
@pytest.mark.engines
def test_what_nobody_wrote_is_no_number(memory: Memory) -> None:
    place = memory.take(64)
    assert np.isnan(memory.download(place, (16,), np.float32)).all()
    assert np.isnan(memory.download(place, (32,), np.float16)).all()


@pytest.mark.gpu
@pytest.mark.engines
def test_too_much_is_no_memory_and_the_next_call_works(memory: Memory) -> None:
    with pytest.raises(NoMemory, match="out of memory on the GPU"):
        memory.take(1 << 50)
    assert memory.download(memory.upload(np.ones(3)), (3,), np.float64).sum() == 3


@pytest.mark.gpu
@pytest.mark.engines
def test_an_error_of_the_device_is_fatal(memory: Memory) -> None:
    code = (
        "import numpy as np\n"
        "from debugtaps.engines.trt.memory import CudaError, Memory, cuda_runtime\n"
        "memory = Memory(cuda_runtime())\n"
        "try:\n"
        "    memory.download(12345, (4,), np.float32)\n"
        "except CudaError as error:\n"
        "    print(error.fatal, error)\n"
        "memory.free()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True cudaMemcpyAsync: CUDA error"), done.stderr

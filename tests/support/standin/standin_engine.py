"""The engine of the project on the stand-in: all of it is real but the two modules it imports."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from debugtaps.engines.tensorrt import TensorRtEngine  # noqa: E402
from debugtaps.engines.trt.memory import cuda_runtime  # noqa: E402


class StandIn(TensorRtEngine):
    """TensorRT 10, as far as it is acted; no GPU is looked for."""

    def _gpu(self):
        return cuda_runtime()

"""What a finding says of the machine it was made on; nothing here can fail."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["environment"]

_PACKAGES = ("tapsect", "numpy", "onnx", "onnxruntime", "networkx", "ml_dtypes")
_GPU_SECONDS = 5.0
_GPU_QUERY = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def environment() -> dict[str, Any]:
    """Returns versions, platform, processor and, where ``nvidia-smi`` is found, the GPUs."""
    found: dict[str, Any] = {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "packages": {name: told for name in _PACKAGES if (told := _version(name))},
    }
    gpus = _gpus()
    if gpus:
        found["gpus"] = gpus
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """Returns the processor's name; which instructions it has decides which kernels run."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """Returns name, driver and memory of each GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, *_GPU_QUERY], capture_output=True, text=True, errors="replace",
            timeout=_GPU_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()][:16] * (
        done.returncode == 0
    )

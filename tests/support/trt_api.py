"""Which names of TensorRT the adapter uses, and the real bindings of a version to look them up in.

The bindings are wheels of a megabyte; the libraries behind them are hundreds.  The bindings need
nine plain symbols of those to be imported, so that libraries of nine empty functions do.  What is
named is found in the source: variables of the adapter bear the names of TensorRT's classes.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from debugtaps.engines import worker

__all__ = ["absent", "bindings", "names_used"]

CLASSES = {
    "builder": "Builder", "cache": "ITimingCache", "config": "IBuilderConfig",
    "context": "IExecutionContext", "engine": "ICudaEngine", "error": "ParserError",
    "inspector": "EngineInspector", "layer": "ILayer", "network": "INetworkDefinition",
    "parser": "OnnxParser", "profile": "IOptimizationProfile", "registry": "IPluginRegistry",
    "runtime": "Runtime", "tensor": "ITensor",
}  # fmt: skip
"""The adapter's variables and what they hold."""

OURS = {"ITimingCache.replay", "ITimingCache.save", "ITimingCache.tactics",
        "IOptimizationProfile.items"}  # fmt: skip
"""Members of our own objects that bear such a name."""

IN_TEXT = frozenset(
    {
        "BuilderFlag.DISABLE_COMPILATION_CACHE",
        "BuilderFlag.EDITABLE_TIMING_CACHE",
        "LayerType.CONVOLUTION",
        "LayerType.DECONVOLUTION",
        "LayerType.MATRIX_MULTIPLY",
    }
)
"""Names that are looked up by their text."""

SYMBOLS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL",
    "getBuilderPluginRegistry", "getNvOnnxParserVersion", "getPluginRegistry",
    "initLibNvInferPlugins",
)  # fmt: skip

_FOLDER = Path(worker.__file__).parent
_FILES = ("tensorrt", "trt/build", "trt/network", "trt/runtime", "trt/tactics", "trt/model")
_LOOK = """
import importlib, json, sys
trt = importlib.import_module(sys.argv[1])
def has(path):
    found = trt
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
print(json.dumps([trt.__version__, [path for path in json.loads(sys.argv[2]) if not has(path)]]))
"""


def _path(node: ast.expr) -> str | None:
    """Returns ``Class.member`` or ``Enum.MEMBER`` for an attribute of a known variable."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.insert(0, node.id)
    while parts[0] in ("self", "made", "owner"):
        parts.pop(0)
        if len(parts) < 2:
            return None
    if parts[0] == "trt":
        return ".".join(parts[1:])
    return ".".join([CLASSES[parts[0]], parts[1]]) if parts[0] in CLASSES else None


def names_used() -> frozenset[str]:
    """Returns every name of TensorRT that the adapter writes."""
    found = set()
    for name in _FILES:
        tree = ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                path = _path(node)
                if path:
                    found.add(path)
    return frozenset(found - OURS) | IN_TEXT


def bindings(requirement: str, folder: Path) -> Path:
    """Returns a folder from which the real bindings of a version can be imported.

    Raises:
        RuntimeError: pip does not find them, or there is no C compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
          "--only-binary=:all:", "--dest", str(folder), requirement])  # fmt: skip
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.startswith("tensorrt_bindings/"):
                archive.extract(member, folder)
    major = requirement.split("==")[1].split(".")[0]
    source = folder / "stub.c"
    source.write_text("\n".join(f"void *{name}(void) {{ return 0; }}" for name in SYMBOLS))
    for library in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
        name = f"lib{library}.so.{major}"
        _run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name),
              str(source)])  # fmt: skip
    return folder


def absent(names: frozenset[str], module: str, folder: Path | None = None) -> tuple[str, set[str]]:
    """Returns the version of the bindings and which names they lack, asked in a process."""
    env = dict(os.environ)
    if folder is not None:
        env |= {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
    text = _run([sys.executable, "-c", _LOOK, module, json.dumps(sorted(names))], env)
    version, missing = json.loads(text.splitlines()[-1])
    return version, set(missing)


def _run(command: list[str], env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, check=False, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])}: {done.stderr[-500:]}")
    return done.stdout

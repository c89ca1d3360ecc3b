"""A ``trtexec`` command line as options of the engine, and the options as such a line.

Only flags that decide what is built are taken over; those that only measure, print or save are
passed over.  Any other is refused: a line that was half understood would diagnose something else.

Pure: no TensorRT, Python 3.8, the standard library only.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Dict, List, Tuple

from debugtaps.engines.trt.settings import BadOption, Profile, Range, Settings, parse_bytes

__all__ = ["parse_command", "reproduce"]

# fmt: off
_PASSED_OVER = frozenset({
    "onnx", "verbose", "saveEngine", "loadInputs", "loadRefOutputs", "dumpOutput", "dumpProfile",
    "dumpRawBindingsToFile", "dumpLayerInfo", "dumpOptimizationProfile", "exportTimes",
    "exportOutput", "exportProfile", "exportLayerInfo", "iterations", "duration", "warmUp",
    "sleepTime", "idleTime", "avgRuns", "streams", "infStreams", "useCudaGraph", "useSpinWait",
    "noDataTransfers", "profilingVerbosity", "skipInference", "separateProfileRun", "percentile",
    "threads", "buildOnly", "accuracyAlgorithm", "accuracyThreshold", "saveDebugTensors",
    "saveAllDebugTensors", "device", "useRuntime", "exposeDMA", "useManagedMemory",
    "persistentCacheRatio", "explicitBatch", "markDebug",
})
# fmt: on
_FLAGS = {
    "fp16": "FP16",
    "bf16": "BF16",
    "int8": "INT8",
    "fp8": "FP8",
    "int4": "INT4",
    "versionCompatible": "VERSION_COMPATIBLE",
    "excludeLeanRuntime": "EXCLUDE_LEAN_RUNTIME",
    "refit": "REFIT",
    "stripWeights": "STRIP_PLAN",
    "directIO": "DIRECT_IO",
    "errorOnTimingCacheMiss": "ERROR_ON_TIMING_CACHE_MISS",
    "gpuFallback": "GPU_FALLBACK",
    "allowGPUFallback": "GPU_FALLBACK",
    "allowWeightStreaming": "WEIGHT_STREAMING",
    "noCompilationCache": "DISABLE_COMPILATION_CACHE",
    "monitorMemory": "MONITOR_MEMORY",
}  # fmt: skip
_SETTINGS = {
    "builderOptimizationLevel": "builder_optimization_level", "avgTiming": "avg_timing_iterations",
    "maxTactics": "max_num_tactics", "maxAuxStreams": "max_aux_streams",
    "tilingOptimizationLevel": "tiling_optimization_level",
    "hardwareCompatibilityLevel": "hardware_compatibility_level",
    "l2LimitForTiling": "l2_limit_for_tiling", "buildRoute": "build_route",
}  # fmt: skip
_CONSTRAINTS = {"obey": "OBEY_PRECISION_CONSTRAINTS", "prefer": "PREFER_PRECISION_CONSTRAINTS"}
_ENDS = ("minShapes", "optShapes", "maxShapes")


def _shapes(text: str) -> Dict[str, List[int]]:
    """Returns ``x:1x3x8x8,y:4`` as shapes by name."""
    found = {}
    for part in text.split(","):
        name, colon, sizes = part.strip().rpartition(":")
        try:
            if not colon:
                raise ValueError
            found[name.strip("'\"")] = [int(size) for size in sizes.split("x") if size]
        except ValueError:
            raise BadOption("trtexec: %r is no shape such as x:1x3x8x8" % part) from None
    return found


def _pairs(text: str, flag: str) -> Dict[str, str]:
    found = {}
    for part in text.split(","):
        name, colon, value = part.strip().rpartition(":")
        if not colon:
            raise BadOption("trtexec: --%s needs name:value, not %r" % (flag, part))
        found[name.strip("'\"")] = value
    return found


class _Reader:
    """Takes the flags of one command line, one after the other."""

    def __init__(self) -> None:
        self.options: Dict[str, Any] = {}
        self.flags: List[str] = []
        self.profiles: List[Dict[str, Dict[str, List[int]]]] = [{}]
        self.strong = False
        self.special: Dict[str, Callable[[str], None]] = {
            "stronglyTyped": self._strongly, "noTF32": self._no_tf32, "best": self._best,
            "memPoolSize": self._pools, "workspace": self._workspace, "profile": self._profile,
            "shapes": self._fixed, "timingCacheFile": self._cache,
            "precisionConstraints": self._constraints, "layerPrecisions": self._layers,
            "layerOutputTypes": self._layers, "plugins": self._plugins,
            "dynamicPlugins": self._plugins, "staticPlugins": self._plugins,
            "tacticSources": self._sources, "computeCapabilities": self._capabilities,
            "sparsity": self._sparsity, "loadEngine": self._engine,
        }  # fmt: skip

    def take(self, name: str, value: str) -> None:
        if name in self.special:
            self.special[name](value)
        elif name in _FLAGS:
            self.flags.append(_FLAGS[name])
        elif name in _SETTINGS:
            self.options[_SETTINGS[name]] = int(value) if value.lstrip("-").isdigit() else value
        elif name in _ENDS:
            for tensor, shape in _shapes(value).items():
                self.profiles[-1].setdefault(tensor, {})[name] = shape
        elif name not in _PASSED_OVER:
            raise BadOption("trtexec: --%s is not known here; leave it out, or say it as an option"
                            % name)  # fmt: skip

    def _strongly(self, _: str) -> None:
        self.strong = True

    def _no_tf32(self, _: str) -> None:
        self.options["tf32"] = False

    def _best(self, _: str) -> None:
        self.flags += ["FP16", "BF16", "INT8", "FP8"]

    def _pools(self, text: str) -> None:
        pools = self.options.setdefault("memory_pool_limits", {})
        for name, size in _pairs(text, "memPoolSize").items():
            # A bare number is in MiB there.
            plain = size.replace(".", "", 1).isdigit()
            pools[name.upper()] = parse_bytes(size + "M" if plain else size, "memPoolSize")

    def _workspace(self, text: str) -> None:
        self._pools("workspace:" + text)

    def _profile(self, _: str) -> None:
        if self.profiles[-1]:
            self.profiles.append({})

    def _fixed(self, text: str) -> None:
        for tensor, shape in _shapes(text).items():
            self.profiles[-1].setdefault(tensor, {}).update(dict.fromkeys(_ENDS, shape))

    def _cache(self, text: str) -> None:
        self.options.update(timing_cache=text, save_timing_cache=text)

    def _constraints(self, text: str) -> None:
        if text in _CONSTRAINTS:
            self.flags.append(_CONSTRAINTS[text])

    def _layers(self, text: str) -> None:
        wanted = self.options.setdefault("layer_precisions", {})
        for name, kind in _pairs(text, "layerPrecisions").items():
            wanted[name] = kind.split("+")[0]

    def _plugins(self, text: str) -> None:
        self.options.setdefault("plugins", []).append(text)

    def _sources(self, text: str) -> None:
        parts = [part.strip() for part in text.split(",")]
        if any(part.startswith("-") for part in parts):
            raise BadOption(
                "trtexec: --tacticSources with '-': name the sources that stay, as the option "
                "tactic_sources=A,B"
            )
        self.options["tactic_sources"] = ",".join(part.lstrip("+") for part in parts)

    def _capabilities(self, text: str) -> None:
        words = [word.strip() for word in text.replace("sm", "SM").split(",")]
        self.options["compute_capabilities"] = [
            word if word.startswith("SM") else "SM" + word.replace(".", "") for word in words
        ]

    def _sparsity(self, text: str) -> None:
        if text != "disable":
            self.flags.append("SPARSE_WEIGHTS")

    def _engine(self, text: str) -> None:
        raise BadOption("trtexec: --loadEngine=%s: give the plan as --engine-file" % text)


def parse_command(line: str) -> Dict[str, Any]:
    """Returns the engine options that a ``trtexec`` command line stands for.

    >>> parse_command("trtexec --onnx=m.onnx --noTF32 --shapes=x:1x3")
    {'tf32': False, 'profiles': [{'x': [[1, 3], [1, 3], [1, 3]]}]}

    Raises:
        BadOption: A flag is not known, or its value cannot be read.
    """
    reader = _Reader()
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadOption("trtexec: the line cannot be read: %s" % error) from error
    for word in words:
        if not word.startswith("-"):
            if word is words[0]:
                continue  # the program
            raise BadOption("trtexec: %r is no flag such as --fp16 or --shapes=x:1x3" % word)
        name, _, value = word.lstrip("-").partition("=")
        reader.take(name, value)
    options = reader.options
    if reader.flags:
        options["flags"] = list(dict.fromkeys(reader.flags))
    lowered = any(flag in ("FP16", "BF16", "INT8", "FP8", "INT4") for flag in reader.flags)
    if lowered and not reader.strong:
        options["strongly_typed"] = False
    profiles = [_ends(each) for each in reader.profiles if each]
    if profiles:
        options["profiles"] = profiles
    return options


def _ends(shapes: Mapping[str, Mapping[str, List[int]]]) -> Dict[str, List[List[int]]]:
    found = {}
    for name, ends in shapes.items():
        usual = ends.get("optShapes") or ends.get("maxShapes") or ends["minShapes"]
        found[name] = [ends.get("minShapes", usual), usual, ends.get("maxShapes", usual)]
    return found


def reproduce(settings: Settings, ranges: Mapping[str, Range], *, rtx: bool) -> str:
    """Returns the ``trtexec`` line that builds the same: its flags, precision and profiles."""
    words = ["tensorrt_rtx" if rtx else "trtexec", "--onnx=model.onnx"]
    if settings.strongly_typed and not rtx:
        words.append("--stronglyTyped")
    if not settings.tf32:
        words.append("--noTF32")
    back = {flag: name for name, flag in reversed(list(_FLAGS.items()))}
    words += ["--" + back[flag] for flag in settings.flags if flag in back]
    words += ["--precisionConstraints=" + name for name, flag in _CONSTRAINTS.items()
              if flag in settings.flags]  # fmt: skip
    words += _profile_words(settings.profiles, ranges)
    for pool, size in settings.memory_pool_limits.items():
        words.append("--memPoolSize=%s:%gM" % (pool.lower(), size / (1 << 20)))
    if settings.layer_precisions:
        held = ",".join("%s:%s" % pair for pair in settings.layer_precisions.items())
        words.append("--layerPrecisions=" + held)
    words += ["--dynamicPlugins=" + path for path in settings.plugins]
    if settings.compute_capabilities:
        words.append("--computeCapabilities=" + ",".join(
            name.replace("SM", "") for name in settings.compute_capabilities))  # fmt: skip
    settings_back = {option: name for name, option in _SETTINGS.items()}
    words += ["--%s=%s" % (settings_back[name], value) for name, value in settings.config.items()
              if name in settings_back]  # fmt: skip
    if settings.timing_cache:
        words.append("--timingCacheFile=" + settings.timing_cache)
    return " ".join(shlex.quote(word) for word in words)


def _profile_words(profiles: Sequence[Profile], ranges: Mapping[str, Range]) -> List[str]:
    if not profiles:
        varied = {n: (tuple(r["min"]), tuple(r["opt"]), tuple(r["max"])) for n, r in ranges.items()}
        profiles = [varied] if varied else []
    words: List[str] = []
    for number, profile in enumerate(profiles):
        if len(profiles) > 1:
            words.append("--profile=%d" % number)
        ends: Tuple[str, ...] = _ENDS
        for place, flag in enumerate(ends):
            shapes = ("%s:%s" % (n, "x".join(map(str, t[place]))) for n, t in profile.items())
            words.append("--%s=%s" % (flag, ",".join(shapes)))
    return words

"""TensorRT 10 and 11, and TensorRT-RTX 1: the one file that knows how to get hold of them.

Python 3.8, numpy and the engine only: the worker loads this under any interpreter.  Building
needs the package; running needs a GPU and ``cuda-python``, too.  What follows from a plan, a log
or a command line stands in the ``trt_*`` files beside this one, which import no TensorRT.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np

from debugtaps.engines.trt import command as trt_command
from debugtaps.engines.trt import plan as trt_plan
from debugtaps.engines.trt.build import Built, build_plan
from debugtaps.engines.trt.log import Line, TensorRtError
from debugtaps.engines.trt.memory import cuda_runtime, no_gpu
from debugtaps.engines.trt.network import Network, kept_precision, parse
from debugtaps.engines.trt.runtime import Runner
from debugtaps.engines.trt.settings import BadOption, checked, read_profiles

PLAN, CACHE, LOG, ABOUT = "engine.plan", "timing.cache", "build.log", "engine.json"

_NOT_GIVEN = (None, (), "")

_BOOKS: List[Any] = []
"""Loggers, never emptied: the process dies if the first one goes while TensorRT is used."""


def _logger(trt: Any) -> Any:
    """Returns the process's logger; what it hears goes to its ``lines``."""

    class Book(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: List[Line] = []

        def log(self, severity: Any, msg: str) -> None:
            self.lines.append((severity.name, msg))
            if severity.name in ("INTERNAL_ERROR", "ERROR", "WARNING"):
                print("[%s] %s" % (severity.name, msg[:2000]), flush=True)  # noqa: T201

    if not _BOOKS:
        _BOOKS.append(Book())
    return _BOOKS[0]


class TensorRtEngine:
    """TensorRT on the first GPU.

    Args:
        build_only: Parse and build, never run: for failures of a build, on any machine.
        strongly_typed: False lets TensorRT 10 choose types, by ``flags=FP16`` and the like.
        tf32: Whether float32 contractions may compute in TF32, as is TensorRT's own default.
        flags: Builder flags by their names: ``FP16``, ``STRICT_NANS`` …
        profiles: Optimisation profiles, ``[{x: [min, opt, max]}]``; from the data when absent.
        layer_precisions: With weak types, ``{node: fp32}``; a list names nodes to keep in fp32.
        memory_pool_limits: ``{WORKSPACE: 4G}``.
        compute_capabilities: Targets of TensorRT-RTX: ``SM89`` …
        plugins: Plugin libraries to load before parsing.
        timing_cache, save_timing_cache: Files to read and to write.
        editable_timing_cache: Tell the tactic of each layer (10.8 and later).
        tactics: Force ``{key: tactic}``, as ``tactics()`` of a build tells them.
        time_limit: Seconds after which a build is cancelled.
        tap_mode: ``mark`` makes taps outputs; ``debug`` hears them as debug tensors.
        trtexec: A ``trtexec`` command line; its flags stand below the other options.
        **config: Any other setting of the builder, by its own name.
    """

    package = "tensorrt"
    rtx = False

    def __init__(
        self, *, build_only: bool = False, strongly_typed: Optional[bool] = None,
        tf32: Optional[bool] = None, flags: Any = (), profiles: Any = (),
        layer_precisions: Any = None, memory_pool_limits: Any = None,
        compute_capabilities: Any = (), plugins: Any = (), timing_cache: str = "",
        save_timing_cache: str = "", editable_timing_cache: bool = False, tactics: Any = None,
        time_limit: float = 0.0, tap_mode: str = "mark", trtexec: str = "", **config: Any,
    ) -> None:  # fmt: skip
        given = {
            "build_only": build_only, "strongly_typed": strongly_typed, "tf32": tf32,
            "flags": flags, "profiles": profiles, "layer_precisions": layer_precisions,
            "memory_pool_limits": memory_pool_limits,
            "compute_capabilities": compute_capabilities, "plugins": plugins,
            "timing_cache": timing_cache, "save_timing_cache": save_timing_cache,
            "editable_timing_cache": editable_timing_cache, "tactics": tactics,
            "time_limit": time_limit, "tap_mode": tap_mode, **config,
        }  # fmt: skip
        asked = trt_command.parse_command(trtexec) if trtexec else {}
        asked.update({name: value for name, value in given.items() if value not in _NOT_GIVEN})
        self.settings = checked(asked)
        self.trt = importlib.import_module(self.package)
        for name in self.settings.config:
            if name != "tactic_sources" and not hasattr(self.trt.IBuilderConfig, name):
                raise TypeError("unexpected option %r: the builder has no such setting" % name)
        self.cuda = None if self.settings.build_only else self._gpu()
        self.logger = _logger(self.trt)
        self.ranges: Dict[str, Any] = {}
        self._load_plugins()

    def _gpu(self) -> Any:
        reason = no_gpu()
        if reason is not None:
            raise RuntimeError(
                "no GPU to run on: %s; the option build_only=true parses and builds without one"
                % reason
            )
        return cuda_runtime()

    def _load_plugins(self) -> None:
        trt, libraries = self.trt, self.settings.plugins
        if libraries and self.rtx:
            raise BadOption("plugins: TensorRT-RTX takes none")
        if not self.rtx and hasattr(trt, "init_libnvinfer_plugins"):
            trt.init_libnvinfer_plugins(self.logger, "")
        for path in libraries:
            self.logger.lines = []
            registry = trt.get_plugin_registry()
            if registry.load_library(str(Path(path).absolute())) is None:
                said = [text for _, text in self.logger.lines]
                why = " ".join(said[-1].split()) if said else "it was not loaded"
                raise BadOption("plugins: %s: %s" % (path, why))

    @property
    def promotes_taps(self) -> bool:
        """Returns whether taps are heard as debug tensors, from a model without them."""
        return self.settings.tap_mode == "debug"

    @property
    def builds_only(self) -> bool:
        """Returns whether sessions of this engine do not run."""
        return self.settings.build_only

    def describe(self) -> Dict[str, Any]:
        """Returns name, versions, device, how types are decided and the line to reproduce."""
        settings = self.settings
        typed = "weakly typed" if not settings.strongly_typed else "strongly typed"
        return {
            "name": self.package.replace("_", "-"),
            "versions": {self.package: self.trt.__version__, "numpy": np.__version__},
            "device": "none (builds only)" if settings.build_only else self._device(),
            "precision": "%s, TF32 %s" % (typed, "allowed" if settings.tf32 else "off"),
            "reproduce": trt_command.reproduce(settings, self.ranges, rtx=self.rtx),
        }

    def _device(self) -> str:
        assert self.cuda is not None
        status, properties = self.cuda.cudaGetDeviceProperties(0)
        name = getattr(properties, "name", b"")
        return "GPU %s" % (name.decode(errors="replace") if isinstance(name, bytes) else name)

    def knobs(self) -> Dict[str, Any]:
        """Returns the settings that change what is computed, with their values."""
        found: Dict[str, Any] = {"tf32": [False]} if self.settings.tf32 else {}
        known = [n for n in ("STRICT_NANS", "DISTRIBUTIVE_INDEPENDENCE", "DISABLE_TIMING_CACHE")
                 if hasattr(self.trt.BuilderFlag, n)]  # fmt: skip
        mine = self.settings.flags
        found["flags"] = [[*mine, n] for n in known if n not in mine] if mine else {"any": known}
        found["builder_optimization_level"] = [0, 1, 5]
        if not self.settings.strongly_typed:
            found["layer_precisions"] = {"any": "nodes"}
        if hasattr(self.trt.IBuilderConfig, "tiling_optimization_level"):
            found["tiling_optimization_level"] = ["none", "full"]
        return found

    def expect(self, ranges: Mapping[str, Any]) -> None:
        """Hears what the data of the next build need, for its profiles."""
        self.ranges = dict(ranges)

    def build(self, model: Path, taps: Sequence[str] = ()) -> TensorRtSession:
        """Parses and builds an ONNX file."""
        lines: List[Line] = []
        self.logger.lines = lines
        made = parse(self.trt, self.logger, model, self.settings, lines, rtx=self.rtx)
        if taps and self.promotes_taps:
            _mark_debug(made.network, taps)
        built = build_plan(self.trt, made, self.settings, self.ranges, lines)
        debug = tuple(taps) if self.promotes_taps else ()
        return TensorRtSession(self, built, lines, made=made, debug=debug)

    def load(self, folder: Path) -> TensorRtSession:
        """Returns the session that ``save`` wrote to a folder, or that of a plan file."""
        lines: List[Line] = []
        self.logger.lines = lines
        if Path(folder).is_file():
            plan = Path(folder).read_bytes()
            return TensorRtSession(self, Built(plan, b"", {}, (), ()), lines, names={})
        about = json.loads((Path(folder) / ABOUT).read_text(encoding="utf-8"))
        mine = "%s %s" % (self.package, self.trt.__version__)
        if about["made_by"] != mine:
            raise BadOption("the plan was made by %s; this is %s" % (about["made_by"], mine))
        plan = (Path(folder) / PLAN).read_bytes()
        profiles = read_profiles(about["profiles"])
        built = Built(plan, b"", about["tactics"], profiles, tuple(about["shape_inputs"]))
        kernels = [trt_plan.Kernel(each[0], each[1], frozenset(each[2]), each[3],
                                   tuple(each[4]), tuple(each[5]), tuple(each[6]))
                   for each in about["kernels"]]  # fmt: skip
        return TensorRtSession(self, built, lines, names=about["names"], kernels=kernels)


class TensorRtRtxEngine(TensorRtEngine):
    """TensorRT for RTX on the first GPU; its options are those of ``TensorRtEngine``."""

    package = "tensorrt_rtx"
    rtx = True


def _mark_debug(network: Any, taps: Sequence[str]) -> None:
    found = {}
    for layer in network:
        for number in range(layer.num_outputs):
            tensor = layer.get_output(number)
            if tensor is not None:
                found[tensor.name] = tensor
    missing = [tap for tap in taps if tap not in found]
    if missing:
        raise TensorRtError("not tappable: the network has no tensor '%s'" % missing[0])
    for tap in taps:
        network.mark_debug(found[tap])


class TensorRtSession:
    """A plan, what is known of it and, where it may run, its execution context."""

    def __init__(
        self, owner: TensorRtEngine, built: Built, lines: Sequence[Line], *,
        made: Optional[Network] = None, names: Optional[Mapping[str, str]] = None,
        kernels: Sequence[trt_plan.Kernel] = (), debug: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.owner, self.built, self.lines = owner, built, list(lines)
        self.names = dict(made.names if made is not None else names or {})
        self.plan = list(kernels) or trt_plan.from_log((text for _, text in lines), self.names)
        self.lost = kept_precision(made, self.plan) if made is not None else []
        self.runner: Optional[Runner] = None
        if owner.cuda is not None:
            self.runner = Runner(owner.trt, owner.cuda, owner.logger, built.plan, debug=debug)
            if not self.plan:
                self.plan = trt_plan.from_inspector(self.runner.inspect(), self.names)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Returns every output, and every debug tensor that was heard."""
        if self.runner is None:
            raise TensorRtError("no GPU was used: this engine only builds (build_only=true)")
        self.owner.logger.lines = self.lines
        return self.runner.run(feeds)

    def fusions(self) -> List[List[str]]:
        """Returns the sets of ONNX nodes that run as one kernel."""
        return trt_plan.fusions(self.plan)

    def precisions(self) -> Dict[str, str]:
        """Returns the type each ONNX node computes in, as the plan has it."""
        return trt_plan.precisions(self.plan, tf32=self.owner.settings.tf32)

    def tactics(self) -> Dict[str, str]:
        """Returns the tactic of each key of the timing cache; of each kernel without one."""
        return dict(self.built.tactics) or trt_plan.tactics(self.plan)

    def notes(self) -> List[str]:
        """Returns what a reader must know of this build: precision lost, a wide profile."""
        wide = [name for profile in self.built.profiles for name, (low, _, high) in profile.items()
                if low != high]  # fmt: skip
        told = list(self.lost)
        if wide:
            told.append("the profile of %s is wide; one for the data alone may choose other kernels"
                        % ", ".join("'%s'" % name for name in sorted(set(wide))))  # fmt: skip
        return told

    def save(self, folder: Path) -> None:
        """Writes plan, timing cache, log and what is known of the plan."""
        folder = Path(folder)
        about: Dict[str, Any] = {
            "made_by": "%s %s" % (self.owner.package, self.owner.trt.__version__),
            "names": self.names, "profiles": list(self.built.profiles),
            "shape_inputs": list(self.built.shape_inputs), "tactics": dict(self.built.tactics),
            "kernels": [[k[0], k[1], sorted(k[2]), *k[3:]] for k in self.plan],
        }  # fmt: skip
        log = "\n".join("[%s] %s" % line for line in self.lines)
        (folder / LOG).write_text(log + "\n", encoding="utf-8")
        if self.built.cache:
            (folder / CACHE).write_bytes(self.built.cache)
        (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        (folder / PLAN).write_bytes(self.built.plan)

    def close(self) -> None:
        """Frees the context and its memory."""
        if self.runner is not None:
            self.runner.close()
            self.runner = None

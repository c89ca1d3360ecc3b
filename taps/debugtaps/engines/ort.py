"""ONNX Runtime, as the engine under suspicion and, with every optimisation off, as reference.

Python 3.8, numpy and onnxruntime (1.16 or later): the worker loads it under any interpreter.
"""

from __future__ import annotations

import ctypes
import importlib
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

LEVELS = {
    **dict.fromkeys(("disable", "none", "off", "0"), "ORT_DISABLE_ALL"),
    **dict.fromkeys(("basic", "1"), "ORT_ENABLE_BASIC"),
    **dict.fromkeys(("extended", "2"), "ORT_ENABLE_EXTENDED"),
    **dict.fromkeys(("layout", "3"), "ORT_ENABLE_LAYOUT"),
    **dict.fromkeys(("all", "99"), "ORT_ENABLE_ALL"),
}
CPU = "CPUExecutionProvider"
SHOWN = 20
"""How many nodes are named that fell back to a provider."""
MANY = 256
"""Inputs from which on we look for missing ones: ``run`` searches a list of all for each."""

# ONNX type -> (name in ml_dtypes, ONNX enum, bits of one element): the types numpy lacks.
EXOTIC = {
    "tensor(bfloat16)": ("bfloat16", 16, 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17, 8),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18, 8),
    "tensor(float8e5m2)": ("float8_e5m2", 19, 8),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20, 8),
    "tensor(uint4)": ("uint4", 21, 4),
    "tensor(int4)": ("int4", 22, 4),
    "tensor(float4e2m1)": ("float4_e2m1fn", 23, 4),
}


def _listed(value: str | Sequence[str] | None) -> list[str]:
    if value is None:
        return []
    parts = value.split(",") if isinstance(value, str) else value
    return [str(part).strip() for part in parts if str(part).strip()]


def _by_provider(given: Any, count: int) -> list[dict[str, str]] | None:
    """Returns provider options as ONNX Runtime takes them: text, one mapping a provider."""
    if given is None:
        return None
    rows = [given] if isinstance(given, Mapping) else list(given)
    rows += [{}] * (count - len(rows))
    return [{k: str(int(v) if isinstance(v, bool) else v) for k, v in r.items()} for r in rows]


def _level(value: str | int) -> Any:
    name = LEVELS.get(str(value).lower())
    if name is None:
        words = ", ".join(LEVELS)
        raise ValueError(f"graph_optimization_level is {value!r}; it takes {words}")
    # "layout" came with 1.22; before that its work belonged to "all".
    levels = ort.GraphOptimizationLevel
    return getattr(levels, name, levels.ORT_ENABLE_ALL)


def _tagged(name: str, bits: Any) -> Any:
    """Returns raw bits as the ml_dtypes type, or tagged with its name where that is missing."""
    try:
        return bits.view(np.dtype(getattr(importlib.import_module("ml_dtypes"), name)))
    except (ImportError, AttributeError):
        return bits.view(np.dtype([(name, bits.dtype.str)]))


def _bits_of(value: Any, width: int) -> Any:
    """Returns the elements of an OrtValue that numpy cannot hold, as unsigned integers."""
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    size = (count * width + 7) // 8
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    if width == 16:
        return np.frombuffer(raw, np.uint16).copy().reshape(shape)
    packed = np.frombuffer(raw, np.uint8)
    if width == 4:  # two to a byte, the first in the low half
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[:count]
    return packed.copy().reshape(shape)


def _placed(session: Any) -> dict[str, list[str]]:
    """Returns the nodes of each provider, after fusion; nothing before onnxruntime 1.24."""
    tell = getattr(session, "get_provider_graph_assignment_info", None)
    found: dict[str, list[str]] = {}
    for part in tell() if tell is not None else ():
        names = [node.name or node.op_type for node in part.get_nodes()]
        found.setdefault(part.ep_name, []).extend(names)
    return found


def _beside(name: str) -> dict[str, Any]:
    """Returns what a file beside this one holds; a case holds none, and nobody asks there."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


class OrtSession:
    """A session of ONNX Runtime."""

    def __init__(self, session: Any, engine: OrtEngine, model: Path) -> None:
        self._session, self._engine, self._model = session, engine, model
        self._wanted = engine.providers[0]
        takes = [*session.get_inputs(), *session.get_overridable_initializers()]
        self._inputs = {each.name: each.type for each in takes}
        self._outputs = {each.name: each.type for each in session.get_outputs()}
        # Only an OrtValue holds a type that numpy lacks, and none is made from text.
        text = "tensor(string)" in self._inputs.values()
        exotic = [name for name, kind in self._outputs.items() if kind in EXOTIC]
        self._by_value = bool(exotic) and not text
        self._plain = [name for name in self._outputs if name not in exotic]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Returns every output; with inputs of text, those only whose type numpy has."""
        known = {name: self._fed(name, feeds[name]) for name in self._inputs if name in feeds}
        if not self._by_value:
            whole = len(known) == len(self._inputs) >= MANY
            session = getattr(self._session, "_sess", self._session) if whole else self._session
            found = session.run(self._plain, known, None) if self._plain else []
            return dict(zip(self._plain, found))  # noqa: B905 - Python 3.8 has no strict
        values = {
            name: fed if isinstance(fed, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(fed)
            for name, fed in known.items()
        }
        shown = self._session.run_with_ort_values(list(self._outputs), values)
        return {n: self._array(n, v) for n, v in zip(self._outputs, shown)}  # noqa: B905

    def _fed(self, name: str, array: Any) -> Any:
        kind = EXOTIC.get(self._inputs[name])
        if kind is None:
            return array
        make = getattr(ort.OrtValue, "ortvalue_from_numpy_with_onnx_type", None)
        if make is None or kind[2] == 4:
            seen = f"onnxruntime {ort.__version__} takes no {kind[0]} from numpy"
            raise TypeError(f"input {name!r}: {seen}; 8 and 16 bits need 1.20 or newer")
        bits = np.ascontiguousarray(array).view(np.uint16 if kind[2] == 16 else np.uint8)
        return make(bits.reshape(array.shape), kind[1])

    def _array(self, name: str, value: Any) -> Any:
        kind = EXOTIC.get(self._outputs[name])
        if kind is None or not value.has_value():
            return value.numpy() if value.is_tensor() else None
        bits = _bits_of(value, kind[2])
        if kind[0] == "int4":
            bits = ((bits ^ 8).astype(np.int8) - 8).astype(np.int8)
        return _tagged(kind[0], bits)

    def notes(self) -> list[str]:
        """Returns which nodes do not run on the provider that was asked for, by name."""
        if self._wanted == CPU:
            return []
        placed = _placed(self._session)
        if not placed:
            return [f"onnxruntime {ort.__version__} does not say which nodes run on which provider"]
        own, nodes = placed.pop(self._wanted, []), sum(map(len, placed.values()))
        said = [f"{len(own)} of {len(own) + nodes} nodes run on {self._wanted}"]
        for provider, names in placed.items():
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            said.append(f"on {provider}: {', '.join(names[:SHOWN])}{more}")
        return ["; ".join(said)]

    def kernels(self) -> list[list[str]]:
        """Returns the sets of ONNX nodes that run as one; a second session tells."""
        told: list[list[str]] = _beside("ort_fusions.py")["kernels"](self._engine, self._model)
        return told

    def close(self) -> None:
        """Frees the session."""
        self._session = None


class OrtEngine:
    """ONNX Runtime; options carry its own names.

    Args:
        providers: Execution providers in order, a list or ``A,B``; the CPU when not given.
            One that is not there is an error: nothing falls back in silence.
        provider_options: One mapping for each provider, or one for the first.
        graph_optimization_level: disable, basic, extended, layout, all, or 0, 1, 2, 3, 99.
        disabled_optimizers: Names of graph transformers to leave out, a list or ``A,B``.
        intra_op_num_threads: Threads of one operator; 0 leaves it to ONNX Runtime.
        inter_op_num_threads: Threads across operators; 0 leaves it to ONNX Runtime.
        enable_mem_pattern: Whether memory is planned ahead.
        enable_cpu_mem_arena: Whether memory of the CPU is kept from run to run.
        session_config: Session configuration entries by name.
        **config: The same, one by one; their names hold a dot, as ``session.set_denormal_as_zero``.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        provider_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        graph_optimization_level: str | int = "all",
        disabled_optimizers: str | Sequence[str] | None = None,
        intra_op_num_threads: int = 0,
        inter_op_num_threads: int = 0,
        enable_mem_pattern: bool = True,  # noqa: FBT001, FBT002 - options come by keyword
        enable_cpu_mem_arena: bool = True,  # noqa: FBT001, FBT002
        session_config: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> None:
        odd = [name for name in config if "." not in name]
        if odd:
            raise TypeError(f"unknown option {', '.join(map(repr, odd))}")
        self.providers = _listed(providers) or [CPU]
        self.provider_options = _by_provider(provider_options, len(self.providers))
        self._check_providers(ort.get_available_providers(), "this onnxruntime has")
        if self.providers[0].startswith(("CUDA", "Tensorrt")) and hasattr(ort, "preload_dlls"):
            ort.preload_dlls()  # CUDA's libraries, where they were installed as packages
        self.level = _level(graph_optimization_level)
        self.disabled = _listed(disabled_optimizers)
        self.memory = (bool(enable_mem_pattern), bool(enable_cpu_mem_arena))
        self.threads = (int(intra_op_num_threads), int(inter_op_num_threads))
        self.config = dict(session_config or {}, **config)

    def _check_providers(self, present: Sequence[str], seen: str) -> None:
        lacking = [name for name in self.providers if name not in present]
        if lacking:
            raise ValueError(f"no {', '.join(lacking)}: {seen} {', '.join(present)}")

    def session_options(self) -> Any:
        """Returns the options of every session."""
        options = ort.SessionOptions()
        options.graph_optimization_level = self.level
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads
        options.enable_mem_pattern, options.enable_cpu_mem_arena = self.memory
        options.log_severity_level = 3
        if self.providers[0] != CPU:
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        for key, value in self.config.items():
            text = str(int(value)) if isinstance(value, bool) else str(value)
            options.add_session_config_entry(key, text)
        return options

    def build(self, model: Path, taps: Sequence[str] = ()) -> OrtSession:
        """Returns a session; taps are outputs of the model already."""
        session = self.session(model, self.session_options())
        self._check_providers(session.get_providers(), "the session fell back to")
        return OrtSession(session, self, model)

    def session(self, model: Path, options: Any) -> Any:
        """Returns a session of ONNX Runtime's own."""
        return ort.InferenceSession(
            str(model), sess_options=options, providers=self.providers,
            provider_options=self.provider_options, disabled_optimizers=self.disabled or None,
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Returns the name, the versions and where it runs."""
        return {
            "name": "onnxruntime",
            "versions": {"onnxruntime": ort.__version__, "numpy": np.__version__},
            "device": ort.get_device(),
            "providers": self.providers,
        }

    def knobs(self) -> dict[str, Any]:
        """Returns the settings that can be turned one by one."""
        found: dict[str, Any] = _beside("ort_knobs.py")["knobs"]()
        return found


class OrtReference(OrtEngine):
    """ONNX Runtime with every optimisation off: the default reference.

    Its options are those of the engine that bear the same names.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        intra_op_num_threads: int = 0,
        inter_op_num_threads: int = 0,
        session_config: Mapping[str, Any] | None = None,
    ) -> None:
        # Spinning threads take cores, and an arena memory, while others work.
        config = {"session.intra_op.allow_spinning": "0", **(session_config or {})}
        super().__init__(
            providers, None, "disable", None, intra_op_num_threads, inter_op_num_threads,
            enable_cpu_mem_arena=False, session_config=config,
        )  # fmt: skip

    def session_options(self) -> Any:
        """Returns the options of every session: no optimisation, deterministic kernels."""
        options = super().session_options()
        options.use_deterministic_compute = True
        return options

    def knobs(self) -> dict[str, Any]:
        """Returns nothing: the reference is not tuned."""
        return {}

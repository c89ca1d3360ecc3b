"""From a parsed network to a TensorRT plan: configuration, profiles, time limit, timing cache.

Works on the module it is given (``tensorrt`` or ``tensorrt_rtx``) and imports none.  Python 3.8.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Tuple

from debugtaps.engines.trt import log as trt_log
from debugtaps.engines.trt.log import Line
from debugtaps.engines.trt.network import Network
from debugtaps.engines.trt.settings import BadOption, Profile, Range, Settings, check_data
from debugtaps.engines.trt.tactics import Cache

__all__ = ["Built", "build_plan", "make_config"]


class Built(NamedTuple):
    """A plan and what was learned while it was made."""

    plan: bytes
    cache: bytes
    tactics: Mapping[str, str]
    profiles: Tuple[Profile, ...]
    shape_inputs: Tuple[str, ...]


def make_config(trt: Any, builder: Any, settings: Settings) -> Any:
    """Returns a builder configuration with everything but profiles and timing cache.

    Raises:
        BadOption: This version has no such flag, pool, capability or setting.
    """
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # the plan's types and nodes
    flags = list(settings.flags)
    if settings.layer_precisions and not any("PRECISION_CONSTRAINTS" in each for each in flags):
        flags.append("OBEY_PRECISION_CONSTRAINTS")
    for name in flags:
        config.set_flag(_member(trt.BuilderFlag, name, "flags"))
    if not settings.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    for name, size in settings.memory_pool_limits.items():
        config.set_memory_pool_limit(_member(trt.MemoryPoolType, name, "memory_pool_limits"), size)
    if settings.compute_capabilities:
        if not hasattr(config, "set_compute_capability"):
            raise BadOption("compute_capabilities is an option of tensorrt-rtx only")
        config.num_compute_capabilities = len(settings.compute_capabilities)
        for number, name in enumerate(settings.compute_capabilities):
            kind = _member(trt.ComputeCapability, name, "compute_capabilities")
            config.set_compute_capability(kind, number)
    for name, value in settings.config.items():
        _set(trt, config, name, value)
    return config


def _member(kind: Any, name: str, option: str) -> Any:
    found = getattr(kind, name.upper(), None)
    if found is None:
        known = ", ".join(sorted(each for each in vars(kind) if each.isupper()))
        raise BadOption("%s: this version has no %r; it has %s" % (option, name, known))
    return found


def _set(trt: Any, config: Any, name: str, value: Any) -> None:
    if name == "tactic_sources":
        mask = 0
        for each in value.split(",") if isinstance(value, str) else value:
            mask |= 1 << int(_member(trt.TacticSource, each, name))
        config.set_tactic_sources(mask)
        return
    kind = type(getattr(config, name))
    if isinstance(value, str) and hasattr(kind, "__members__"):
        value = _member(kind, value, name)
    try:
        setattr(config, name, value)
    except (TypeError, AttributeError) as error:
        now = getattr(config, name)
        raise BadOption("%s: %r is not taken; it is %r now" % (name, value, now)) from error


def _profiles(
    made: Network, config: Any, settings: Settings, ranges: Mapping[str, Range]
) -> Tuple[Tuple[Profile, ...], Tuple[str, ...]]:
    """Adds profiles to the configuration and returns them, with the inputs that hold shapes."""
    needed, shape_inputs = [], []
    for number in range(made.network.num_inputs):
        tensor = made.network.get_input(number)
        if tensor.is_shape_tensor:
            shape_inputs.append(tensor.name)
        if tensor.is_shape_tensor or -1 in tuple(tensor.shape):
            needed.append(tensor.name)
    if not needed:
        return (), tuple(shape_inputs)
    check_data(settings.profiles, ranges)
    found = []
    for given in settings.profiles or ({},):
        profile = made.builder.create_optimization_profile()
        shapes: Profile = {}
        for name in needed:
            shapes[name] = _three(name, given, ranges, values=name in shape_inputs)
            put = profile.set_shape_input if name in shape_inputs else profile.set_shape
            put(name, *shapes[name])
        if config.add_optimization_profile(profile) < 0:
            raise BadOption("profiles: TensorRT does not take %r" % (shapes,))
        found.append(shapes)
    return tuple(found), tuple(shape_inputs)


def _three(name: str, given: Profile, ranges: Mapping[str, Range], *, values: bool) -> Any:
    if name in given:
        return given[name]
    seen = ranges.get(name)
    if seen is not None and not values:
        return tuple(tuple(seen[key]) for key in ("min", "opt", "max"))
    if seen is not None and "values" in seen:
        return tuple(tuple(each) for each in seen["values"])
    raise BadOption(
        "input %r has no fixed %s; give profiles=[{%s: [min, opt, max]}]"
        % (name, "values" if values else "shape", name)
    )


def _monitor(trt: Any, limit: float) -> Any:
    """Returns a progress monitor that says where a build is, and stops it at its limit."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.end = time.monotonic() + limit if limit > 0 else float("inf")
            self.stopped = ""

        def phase_start(self, phase_name: str, parent_phase: Optional[str], num_steps: int) -> None:
            if parent_phase is None:
                print("build phase: %s" % phase_name, flush=True)  # noqa: T201  for the tail

        def step_complete(self, phase_name: str, step: int) -> bool:
            if time.monotonic() > self.end:
                self.stopped = "the build took longer than time_limit=%g s, in %s" % (
                    limit, phase_name,
                )  # fmt: skip
            return not self.stopped

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()


def build_plan(
    trt: Any,
    made: Network,
    settings: Settings,
    ranges: Mapping[str, Range],
    lines: Sequence[Line],
) -> Built:
    """Returns the plan of a parsed network.

    Raises:
        TensorRtError, NoMemory, BuildStopped: TensorRT made none.
        BadOption: The options do not fit the network or the data.
    """
    config = make_config(trt, made.builder, settings)
    monitor = None
    if hasattr(trt, "IProgressMonitor"):
        monitor = config.progress_monitor = _monitor(trt, settings.time_limit)
    profiles, shape_inputs = _profiles(made, config, settings, ranges)
    cache = Cache(trt, config, settings)

    def build() -> bytes:
        plan = made.builder.build_serialized_network(made.network, config)
        if plan is None:
            stopped = monitor.stopped if monitor is not None else ""
            raise trt_log.build_failure(lines, made.layers, stopped=stopped)
        return bytes(plan)

    plan = cache.replay(build) if settings.tactics else build()
    return Built(plan, cache.save(), cache.tactics(lines), profiles, shape_inputs)

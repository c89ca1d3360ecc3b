"""The options of TensorRT, checked before anything is built.

Pure: no TensorRT, Python 3.8, the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Tuple, Union

__all__ = [
    "BadOption",
    "Profile",
    "Range",
    "Settings",
    "check_data",
    "checked",
    "covers",
    "parse_bytes",
    "read_profiles",
]

Shape = Tuple[int, ...]
Profile = Dict[str, Tuple[Shape, Shape, Shape]]
"""Smallest, usual and largest shape of each input (of a shape tensor: values)."""

Range = Dict[str, Any]
"""What the data of one input need: ``min``, ``opt``, ``max`` and, of small integers, ``values``."""

TAP_MODES = ("mark", "debug")


class BadOption(ValueError):
    """What the user asked for cannot be: no observation of the engine's."""


@dataclass(frozen=True)
class Settings:
    """The options of an engine; see ``TensorRtEngine``."""

    build_only: bool = False
    strongly_typed: bool = True
    tf32: bool = True
    flags: Tuple[str, ...] = ()
    profiles: Tuple[Profile, ...] = ()
    layer_precisions: Mapping[str, str] = field(default_factory=dict)
    memory_pool_limits: Mapping[str, int] = field(default_factory=dict)
    compute_capabilities: Tuple[str, ...] = ()
    plugins: Tuple[str, ...] = ()
    timing_cache: str = ""
    save_timing_cache: str = ""
    editable_timing_cache: bool = False
    tactics: Mapping[str, str] = field(default_factory=dict)
    time_limit: float = 0.0
    tap_mode: str = "mark"
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def editable(self) -> bool:
        """Returns whether the timing cache is read and written entry by entry."""
        return self.editable_timing_cache or bool(self.tactics)


def names_in(value: Any, option: str) -> Tuple[str, ...]:
    """Returns the words of an option that takes a list, or one text with commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, Sequence) and all(isinstance(each, (str, int)) for each in value):
        return tuple(str(each) for each in value)
    raise BadOption("%s must be a list of names, not %r" % (option, value))


def mapping_in(value: Any, option: str) -> Dict[str, Any]:
    """Returns an option that takes a mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadOption("%s must be a mapping, not %r" % (option, value))
    return {str(key): each for key, each in value.items()}


def parse_bytes(value: Union[int, float, str], option: str) -> int:
    """Returns a size in bytes; text may end in K, M or G.

    >>> parse_bytes("4G", "memory_pool_limits"), parse_bytes(16, "memory_pool_limits")
    (4294967296, 16)
    """
    if isinstance(value, (int, float)):
        return int(value)
    text = value.strip().upper()
    for unit, shift in (("K", 10), ("M", 20), ("G", 30)):
        for end in (unit, unit + "B", unit + "IB"):
            if text.endswith(end) and text[: -len(end)].replace(".", "", 1).isdigit():
                return int(float(text[: -len(end)]) * (1 << shift))
    if text.isdigit():
        return int(text)
    raise BadOption("%s: %r is no size; write bytes, or 512M, 4G" % (option, value))


def _shape(value: Any, name: str) -> Shape:
    if isinstance(value, Sequence) and all(isinstance(size, int) for size in value):
        return tuple(int(size) for size in value)
    raise BadOption("profiles: %r of input %r is no shape such as [1,3,8,8]" % (value, name))


def read_profiles(value: Any) -> Tuple[Profile, ...]:
    """Returns optimisation profiles as given: a list of ``{input: [min, opt, max]}``.

    >>> read_profiles([{"x": [[1, 3], [2, 3], [4, 3]]}])
    ({'x': ((1, 3), (2, 3), (4, 3))},)

    Raises:
        BadOption: It is something else, or a profile contradicts itself.
    """
    given = [value] if isinstance(value, Mapping) else value
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise BadOption("profiles must be a list such as [{x: [min, opt, max]}], not %r" % (value,))
    found: List[Profile] = []
    for each in given:
        if not isinstance(each, Mapping):
            raise BadOption("profiles: %r is no mapping of inputs to [min, opt, max]" % (each,))
        profile: Profile = {}
        for name, three in each.items():
            if not isinstance(three, Sequence) or isinstance(three, str) or len(three) != 3:
                raise BadOption("profiles: input %r needs [min, opt, max]" % name)
            low, usual, high = (_shape(one, str(name)) for one in three)
            ordered = len(low) == len(usual) == len(high) and all(
                a <= b <= c for a, b, c in zip(low, usual, high)
            )
            if not ordered:
                raise BadOption(
                    "profiles: input %r has min %s, opt %s, max %s; expected min <= opt <= max"
                    % (name, list(low), list(usual), list(high))
                )
            profile[str(name)] = (low, usual, high)
        found.append(profile)
    return tuple(found)


def covers(profile: Profile, ranges: Mapping[str, Range]) -> Optional[str]:
    """Returns why data lie outside a profile, or None when they lie inside."""
    for name, (low, _, high) in profile.items():
        seen = ranges.get(name)
        if seen is None:
            continue
        ends = seen["values"] if "values" in seen and len(seen["min"]) != len(low) else None
        small, large = (ends[0], ends[2]) if ends else (seen["min"], seen["max"])
        inside = len(small) == len(low) and all(
            a <= b and c <= d for a, b, c, d in zip(low, small, large, high)
        )
        if not inside:
            return "input %r has the shape %s, outside %s to %s" % (
                name,
                list(large) if list(small) == list(large) else [list(small), list(large)],
                list(low),
                list(high),
            )
    return None


def check_data(profiles: Sequence[Profile], ranges: Mapping[str, Range]) -> None:
    """Checks that the data lie within one of the profiles.

    Raises:
        BadOption: They do not; the message says which input.
    """
    reasons = [covers(profile, ranges) for profile in profiles]
    if profiles and all(reasons):
        raise BadOption("%s; give a profile that holds the data" % reasons[0])


def checked(given: Mapping[str, Any]) -> Settings:
    """Returns settings from options by name; what is none of them is a setting of the builder.

    Raises:
        BadOption: An option has a value that it cannot have.
    """
    options = dict(given)
    if options.get("tap_mode", "mark") not in TAP_MODES:
        raise BadOption("tap_mode: %r is none of %s" % (options["tap_mode"], ", ".join(TAP_MODES)))
    pools = mapping_in(options.pop("memory_pool_limits", None), "memory_pool_limits")
    known: Dict[str, Any] = {
        "flags": tuple(name.upper() for name in names_in(options.pop("flags", ()), "flags")),
        "profiles": read_profiles(options.pop("profiles", ())),
        "memory_pool_limits": {
            name.upper(): parse_bytes(size, "memory_pool_limits") for name, size in pools.items()
        },
    }
    held = options.pop("layer_precisions", None)
    if isinstance(held, (list, tuple)):  # the nodes that stay in float32
        held = dict.fromkeys(held, "fp32")
    known["layer_precisions"] = mapping_in(held, "layer_precisions")
    known["tactics"] = mapping_in(options.pop("tactics", None), "tactics")
    for name in ("compute_capabilities", "plugins"):
        known[name] = names_in(options.pop(name, ()), name)
    for each in fields(Settings):
        if each.name in options:
            known[each.name] = options.pop(each.name)
    return Settings(config=options, **known)

"""The timing cache: reused, saved, and edited entry by entry to force one tactic.

In editable mode (TensorRT 10.8 and later; TensorRT-RTX has the names and no effect) every layer
has a key of its own and the cache tells and takes the tactic of each.  Forcing: fill the cache
by one build, put the wanted tactic in, build again on it and check that nothing else moved.
Python 3.8; works on the module it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Dict, Optional

from debugtaps.engines.trt.log import Line, TensorRtError, profiled
from debugtaps.engines.trt.settings import BadOption, Settings

__all__ = ["Cache"]

_HASH = re.compile(r"0x[0-9a-fA-F]+")
_FORCED_MS = 1.0


class Cache:
    """The timing cache of one build; absent where nobody asked for one."""

    def __init__(self, trt: Any, config: Any, settings: Settings) -> None:
        self.trt, self.config, self.settings = trt, config, settings
        self.cache: Optional[Any] = None
        if not (settings.timing_cache or settings.save_timing_cache or settings.editable):
            return
        if settings.editable:
            for name in ("EDITABLE_TIMING_CACHE", "DISABLE_COMPILATION_CACHE"):
                flag = getattr(trt.BuilderFlag, name, None)
                if flag is None:
                    raise BadOption("tactics: an editable timing cache needs TensorRT 10.8")
                config.set_flag(flag)
        self._attach(self._given())

    def _given(self) -> bytes:
        if not self.settings.timing_cache:
            return b""
        path = Path(self.settings.timing_cache)
        if not path.is_file():
            if self.settings.save_timing_cache == self.settings.timing_cache:
                return b""  # as trtexec does: read when it is there, written in any case
            raise BadOption("timing_cache: there is no file %s" % path)
        return path.read_bytes()

    def _attach(self, data: bytes) -> None:
        self.cache = self.config.create_timing_cache(data)
        if self.cache is None or not self.config.set_timing_cache(self.cache, False):  # noqa: FBT003
            raise BadOption("timing_cache: TensorRT does not take it; was it made here?")

    def snapshot(self) -> Dict[str, int]:
        """Returns the tactic of each key; none where the cache is not editable."""
        if self.cache is None or not self.settings.editable:
            return {}
        cache = self.cache
        return {str(key): int(cache.query(key).tacticHash) for key in cache.queryKeys()}

    def replay(self, build: Callable[[], bytes]) -> bytes:
        """Returns the plan that ``build`` makes with the wanted tactics.

        Raises:
            BadOption: The cache has no such key, or takes no such tactic.
            TensorRtError: The build left what it was told to use.
        """
        wanted = {key: _hash(choice) for key, choice in self.settings.tactics.items()}
        if not wanted.keys() <= self.snapshot().keys():
            build()
        before = self.snapshot()
        for key, tactic in wanted.items():
            if key not in before:
                raise BadOption("tactics: this build times no %r; it times %d keys"
                                % (key, len(before)))  # fmt: skip
            self._force(key, tactic)
        before.update(wanted)
        self.config.set_flag(self.trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
        plan = build()
        moved = sorted(key for key, each in self.snapshot().items() if before.get(key) != each)
        if moved:
            raise TensorRtError("the build left the tactics it was told to use, at %s" % moved[0])
        return plan

    def _force(self, key: str, tactic: int) -> None:
        assert self.cache is not None
        cache, trt = self.cache, self.trt
        try:
            parsed = trt.TimingCacheKey.parse(key)
        except ValueError as error:
            raise BadOption("tactics: %r is no key: %s" % (key, error)) from error
        if not cache.update(parsed, trt.TimingCacheValue(tactic, _FORCED_MS)):
            raise BadOption("tactics: TensorRT does not take %#x for %s" % (tactic, key))

    def tactics(self, lines: Sequence[Line]) -> Mapping[str, str]:
        """Returns the tactic of each key, with the kernel's name where the log tells it."""
        kernels = {each.key.lower(): each.tactics for each in profiled(lines)}
        return {
            key: ("%#x %s" % (tactic, kernels.get(key.lower(), {}).get(tactic, ""))).strip()
            for key, tactic in self.snapshot().items()
        }

    def save(self) -> bytes:
        """Returns the cache's bytes, written to where the user wants them."""
        if self.cache is None:
            return b""
        data = bytes(self.cache.serialize())
        if self.settings.save_timing_cache:
            path = Path(self.settings.save_timing_cache)
            half = path.with_name(path.name + ".part")
            half.write_bytes(data)
            half.replace(path)
        return data


def _hash(choice: str) -> int:
    found = _HASH.match(str(choice).strip())
    if found is None:
        raise BadOption("tactics: %r does not begin with a tactic such as 0x1a2b" % (choice,))
    return int(found.group(0), 16)

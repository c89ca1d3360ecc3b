"""What an engine made of a model: who it is, which nodes run as one kernel, in which types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from debugtaps import Build, EngineFailure, EnvironmentFailure, Host, resolve
from tapsect.escape import LONGEST, clean

__all__ = ["describe_engine"]


def describe_engine(
    model: Path, spec: str, options: Mapping[str, Any], *, python: Path | None = None,
    timeout: float = 600.0,
) -> str:  # fmt: skip
    """Returns a description of the engine's build of a model.

    Raises:
        EnvironmentFailure: The engine cannot build it; its own words follow.
    """
    with Host(resolve(spec, options), python=python, timeout=timeout) as host:
        try:
            build = host.build(model)
        except EngineFailure as failure:
            first = next((s for s in failure.message.splitlines() if s.strip()), failure.kind)
            raise EnvironmentFailure(
                f"{spec} does not build {model} ({failure.kind}): {first[:300]}"
            ) from None
        with build:
            lines = _lines(spec, host, build)
            return "\n".join(clean(line, limit=LONGEST) for line in lines)


def _lines(spec: str, host: Host, build: Build) -> Iterator[str]:
    yield f"Engine {spec}"
    for key, value in host.describe().items():
        yield f"  {key}: {_told(value)}"
    fusions = build.fusions() or build.kernels()
    if not {"fusions", "kernels"} & set(build.has):
        yield "The engine does not say which nodes run as one kernel."
    else:
        fused = [group for group in fusions if len(group) > 1]
        yield f"{len(fused)} fused kernels"
        for number, group in enumerate(sorted(fused, key=sorted)):
            yield f"Kernel {number}: {' + '.join(sorted(group))}"
    precisions = build.precisions() if "precisions" in build.has else {}
    for name, kind in precisions.items():
        yield f"Layer {name}: {kind}"


def _told(value: Any) -> str:
    """Returns a value as people write it: no quotes, no brackets."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_told(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value))
    return str(value)

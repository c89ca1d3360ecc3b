"""What the user gave, read and checked: precision, reference, samples, golden values, judge."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from debugtaps import (
    Array,
    Graph,
    InputError,
    InputSpec,
    SpecError,
    Tolerance,
    load_golden,
    load_inputs,
    random_inputs,
)
from tapsect.replay.reference import numpy_dtype
from tapsect.rounding.floors import PRECISIONS

__all__ = [
    "Fixing",
    "Given",
    "Judge",
    "Options",
    "Source",
    "TapMode",
    "as_path",
    "golden_values",
    "load_judge",
    "read_samples",
    "stated_roundoff",
]

Judge = Callable[[Mapping[str, Array], Mapping[str, Array]], Any]
Source = str | Path | Mapping[str, Array]
TapMode = Literal["auto", "border", "mark", "debug"]


@dataclass(frozen=True, slots=True)
class Fixing:
    """How hard to look for what cures the failure.

    Attributes:
        thorough: Whether that is what was asked for; otherwise only the cheap ones are tried.
        knobs: The engine's options that may be turned; all when empty.
        fold_size: Bytes up to which a constant may grow when constants are folded.
        shapes: Shapes that inputs are frozen at before that; those of the sample when not given.
        precision_set: Whether to look for the nodes that must stay in fp32.
    """

    thorough: bool = False
    knobs: Sequence[str] = ()
    fold_size: int = 10_000_000
    shapes: Mapping[str, Sequence[int]] | None = None
    precision_set: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for; see ``tapsect bisect --help``."""

    model: Path
    inputs: Sequence[Source] = ()
    input_shapes: Mapping[str, Sequence[int]] | None = None
    engine: str = "ort"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    engine_python: Path | None = None
    reference: str | Path | None = None
    reference_model: Path | None = None
    precision: str | None = None
    tolerance: Tolerance | None = None
    judge: str | None = None
    tap_memory: int = 1 << 30
    tap_mode: TapMode = "auto"
    timeout: float = 600.0
    budget: float = 120.0
    out: Path | None = None
    seed: int = 0
    command: Sequence[str] = ()
    fixing: Fixing = Fixing()
    most_builds: int | None = None
    engine_file: Path | None = None
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Given:
    """The samples of a diagnosis: feeds, where each came from, and what had to be assumed."""

    samples: list[Mapping[str, Array]]
    origins: list[str]
    notes: list[str]


def as_path(value: str | Path | None) -> Path | None:
    """Returns a path that may have been given as text."""
    return None if value is None else Path(value)


def stated_roundoff(precision: str | None) -> float | None:
    """Returns the unit roundoff of ``--precision``.

    Raises:
        SpecError: No such precision.
    """
    if precision is None:
        return None
    if precision not in PRECISIONS:
        raise SpecError(
            f"--precision {precision!r} is not known; expected one of {', '.join(PRECISIONS)}"
        )
    return PRECISIONS[precision]


def read_samples(options: Options, graph: Graph) -> Given:
    """Returns what the model is fed, checked against its inputs; random data when none is given.

    Raises:
        InputError: The data or the shapes do not fit the model.
    """
    specs = [_spec(n, t.elem, t.shape) for n, t in graph.inputs.items()]
    specs += [_spec(n, t.elem, t.shape, optional=True) for n, t in graph.overridable.items()]
    if options.inputs:
        found = load_inputs(options.inputs, specs)
        if not found:
            raise InputError("the inputs hold no sample; give at least one")
        return Given([s.feeds for s in found], [s.origin for s in found], [])
    sample, warnings = random_inputs(specs, options.input_shapes, seed=options.seed)
    return Given([sample.feeds], [sample.origin], [f"inputs are {sample.origin}", *warnings])


def _spec(
    name: str, elem: int, shape: tuple[int | str | None, ...] | None, *, optional: bool = False
) -> InputSpec:
    dtype = numpy_dtype(elem)
    if dtype is None:
        return InputSpec(name, "string", shape, optional)
    return InputSpec(name, dtype, shape, optional)


def golden_values(path: Path, graph: Graph, samples: int) -> list[dict[str, Array]]:
    """Returns the golden values of each sample.

    Raises:
        InputError: Another number of samples, or an output is missing.
    """
    golden = load_golden(path)
    if len(golden) != samples:
        raise InputError(
            f"--reference {path} holds {len(golden)} samples, the inputs hold {samples}; "
            "give golden values for each sample"
        )
    for values in golden:
        missing = [n for n in graph.outputs if n not in values]
        if missing:
            raise InputError(
                f"--reference {path} lacks output {missing[0]!r}; it holds "
                f"{', '.join(sorted(values)[:6]) or 'nothing'}"
            )
        for name, kind in graph.outputs.items():
            _fits(path, name, values[name], kind.shape)
    return golden


def _fits(path: Path, name: str, value: Array, shape: tuple[int | str | None, ...] | None) -> None:
    """Golden values of another shape than the model declares belong to another model."""
    if shape is None:
        return
    same = len(shape) == value.ndim and all(
        not isinstance(want, int) or want == size
        for want, size in zip(shape, value.shape, strict=True)
    )
    if not same:
        wanted = ",".join("?" if d is None else str(d) for d in shape)
        raise InputError(
            f"--reference {path}: output {name!r} has shape {list(value.shape)}, the model "
            f"declares [{wanted}]; give golden values of this model"
        )


def load_judge(text: str) -> Judge:
    """Returns the function that ``file.py:function`` names.

    Raises:
        InputError: No such file or function, or the file raises.
    """
    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise InputError(f"--judge {text}: expected file.py:function of an existing file")
    spec = importlib.util.spec_from_file_location("tapsect_judge", path)
    if spec is None or spec.loader is None:
        raise InputError(f"--judge {path} is no Python file; expected file.py:function")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"--judge {path} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    judge = getattr(module, name, None)
    if not callable(judge):
        raise InputError(f"--judge {path} has no function {name!r}")
    found: Judge = judge
    return found

"""The model for the shapes that are fed: inputs frozen, constants and shape arithmetic folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from debugtaps import Array, UsageError, fold, freeze
from tapsect.diagnose.subject import Subject
from tapsect.simplify import TooLarge, whole

__all__ = ["Frozen", "check_shapes", "frozen"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A model for fixed shapes.

    Attributes:
        model: The model.
        how: What was done to it, as the beginning of a sentence.
        file: What it is called beside the result.
    """

    model: onnx.ModelProto
    how: str
    file: str


def check_shapes(subject: Subject) -> None:
    """Checks, before any work, that inputs can be frozen at the shapes that were asked for.

    Raises:
        UsageError: There is no such input, or a sample has another shape of it.
    """
    for name, shape in (subject.options.fixing.shapes or {}).items():
        told = f"--override-input-shapes {name}:{list(shape)}"
        if name not in subject.graph.inputs:
            listed = ", ".join(map(repr, subject.graph.inputs))
            raise UsageError(f"{told}: the model has no such input; it has {listed}")
        for number, sample in enumerate(subject.samples):
            if name in sample and sample[name].shape != tuple(shape):
                fed = list(sample[name].shape)
                raise UsageError(
                    f"{told}: sample {number} has {fed}, and a frozen input takes one shape only;"
                    " give data of that shape by --inputs or --input-shapes"
                )


def frozen(subject: Subject) -> Frozen | None:
    """Returns the model for the shapes that all samples share; None where nothing changes."""
    fixing = subject.options.fixing
    try:
        given = whole(
            onnx.load(subject.model, load_external_data=False), Path(subject.model).parent
        )
    except TooLarge:
        return None
    fixed = freeze(given, {**_shared(subject.samples), **(fixing.shapes or {})})
    made = fold(fixed, most=fixing.fold_size, shapes=True)
    if made is not None:
        return Frozen(made, "folding", "folded.onnx")
    if list(fixed.graph.input) == list(given.graph.input):
        return None
    return Frozen(fixed, "freezing the inputs", "frozen.onnx")


def _shared(samples: Sequence[Mapping[str, Array]]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of inputs that are the same in all samples."""
    return {
        name: value.shape
        for name, value in samples[0].items()
        if all(name in each and each[name].shape == value.shape for each in samples)
    }

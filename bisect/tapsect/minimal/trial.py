"""What a check is given: a model that can be run by itself, and what it is fed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto

from debugtaps import Array
from tapsect.simplify import TooLarge, whole

__all__ = ["Trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A model to be judged.

    Attributes:
        model: The model; large weights may lie outside, in ``folder``.
        folder: Where its weights lie.
        samples: What it is fed, one mapping a sample.
        nodes: How many nodes it has.
        label: What it is, in words.
    """

    model: ModelProto = field(repr=False)
    folder: Path
    samples: Sequence[Mapping[str, Array]] = field(repr=False)
    nodes: int
    label: str = ""

    def key(self, *, fed: bool) -> str:
        """Returns what tells it from others: the model, and the samples if they are ``fed``."""
        found = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        for sample in self.samples if fed else ():
            for name in sorted(sample):
                value = sample[name]
                found.update(f"{name}\0{value.dtype}{value.shape}".encode())
                text = value.dtype.kind in "OUST"
                found.update(
                    repr(value.tolist()).encode() if text else np.ascontiguousarray(value).tobytes()
                )
        return found.hexdigest()

    def write(self, path: Path) -> None:
        """Writes the model to ``path``, weights inside; it appears whole or not at all.

        Where the weights do not fit they stand beside it as ``<name>.data``.
        """
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            temporary.write_bytes(whole(self.model, self.folder).SerializeToString())
        except (TooLarge, ValueError, EncodeError):
            full = ModelProto()
            full.CopyFrom(self.model)
            onnx.load_external_data_for_model(full, str(self.folder))
            onnx.save_model(
                full, temporary, save_as_external_data=True, location=f"{path.name}.data"
            )
        os.replace(temporary, path)

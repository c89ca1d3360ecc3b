"""What is asked of an engine: one build and its runs, known by its content.

The key of a request is the candidate's bytes, the taps, the engine with its options and the inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from debugtaps import Array

__all__ = ["About", "Request", "Sample", "content_key", "digest_of"]

Sample = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Request:
    """One build of a candidate and its runs; requests of equal content are equal.

    Attributes:
        key: The content: bytes of the candidate, taps, engine with options, inputs.
        model: The candidate, taps promoted.
        samples: Feeds; those the candidate does not read are ignored.
        options: Of the engine.
        taps: Tensors among its outputs that are taps.
        purpose: For the journal.
        details: Whether to ask for fusions and precisions as well.
        kernels: Whether to ask for fusions where the engine has to build once more to tell.
        keep: Whether values are worth keeping for a resumed diagnosis.
        timed: Whether to measure the latency of the first sample as well.
        plan: A file of the engine's to load, in place of a build.
        own: Whether the file is this request's own, and goes with it.
        patience: How many times the longest build so far it may take, where that is more than
            usual.
    """

    key: str
    model: Path = field(compare=False)
    samples: Sequence[Sample] = field(compare=False)
    options: Mapping[str, Any] = field(compare=False)
    taps: Sequence[str] = field(default=(), compare=False)
    purpose: str = field(default="", compare=False)
    details: bool = field(default=False, compare=False)
    kernels: bool = field(default=False, compare=False)
    keep: bool = field(default=True, compare=False)
    timed: bool = field(default=False, compare=False)
    plan: Path | None = field(default=None, compare=False)
    own: bool = field(default=False, compare=False)
    patience: float = field(default=0.0, compare=False)


class About(TypedDict, total=False):
    """The fields of a request beside its model, samples and number."""

    taps: Sequence[str]
    purpose: str
    details: bool
    kernels: bool
    keep: bool
    timed: bool
    plan: Path | None
    own: bool
    patience: float


def digest_of(path: Path) -> str:
    """Returns the digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_key(
    identity: str, model: bytes, taps: Sequence[str], samples: Sequence[Sample], salt: str
) -> str:
    """Returns the key of a request.

    Args:
        identity: Engine, options and interpreter.
        model: The candidate's bytes.
        taps: Tensors among its outputs that are taps.
        samples: Feeds.
        salt: What else tells requests of equal content apart.
    """
    digest = hashlib.sha256(identity.encode())
    for part in (model, "\0".join(taps).encode(), salt.encode()):
        digest.update(hashlib.sha256(part).digest())
    for sample in samples:
        for name in sorted(sample):
            value = np.ascontiguousarray(sample[name])
            digest.update(f"{name}{value.dtype}{value.shape}".encode())
            if value.dtype.kind in "OU":
                digest.update(repr(value.tolist()).encode())
            else:
                digest.update(
                    value.view(np.uint8).data if value.size and value.ndim else value.tobytes()
                )
    return digest.hexdigest()

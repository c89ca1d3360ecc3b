"""Large models read without their weights: the bytes go from file to file, never into a message.

A parsed message keeps what it has parsed for as long as any part of it lives, so that weights
that are moved out of it afterwards are held all the same.  Here the file is walked as protobuf
lays it out: tag, length, content.  What is not the raw data of a large initializer is copied as
it stands::

    ModelProto ─7─▶ GraphProto ─5─▶ TensorProto ─9─▶ raw data      ──▶ weight file
                                              └─13, 14─ where it lies now
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import set_external_data

__all__ = ["LARGE", "slimmed"]

LARGE = 1 << 26
"""Bytes from which on a file is read this way."""
_LEAST = 1024
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECE = 1 << 24

Span = tuple[int, int]


class NotPlain(Exception):
    """The file is not laid out as protobuf lays out a model."""


def slimmed(path: Path, folder: Path, name: str) -> ModelProto | None:
    """Returns a model whose large inline weights lie in ``folder / name``.

    Args:
        path: The model.
        folder: Where the weight file is written; it appears whole or not at all.
        name: Of the weight file.

    Returns:
        ``None`` where the file holds none, or is no plain model: then it is read as any other.
    """
    part = folder / f"{name}.{os.getpid()}.part"
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            part.open("wb") as weights,
        ):
            text = b"".join(_slim_model(data, weights, name))
            moved = weights.tell()
        if not moved:
            return None
        model: ModelProto = ModelProto.FromString(text)
        os.replace(part, folder / name)
        return model
    except (NotPlain, DecodeError, ValueError):
        return None
    finally:
        part.unlink(missing_ok=True)


def _slim_model(data: mmap.mmap, weights: IO[bytes], name: str) -> Iterator[bytes]:
    for number, whole, inner in _fields(data, (0, len(data))):
        if number != _GRAPH or inner is None:
            yield data[whole[0] : whole[1]]
            continue
        graph = b"".join(_slim_graph(data, inner, weights, name))
        yield _field(_GRAPH, graph)


def _slim_graph(data: mmap.mmap, graph: Span, weights: IO[bytes], name: str) -> Iterator[bytes]:
    for number, whole, inner in _fields(data, graph):
        if number == _INITIALIZER and inner is not None and inner[1] - inner[0] >= _LEAST:
            yield _field(_INITIALIZER, _slim_tensor(data, inner, weights, name))
        else:
            yield data[whole[0] : whole[1]]


def _slim_tensor(data: mmap.mmap, tensor: Span, weights: IO[bytes], name: str) -> bytes:
    kept, raw = [], None
    for number, whole, inner in _fields(data, tensor):
        if number == _RAW and inner is not None:
            raw = inner
        else:
            kept.append(data[whole[0] : whole[1]])
    if raw is None or raw[1] - raw[0] < _LEAST:
        return data[tensor[0] : tensor[1]]
    weights.write(b"\0" * (-weights.tell() % 64))
    start = weights.tell()
    for at in range(raw[0], raw[1], _PIECE):
        weights.write(data[at : min(at + _PIECE, raw[1])])
        if hasattr(mmap, "MADV_DONTNEED"):
            data.madvise(mmap.MADV_DONTNEED)  # what was read is not held until the end
    slim: TensorProto = TensorProto.FromString(b"".join(kept))
    slim.raw_data = b"elsewhere"
    set_external_data(slim, name, start, raw[1] - raw[0])
    slim.ClearField("raw_data")
    made: bytes = slim.SerializeToString()
    return made


def _fields(data: mmap.mmap, span: Span) -> Iterator[tuple[int, Span, Span | None]]:
    """Yields each field of a message: its number, all of it, and its content if it has a length."""
    at, end = span
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        kind, inner = tag & 7, None
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            size, at = _varint(data, at, end)
            inner = (at, at + size)
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise NotPlain
        if at > end:
            raise NotPlain
        yield tag >> 3, (start, at), inner


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise NotPlain


def _field(number: int, content: bytes) -> bytes:
    head, size = bytearray([number << 3 | _BYTES]), len(content)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + content

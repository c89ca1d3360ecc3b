"""A model in one file, or with its weights beside it where they do not fit."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["LARGEST", "copy_model"]

LARGEST = (1 << 31) - (1 << 20)
"""Bytes of weights that fit into one file; the rest is for the graph."""


def copy_model(path: Path, model: bytes | Path) -> None:
    """Writes a model into a folder that nobody reads yet.

    Args:
        path: Where.
        model: Its bytes, or another file of it: weights beside that are taken in, and stand as
            ``<name>.data`` beside ``path`` when they do not fit into one file.
    """
    if isinstance(model, bytes):
        path.write_bytes(model)
        return
    import onnx
    from google.protobuf.message import EncodeError

    shell = onnx.load(model, load_external_data=False)
    full = onnx.load(model)
    with suppress(ValueError, EncodeError):  # over 2 GB in one message
        size = full.ByteSize()
        if shell.ByteSize() == size:
            shutil.copyfile(model, path)
            return
        if size <= LARGEST:
            path.write_bytes(full.SerializeToString())
            return
    onnx.save_model(full, path, save_as_external_data=True, location=f"{path.name}.data")

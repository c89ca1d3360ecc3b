"""A model on the disk, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto

from debugtaps import OutputError, write_atomic

__all__ = ["save_part"]


def save_part(model: ModelProto, path: Path) -> None:
    """Writes a model; weights that one file cannot hold go beside it.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = model.SerializeToString()
        write_atomic(path, lambda file: file.writelines([data]))
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}).") from None
    except (ValueError, EncodeError):
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data")

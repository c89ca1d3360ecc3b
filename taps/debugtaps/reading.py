"""An ONNX file becomes a message: read whole or without its weights, and checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from debugtaps.errors import ModelError
from debugtaps.slimming import LARGE, slimmed
from debugtaps.weights import own_files

__all__ = ["check_model", "check_opset", "read_model", "standard_opset", "typed_outputs"]


def read_model(path: Path, folder: Path) -> tuple[ModelProto, str]:
    """Returns a model without its external weights, and the digest of its file.

    Args:
        path: An ONNX file.
        folder: Where the weights of a large file go, past the memory of this process.

    Raises:
        ModelError: The file is missing, truncated or not ONNX.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file; expected an ONNX model")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; expected an ONNX file")
    if path.suffix == ".py":
        raise ModelError(f"{path}: is Python; export it to ONNX first (torch.onnx.export)")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: is empty; expected an ONNX model")
    try:
        digest = _sha256(path)
        model = _slim(path, folder, digest) or onnx.load_model(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf raises its own, undocumented kinds
        raise ModelError(
            f"{path}: is not an ONNX model, or is truncated "
            f"({path.stat().st_size} bytes read); export or copy it again"
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path}: holds no graph; expected an ONNX model with nodes and outputs")
    if not model.graph.output:
        raise ModelError(f"{path}: has no outputs, so nothing can be compared; export it again")
    return model, digest


def _slim(path: Path, folder: Path, digest: str) -> ModelProto | None:
    if path.stat().st_size < LARGE:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return slimmed(path, folder, own_files(digest)[1])


def check_opset(path: Path, model: ModelProto) -> None:
    """Checks that the installed onnx knows the operators of the model."""
    known, asked = onnx.defs.onnx_opset_version(), standard_opset(model)
    if asked > known:
        raise ModelError(
            f"{path}: uses opset {asked}, the installed onnx {onnx.__version__} knows opsets up to "
            f"{known}; install a newer onnx, or export with an older opset"
        )


def check_model(path: Path, model: ModelProto, shell: Path) -> None:
    """Lets onnx check the model without its weights, so that they are not held a second time."""
    shell.write_bytes(typed_outputs(model).SerializeToString())
    try:
        onnx.checker.check_model(str(shell))
    except Exception as error:  # ValidationError and, for odd files, others
        lines = [s.strip() for s in str(error).splitlines() if s.strip() and "==>" not in s]
        first = lines[0] if lines else type(error).__name__
        if "topological" in first or "sorted" in first:
            return  # engines take such models; the nodes are sorted below
        raise ModelError(f"{path}: is not valid ONNX: {first[:400]}") from error
    finally:
        shell.unlink()


def typed_outputs(model: ModelProto) -> ModelProto:
    """Returns the model with a type on every output, for the check only.

    What leaves a plugin has no type that anybody could infer; engines that run the plugin know it.
    """
    if all(_declared(value) for value in model.graph.output):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        if not _declared(value):
            kind = value.type.tensor_type
            kind.elem_type = kind.elem_type or TensorProto.FLOAT
            kind.shape.SetInParent()
    return copy


def _declared(value: ValueInfoProto) -> bool:
    if value.type.HasField("tensor_type"):
        return value.type.tensor_type.HasField("shape") and value.type.tensor_type.elem_type != 0
    return value.type.WhichOneof("value") is not None


def standard_opset(model: ModelProto) -> int:
    """Returns the version of the standard domain."""
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

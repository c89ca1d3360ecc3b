"""The weights of a model on disk: where they lie, and one file of ours that holds them.

Weights that lie outside are cloned into the working folder where the disk can do that, else
copied once: links will not do, since runtimes refuse symbolic ones, and onnx refuses a file with
two names, the user's own among them.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from debugtaps.errors import ModelError

__all__ = [
    "check_weights",
    "external_files",
    "load_array",
    "move_weights",
    "offload",
    "own_files",
]

_INLINE_BYTES = 1024
_OFFLOAD_TOTAL = 1 << 20
_FICLONE = 0x40049409  # Linux: share the blocks of another file


def own_files(digest: str) -> tuple[str, str]:
    """Returns the names of our weight files: for tensors of a message, for raw data of a file."""
    return f"weights-{digest[:16]}.bin", f"weights-{digest[:16]}-raw.bin"


def check_weights(path: Path, model: ModelProto, digest: str) -> None:
    """Checks that every weight lies beside the model, and whole.

    Raises:
        ModelError: One does not; the message names tensor, file and mend.
    """
    base, moved = path.parent.resolve(), own_files(digest)[1]
    for tensor in _tensors(model.graph):
        where = {e.key: e.value for e in tensor.external_data}
        held = len(tensor.raw_data)
        if tensor.data_location == TensorProto.EXTERNAL:
            if where.get("location") != moved:
                _check_outside(path, base, tensor)
                continue
            held = int(where["length"])
        elif not tensor.HasField("raw_data"):
            continue
        needed = _bytes_of(tensor)
        if needed is not None and held < needed:
            raise ModelError(
                f"{path}: is not valid ONNX: {tensor.name!r} holds {held} "
                f"bytes, too small for its shape and type ({needed}); export the model again"
            )


def _check_outside(path: Path, base: Path, tensor: TensorProto) -> None:
    where = {e.key: e.value for e in tensor.external_data}
    shown = f"{where.get('location')!r}"
    file = (base / where.get("location", "")).resolve()
    if not file.is_relative_to(base) or file == base:
        raise ModelError(
            f"{path}: weights of {tensor.name!r} point outside the model's folder ({shown}); "
            "copy the model and its weights into one folder (cp -L)"
        )
    if not file.is_file():
        raise ModelError(
            f"{path}: the weight file {shown} of {tensor.name!r} is missing; "
            "put it beside the model"
        )
    end = _end_of(path, tensor.name, where)
    if file.stat().st_size < end:
        raise ModelError(
            f"{path}: the weight file {shown} ends before {tensor.name!r} "
            f"({file.stat().st_size} bytes, {end} needed); copy it again"
        )


def _bytes_of(tensor: TensorProto) -> int | None:
    """Returns how many bytes a tensor needs; None for types that are packed or have no size."""
    if tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return None
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return None
    if dtype.name.startswith(("int4", "uint4", "float4", "int2", "uint2")):
        return None  # several to a byte
    return int(math.prod(tensor.dims) * dtype.itemsize)


def _end_of(path: Path, name: str, where: Mapping[str, str]) -> int:
    """Returns where the bytes of an external tensor end in its file."""
    try:
        offset, length = (int(where.get(key) or 0) for key in ("offset", "length"))
    except ValueError:
        offset = length = -1
    if min(offset, length) < 0:
        raise ModelError(
            f"{path}: offset or length of the external weights of {name!r} is no number; "
            "save the model again"
        )
    return offset + length


def external_files(path: Path) -> tuple[str, ...]:
    """Returns the files beside a model that hold its weights, relative to its folder."""
    model = onnx.load_model(str(path), load_external_data=False)
    found = {
        os.path.normpath(entry.value)
        for tensor in _tensors(model.graph)
        for entry in tensor.external_data
        if tensor.data_location == TensorProto.EXTERNAL and entry.key == "location"
    }
    return tuple(sorted(found))


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def move_weights(model: ModelProto, base: Path, folder: Path, digest: str) -> str:
    """Leaves small tensors inline; large ones point at files of ``folder``.

    Returns:
        What tells one state of the weight files from another, without reading them.
    """
    state: list[str] = []
    own, here = own_files(digest), base.resolve() == folder.resolve()
    inline = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
    big = [t for t in inline if t.ByteSize() >= _INLINE_BYTES and t.data_type != TensorProto.STRING]
    if sum(t.ByteSize() for t in big) > _OFFLOAD_TOTAL:
        offload(big, folder, own[0])
    linked: dict[str, str] = {}
    for tensor in _tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location" and not here and entry.value not in own:
                source = base / entry.value
                if entry.value not in linked:
                    facts = source.stat()
                    state.append(f"{entry.value}:{facts.st_size}:{facts.st_mtime_ns}")
                    linked[entry.value] = bring_file(source, folder, digest, len(linked))
                entry.value = linked[entry.value]
    return "|".join(state)


def _raw(tensor: TensorProto) -> bytes:
    if tensor.raw_data:
        return tensor.raw_data
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def offload(
    tensors: Sequence[TensorProto], folder: Path, name: str,
    raw_of: Callable[[TensorProto], bytes | memoryview] = _raw,
) -> None:  # fmt: skip
    """Writes tensors into one file of ``folder`` and lets the protos point at it.

    Args:
        tensors: The protos.
        folder: Where the file is written; it appears whole or not at all.
        name: Of the file.
        raw_of: Gives the bytes of a tensor; those of one are held at a time.
    """
    target, offset = folder / name, 0
    temporary = target.with_name(f"{name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        for tensor in tensors:
            raw = raw_of(tensor)
            pad = -offset % 64
            file.write(b"\0" * pad)
            offset += pad
            file.write(raw)
            for kind in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(kind)
            onnx.external_data_helper.set_external_data(tensor, name, offset, len(raw))
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            offset += len(raw)
    os.replace(temporary, target)


def bring_file(source: Path, folder: Path, digest: str, number: int) -> str:
    """Brings a weight file into ``folder``, sharing its blocks where the disk can."""
    name = f"weights-{digest[:16]}-{number}.bin"
    target = folder / name
    temporary = target.with_name(f"{name}.{os.getpid()}.part")
    with source.open("rb") as given, temporary.open("wb") as made:
        try:
            fcntl.ioctl(made.fileno(), _FICLONE, given.fileno())
        except OSError:
            shutil.copyfileobj(given, made, 1 << 22)
    os.replace(temporary, target)
    return name


def load_array(tensor: TensorProto, folder: Path) -> np.ndarray:
    """Returns the values of a constant, read from ``folder`` where they lie outside."""
    return numpy_helper.to_array(tensor, base_dir=str(folder))

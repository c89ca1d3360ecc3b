"""From a torch model file to ONNX, with taps alive as far as the graph lets them.

Exported once.  A tap is no node of the result: the translation of its side branch only notes which
value it looks at, and that value is then followed through every rewrite by its name, or by that
of a copy.  So fusions happen as they would without taps, and what they swallow is told.

Traces of the Python stack are removed (they hold paths and source text, and differ between files
that differ only in taps); lines and scopes of tensors are returned for a file beside the model.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from debugtaps.custom_ops import operator_key, translations_for, used_operators
from debugtaps.errors import ModelError, TapsError
from debugtaps.export_errors import explain_export
from debugtaps.recording import Recorder, observe_op, observing, repeated
from debugtaps.sources import Source, read_sources
from debugtaps.store import write_atomic
from debugtaps.survival import Followed, Survey, survey
from debugtaps.torch_file import TorchFile, require_torch

__all__ = ["Exported", "export_torch"]

_EXTERNAL_BYTES = 1_500_000_000
_STACK, _FX = "pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node"
_USERS = re.compile(r"\[num_users=\d+\]")


@dataclass(frozen=True, slots=True)
class Exported:
    """A model as it was exported.

    Attributes:
        path: The ONNX file.
        program: The exporter's own result; its ``exported_program`` is what was translated.
        taps: What became of each tap.
        sources: Python line and scope by tensor.
        operators: Operators of the user's own that the model calls.
        notes: What had to be done by ourselves, such as translations.
    """

    path: Path
    program: Any
    taps: Mapping[str, Followed]
    sources: Mapping[str, Source]
    operators: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()


def export_torch(file: TorchFile, path: Path, *, recorder: Recorder | None = None) -> Exported:
    """Exports a model to ``path``.

    Args:
        file: The model.
        path: The ONNX file; weights above 1.5 GB go to ``path.data``.
        recorder: Given when taps shall be followed; learns where each stands.

    Raises:
        ModelError: The model cannot be exported, or the exporter wrote an invalid file.
        TapError: Two taps of the trace bear one name.
    """
    require_torch()
    looked: dict[str, Any] = {}
    with _silent():
        table = translations_for(file.translations)
        program = _traced(file, table, recorder, looked)
        surveyed = survey(program.model, looked) if recorder is not None else None
        program.optimize()
        sources = read_sources(program.model, file.home, _STACK)
        _canonical(program.model)
        _save(program, path)
    _check(file, path)
    operators = tuple(used_operators(program.exported_program))
    notes = tuple(f"operator {op} is exported as a node {operator_key(op)}"
                  for op in operators if op in table and op not in file.translations)  # fmt: skip
    taps = _followed(program, recorder, surveyed)
    return Exported(path, program, taps, sources, operators, notes)


def _traced(
    file: TorchFile, table: dict[Any, Any], recorder: Recorder | None, looked: dict[str, Any]
) -> Any:
    import torch

    if recorder is not None:
        table = {**table, observe_op(): _look(looked)}
    options: dict[str, Any] = {} if file.opset is None else {"opset_version": file.opset}
    block = observing(recorder) if recorder is not None else nullcontext()
    try:
        with block, torch.no_grad():
            return torch.onnx.export(
                file.model,
                file.args,
                kwargs=dict(file.kwargs) or None,
                dynamo=True,
                optimize=False,
                verbose=False,
                dynamic_shapes=file.dynamic_shapes,
                custom_translation_table=table or None,
                **options,
            )
    except TapsError:
        raise
    except Exception as error:  # every layer of the exporter has kinds of its own
        raise explain_export(error, file) from error


def _look(looked: dict[str, Any]) -> Any:
    from onnxscript import opset18

    def translate(x: Any, name: str) -> Any:
        looked.setdefault(name, x)
        return opset18.Identity(x)  # nothing reads it, so the exporter's clean-up removes it

    return translate


@contextmanager
def _silent() -> Iterator[None]:
    """The exporter logs, warns and prints; what matters of it is checked and told by us."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        said = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _canonical(model: Any) -> None:
    import onnx_ir

    for graph in (model.graph, *model.functions.values()):
        for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
            node.metadata_props.pop(_STACK, None)
            if _FX in node.metadata_props:
                node.metadata_props[_FX] = _USERS.sub("", node.metadata_props[_FX])


def _save(program: Any, path: Path) -> None:
    size = sum(v.const_value.nbytes for v in program.model.graph.initializers.values()
               if v.const_value is not None)  # fmt: skip
    if size > _EXTERNAL_BYTES:
        program.save(str(path), external_data=True)
        return
    data = onnx_bytes(program)
    write_atomic(path, lambda stream: _write(stream, data))


def onnx_bytes(program: Any) -> bytes:
    """Returns an exported program as the bytes of an ONNX file."""
    data: bytes = program.model_proto.SerializeToString()
    return data


def _write(stream: Any, data: bytes) -> None:
    stream.write(data)


def _check(file: TorchFile, path: Path) -> None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, and others for odd files
        wanted = f" at opset {file.opset}" if file.opset else ""
        raise ModelError(
            f"{file.path}: the exporter wrote a model that is not valid ONNX{wanted}: "
            f"{str(error).strip().splitlines()[0][:300]}; try another opset_version (18 to 23)"
        ) from error
    if file.opset is None:
        return
    model = onnx.load_model(str(path), load_external_data=False)
    found = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
    if found != {file.opset}:
        raise ModelError(
            f"{file.path}: opset_version is {file.opset}, the exporter wrote "
            f"{', '.join(map(str, sorted(found)))}; ask for an opset that it knows (18 to 23)"
        )


def _followed(
    program: Any, recorder: Recorder | None, surveyed: Survey | None
) -> dict[str, Followed]:
    if recorder is None or surveyed is None:
        return {}
    seen: dict[str, str] = {}
    inner: set[str] = set()
    op = observe_op()
    for path, module in program.exported_program.graph_module.named_modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op == "call_function" and node.target is op:
                name = str(node.args[1])
                place = recorder.places.get(name, "")
                if name in seen:
                    raise repeated(name, seen[name], place)
                seen[name] = place
                if path:
                    inner.add(name)
    return surveyed.followed(program.model, seen, inner)

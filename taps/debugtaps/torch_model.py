"""A torch model as a reference for everything: exported once, its inner values at hand.

>>> from debugtaps import open_torch_model  # doctest: +SKIP
>>> model = open_torch_model(Path("model.py"))  # doctest: +SKIP
>>> path = model.export(Path("build"))  # doctest: +SKIP
>>> model.values().mapped  # doctest: +SKIP
48
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import ModelError, UsageError
from debugtaps.export import Exported, export_torch
from debugtaps.graph import load_graph
from debugtaps.plugins import boundaries, load_references, reference_functions
from debugtaps.recording import Recorder
from debugtaps.sources import Source, write_sources
from debugtaps.torch_capture import TorchValues, arguments_for, feeds_of, obtain
from debugtaps.torch_file import TorchFile, load_torch_file
from debugtaps.torch_run import EagerRun, run_eager

__all__ = ["TorchModel", "open_torch_model"]

Array = npt.NDArray[Any]


class TorchModel:
    """A torch model file, run once in eager torch, its taps recorded.

    Args:
        file: The model, loaded.
        plugin_references: Functions by ``domain::Op``.
    """

    def __init__(self, file: TorchFile, plugin_references: Mapping[str, Any]) -> None:
        self.file = file
        self._references = plugin_references
        self._eager: EagerRun = run_eager(file, taps=True)
        self._exported: Exported | None = None
        self._values: TorchValues | None = None

    @property
    def args(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Returns the arguments of ``forward``: positional ones, keyword ones."""
        return self.file.args, self.file.kwargs

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns what was assumed or changed, and whether ``forward`` is random."""
        random = "forward is random: two runs of torch on the same inputs differ"
        told = (random,) if self._eager.random or self._eager.random_taps else ()
        made = self._exported.notes if self._exported is not None else ()
        return (*self.file.notes, *told, *made)

    @property
    def random(self) -> bool:
        """Returns whether two runs of torch on the same inputs differ."""
        return bool(self._eager.random)

    def export(self, folder: Path) -> Path:
        """Exports to ``folder`` and returns the ONNX file; its source lines lie beside it.

        The file is the one that ``prepare`` writes with its taps off, unless a tap looks at
        what nothing else needs.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.file.path.stem}.onnx"
        self._exported = export_torch(self.file, path, recorder=Recorder(keep=False))
        self._values = None
        write_sources(path, self._exported.sources)
        return path

    @property
    def exported(self) -> Exported:
        """Returns the export.

        Raises:
            UsageError: ``export`` was not called yet.
        """
        if self._exported is None:
            raise UsageError("export the model first: TorchModel.export(folder)")
        return self._exported

    @property
    def feeds(self) -> dict[str, Array]:
        """Returns the inputs by ONNX name."""
        names = [v.name for v in self.exported.program.model.graph.inputs]
        return feeds_of(self.exported.program, self.args, names)

    @property
    def outputs(self) -> dict[str, Array]:
        """Returns what eager torch computed, by ONNX output name.

        Raises:
            ModelError: The export has another number of outputs.
        """
        names = [str(v.name) for v in self.exported.program.model.graph.outputs]
        found = self._eager.outputs
        if len(names) != len(found):
            raise ModelError(
                f"{self.file.path}: forward returns {len(found)} tensors, the exported model has "
                f"{len(names)} outputs; return each tensor once"
            )
        return dict(zip(names, found, strict=True))

    def on(self, feeds: Mapping[str, Array]) -> TorchModel:
        """Returns the same model and export, run on other inputs.

        Args:
            feeds: By ONNX name.

        Raises:
            ModelCodeError: ``forward`` raised.
        """
        args, kwargs = arguments_for(self.exported.program, self.args, feeds)
        other = copy.copy(self)
        other.file = replace(self.file, args=args, kwargs=kwargs)
        other._eager, other._values = run_eager(other.file, taps=True), None
        return other

    def values(self) -> TorchValues:
        """Returns torch's values for the tensors of the export, computed once."""
        if self._values is None:
            path = self.exported.path
            graph = load_graph(path, path.parent / f".{path.stem}.values")
            functions = reference_functions(self._references, self.exported.operators)
            with Host(resolve("ort-reference")) as host:
                self._values = obtain(
                    self.exported.program, self.args, graph, host, functions=functions
                )
            _remove(graph.folder)
        return self._values

    @property
    def sources(self) -> Mapping[str, Source]:
        """Returns Python line and module by ONNX tensor."""
        return self.exported.sources

    @property
    def taps(self) -> dict[str, str]:
        """Returns the tensor that holds the value of each tap that survived the export."""
        return {n: f.tensor for n, f in self.exported.taps.items() if f.tensor}

    @property
    def boundaries(self) -> dict[str, str]:
        """Returns the tensors at the boundaries of plugins, by the boundary's name."""
        path = self.exported.path
        graph = load_graph(path, path.parent / f".{path.stem}.boundaries")
        found = {b.name: b.tensor for b in boundaries(graph)}
        _remove(graph.folder)
        return found


def open_torch_model(path: Path, *, plugin_references: Sequence[str] = ()) -> TorchModel:
    """Returns the model of a Python file with ``Model`` and ``get_fwd_args()``.

    Args:
        path: The file.
        plugin_references: ``domain::Op=module:function``, what a plugin should compute.

    Raises:
        ModelError: The file lacks something.
        ModelCodeError: Its own code raised.
    """
    return TorchModel(load_torch_file(Path(path)), load_references(plugin_references))


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)

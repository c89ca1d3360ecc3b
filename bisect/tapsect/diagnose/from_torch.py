"""A Python file with a torch model, made into what the flow takes: an ONNX file and its truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from debugtaps import Array, Graph, InputError, TorchModel, open_torch_model
from tapsect.diagnose.given import Given, Options, read_samples
from tapsect.finding import Divergence

__all__ = ["FromTorch", "TorchRun"]


@dataclass(frozen=True, slots=True)
class TorchRun:
    """What torch computes for one sample.

    Attributes:
        outputs: By name of the exported output.
        inner: Tensors between that have a value of the torch run, by ONNX name.
    """

    outputs: dict[str, Array]
    inner: Mapping[str, Array]


class FromTorch:
    """The torch side of a diagnosis.

    Args:
        options: What the user asked for; ``model`` is the Python file.
        work: Where the export is written.

    Attributes:
        path: The exported model.
        told: What torch computes, by sample; None before `read`, and when ``forward`` is random.

    Raises:
        UsageError: The file lacks something, its own code raised, or options do not fit it.
        MissingPackage: torch is not installed.
    """

    def __init__(self, options: Options, work: Path) -> None:
        _check(options)
        self.model = open_torch_model(options.model)
        self.path = self.model.export(work / "torch")
        self.told: list[TorchRun] | None = None

    def read(self, options: Options, graph: Graph) -> Given:
        """Returns the samples; runs torch on each."""
        if options.inputs:
            given = read_samples(options, graph)
            runs = [self.model.on(feeds) for feeds in given.samples]
        else:
            said = "inputs are what get_fwd_args() returns"
            given = Given([self.model.feeds], ["get_fwd_args()"], [said])
            runs = [self.model]
        given.notes.extend(self.model.notes)
        if any(run.random for run in runs):
            given.notes.append("torch is not compared: the run of the exported model is the truth")
        else:
            self.told = [_run(run) for run in runs]
            values = self.model.values()
            given.notes.append(f"{values.mapped} of {values.total} tensors have a torch value")
        return given

    @cached_property
    def _taps(self) -> dict[str, str]:
        """Returns tensor -> the name that the user, or else a plugin's boundary, gave it."""
        both = (self.model.boundaries, self.model.taps)
        return {tensor: name for names in both for name, tensor in names.items()}

    def named(self, found: Divergence, graph: Graph) -> Divergence:
        """Returns a place with its line of Python and the name of its tap."""
        wanted = set(found.nodes)
        parts = [t for n in graph.nodes if n.name in wanted for t in n.writes]
        sources = self.model.sources
        lines = (sources[t].line for t in (found.tensor, *reversed(parts)) if t in sources)
        return replace(
            found,
            source=next((line for line in lines if line), None),
            tap=self._taps.get(found.tap or found.tensor, found.tap),
        )


def _run(model: TorchModel) -> TorchRun:
    values = model.values()
    inner = {t: values.values[t] for t, o in values.origins.items() if o in ("torch", "moved")}
    return TorchRun(model.outputs, inner)


def _check(options: Options) -> None:
    """Torch is the original and tells the outputs; its arguments have the shapes."""
    told = "for a Python model"
    if options.reference_model is not None:
        raise InputError(f"--reference-model {told}: torch is the original; leave it out")
    if str(options.reference or "").endswith((".npz", ".json")):
        raise InputError(
            f"--reference {options.reference} {told}: torch gives the outputs; leave it out"
        )
    if options.input_shapes:
        raise InputError(
            f"--input-shapes {told}: get_fwd_args() or --inputs give the shapes; leave it out"
        )

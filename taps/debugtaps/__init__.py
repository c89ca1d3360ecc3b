"""The tap engine: marks tensors, promotes taps to outputs, builds, runs and compares.

Everything public is listed here and loaded when first asked for, so that importing the package
costs nothing.  What is not listed is private, to ``tapsect`` as well.

>>> from debugtaps import InputError, measure
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debugtaps.archive import BuildFile, list_build, unpack_build
    from debugtaps.bindings import Binding
    from debugtaps.bounds import Bound, Exceeded
    from debugtaps.compare import (
        Metrics,
        comparable,
        mape,
        measure,
        measure_fully,
        nonfinite_differs,
        widened,
    )
    from debugtaps.engines.contract import Array, Engine, Feeds, Session
    from debugtaps.engines.host import Build, Host, Noise, Sweep
    from debugtaps.engines.registry import BUILTINS, EngineSpec, parse_options, resolve
    from debugtaps.engines.spare import spare_workers
    from debugtaps.errors import (
        EngineFailure,
        EnvironmentFailure,
        InputError,
        Interrupted,
        MissingPackage,
        ModelCodeError,
        ModelError,
        OutputError,
        ReferenceFailed,
        SpecError,
        TapError,
        TapsError,
        UsageError,
        WorkerError,
    )
    from debugtaps.feeds import InputSpec, Sample, check_sample, load_inputs
    from debugtaps.folding import fold, freeze
    from debugtaps.graph import (
        FLOATS,
        NARROW,
        RANDOM_OPS,
        Graph,
        Node,
        TensorType,
        external_files,
        infer_types,
        load_array,
        load_graph,
    )
    from debugtaps.keeping import keep_values, kept_values
    from debugtaps.manifest import (
        Manifest,
        TapEntry,
        read_manifest,
        reference_names,
        write_manifest,
    )
    from debugtaps.mark import Tap, tap
    from debugtaps.package import Package, compile_model
    from debugtaps.perturbation import Perturbed, Plan, error_name, feed_name, mask_name, perturb
    from debugtaps.polygraphy import load_golden, read_polygraphy, write_polygraphy
    from debugtaps.preparation import Prepared, prepare
    from debugtaps.scores import SCORES, Row, Score
    from debugtaps.sources import Source, load_sources, sources_path
    from debugtaps.store import (
        as_storable,
        dtype_from_name,
        dtype_name,
        read_meta,
        read_npz,
        write_atomic,
        write_json_atomic,
        write_npz,
        write_text_atomic,
    )
    from debugtaps.surgery import (
        add_constants,
        emit,
        extract,
        follow,
        implied_inputs,
        narrow_constants,
        promote,
        save,
        value_info,
    )
    from debugtaps.synthetic import parse_input_shapes, random_inputs
    from debugtaps.testing import CheckResult, conformance
    from debugtaps.tolerance import ErrorStat, Limits, Tolerance
    from debugtaps.torch_capture import TorchValues, torch_values
    from debugtaps.torch_model import TorchModel, open_torch_model
    from debugtaps.ulp import ulp_distance, unit_roundoff
    from debugtaps.verification import Compared, Verification, verify
    from debugtaps.widening import doubled, widen

__all__ = [
    "BUILTINS",
    "FLOATS",
    "NARROW",
    "RANDOM_OPS",
    "SCORES",
    "Array",
    "Binding",
    "Bound",
    "Build",
    "BuildFile",
    "CheckResult",
    "Compared",
    "Engine",
    "EngineFailure",
    "EngineSpec",
    "EnvironmentFailure",
    "ErrorStat",
    "Exceeded",
    "Feeds",
    "Graph",
    "Host",
    "InputError",
    "InputSpec",
    "Interrupted",
    "Limits",
    "Manifest",
    "Metrics",
    "MissingPackage",
    "ModelCodeError",
    "ModelError",
    "Node",
    "Noise",
    "OutputError",
    "Package",
    "Perturbed",
    "Plan",
    "Prepared",
    "ReferenceFailed",
    "Row",
    "Sample",
    "Score",
    "Session",
    "Source",
    "SpecError",
    "Sweep",
    "Tap",
    "TapEntry",
    "TapError",
    "TapsError",
    "TensorType",
    "Tolerance",
    "TorchModel",
    "TorchValues",
    "UsageError",
    "Verification",
    "WorkerError",
    "add_constants",
    "as_storable",
    "check_sample",
    "comparable",
    "compile_model",
    "conformance",
    "doubled",
    "dtype_from_name",
    "dtype_name",
    "emit",
    "error_name",
    "external_files",
    "extract",
    "feed_name",
    "fold",
    "follow",
    "freeze",
    "implied_inputs",
    "infer_types",
    "keep_values",
    "kept_values",
    "list_build",
    "load_array",
    "load_golden",
    "load_graph",
    "load_inputs",
    "load_sources",
    "mape",
    "mask_name",
    "measure",
    "measure_fully",
    "narrow_constants",
    "nonfinite_differs",
    "open_torch_model",
    "parse_input_shapes",
    "parse_options",
    "perturb",
    "prepare",
    "promote",
    "random_inputs",
    "read_manifest",
    "read_meta",
    "read_npz",
    "read_polygraphy",
    "reference_names",
    "resolve",
    "save",
    "sources_path",
    "spare_workers",
    "tap",
    "torch_values",
    "ulp_distance",
    "unit_roundoff",
    "unpack_build",
    "value_info",
    "verify",
    "widen",
    "widened",
    "write_atomic",
    "write_json_atomic",
    "write_manifest",
    "write_npz",
    "write_polygraphy",
    "write_text_atomic",
]

# Module -> its public names; a test compares it with the list above.
_HOMES = {
    "archive": "BuildFile list_build unpack_build",
    "bindings": "Binding",
    "bounds": "Bound Exceeded",
    "compare": "Metrics comparable mape measure measure_fully nonfinite_differs widened",
    "engines.contract": "Array Engine Feeds Session",
    "engines.host": "Build Host Noise Sweep",
    "engines.registry": "BUILTINS EngineSpec parse_options resolve",
    "engines.spare": "spare_workers",
    "errors": (
        "EngineFailure EnvironmentFailure InputError Interrupted MissingPackage"
        " ModelCodeError ModelError OutputError ReferenceFailed SpecError TapError TapsError"
        " UsageError"
        " WorkerError"
    ),
    "feeds": "InputSpec Sample check_sample load_inputs",
    "folding": "fold freeze",
    "graph": "FLOATS NARROW RANDOM_OPS Graph Node TensorType external_files infer_types load_array"
    " load_graph",
    "keeping": "keep_values kept_values",
    "manifest": "Manifest TapEntry read_manifest reference_names write_manifest",
    "mark": "Tap tap",
    "package": "Package compile_model",
    "perturbation": "Perturbed Plan error_name feed_name mask_name perturb",
    "polygraphy": "load_golden read_polygraphy write_polygraphy",
    "scores": "SCORES Row Score",
    "preparation": "Prepared prepare",
    "sources": "Source load_sources sources_path",
    "store": (
        "as_storable dtype_from_name dtype_name read_meta read_npz write_atomic"
        " write_json_atomic write_npz write_text_atomic"
    ),
    "surgery": (
        "add_constants emit extract follow implied_inputs narrow_constants promote save value_info"
    ),
    "synthetic": "parse_input_shapes random_inputs",
    "testing": "CheckResult conformance",
    "tolerance": "ErrorStat Limits Tolerance",
    "ulp": "ulp_distance unit_roundoff",
    "verification": "Compared Verification verify",
    "torch_capture": "TorchValues torch_values",
    "torch_model": "TorchModel open_torch_model",
    "widening": "doubled widen",
}


def __getattr__(name: str) -> Any:
    for home, public in _HOMES.items():
        if name in public.split():
            import importlib

            value = getattr(importlib.import_module(f"debugtaps.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

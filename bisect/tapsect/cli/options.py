"""The options of ``tapsect bisect``: type, name and help of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Atol",
    "Budget",
    "CheckErrorStat",
    "DemoOut",
    "EngineFile",
    "EngineName",
    "EngineOption",
    "EnginePython",
    "Html",
    "InputShapes",
    "Inputs",
    "Jobs",
    "Json",
    "Judge",
    "MaxMape",
    "ModelFile",
    "Out",
    "Precision",
    "Quiet",
    "Reference",
    "ReferenceModel",
    "Rtol",
    "Seed",
    "TapMemory",
    "TapMode",
    "Timeout",
    "Verbose",
]

ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="An ONNX file, external weights beside it; or a Python file with class Model and "
        "get_fwd_args().",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILE...",
        help="Inputs: .npz (one sample a file), Polygraphy's .json (many), a .py script with "
        "load_data(). Random data without it.",
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shapes",
        metavar="NAME:[D,...]...",
        help="Shapes for random data, e.g. x:[1,3,8,8]. A dynamic dimension without is 1.",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="The engine under suspicion: ort, onnx, file.py:Class, package.module:Class.",
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-option",
        metavar="K=V...",
        help="An option of the engine, in its own words: graph_optimization_level=basic.",
    ),
]
EnginePython = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Run the engine under this interpreter; it needs numpy and the engine.",
    ),
]
EngineFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PLAN",
        help="A saved engine of this model (a TensorRT plan): it is run in place of the first "
        "build; a rebuild that does not fail like it is told.",
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC|FILE",
        help="What is believed: an engine (ort-reference when not given), or golden values in "
        ".npz or Polygraphy's .json.",
    ),
]
ReferenceModel = Annotated[
    Path | None,
    typer.Option(metavar="ONNX", help="The fp32 original of a mixed or fp16 model."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="What the engine may compute in: fp32, tf32, fp16, bf16. The model's own types "
        "when not given.",
    ),
]
Atol = Annotated[
    list[str] | None,
    typer.Option(
        "--atol",
        metavar="[NAME:]V...",
        help="An element fails above this absolutely and above --rtol relatively. Replaces the "
        "rounding floor.",
    ),
]
Rtol = Annotated[
    list[str] | None,
    typer.Option("--rtol", metavar="[NAME:]V...", help="See --atol; 1e-5 if only that is given."),
]
CheckErrorStat = Annotated[
    list[str] | None,
    typer.Option(
        "--check-error-stat",
        metavar="[NAME:]STAT...",
        help="Which error the tolerances are for: elemwise, mean, median, max, quantile, "
        "quantile=0.95.",
    ),
]
MaxMape = Annotated[
    list[str] | None,
    typer.Option("--max-mape", metavar="[NAME:]V...", help="Mean error allowed, in percent."),
]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="A function of the engine's outputs and the reference's (name: array) that says "
        "whether they fail (boxes, tokens).",
    ),
]
TapMemory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Memory for tapped tensors of one build, e.g. 512MiB."),
]
TapMode = Annotated[
    Literal["auto", "border", "mark", "debug"],
    typer.Option(
        help="What is tapped: border (first what passes between fused kernels), mark (every "
        "tensor), debug (the engine's own debug tensors). auto: border where the engine tells "
        "its kernels.",
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="Longest first build or run.")
]
Budget = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.0, help="Time for making the failing case smaller."),
]
Jobs = Annotated[
    int, typer.Option(metavar="N", min=1, help="Builds at a time; the result is the same.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where to write; tapsect-<model> when not given."),
]
DemoOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where to write; tapsect-demo, or a temporary folder, when not given.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of random inputs and noise.")]
Html = Annotated[
    bool, typer.Option("--html", help="Write report.html as well: one page with pictures.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the one-sentence answer only.")]
Json = Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print how it was found, too.")]

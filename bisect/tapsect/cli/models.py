"""The commands for working by hand: ``tapsect extract`` and ``tapsect inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say

if TYPE_CHECKING:
    from tapsect.byhand import TensorSpec

__all__ = ["add_to"]

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
Begins = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs", metavar="NAME:SHAPE:TYPE...",
        help="Where the part begins, as y:[1,64]:float32 or y:auto:auto; the model's own inputs "
        "when not given.",
    ),
]  # fmt: skip
Ends = Annotated[
    list[str] | None,
    typer.Option(
        "--outputs", metavar="NAME:TYPE...",
        help="Where it ends, as z:float32 or z:auto; the model's own outputs when not given.",
    ),
]  # fmt: skip
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where it goes.")]
Values = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="Write what the part is fed in a run of the model; what it answers goes beside it "
        "as FILE.expected.npz.",
    ),
]
LoadInputs = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="What that run is fed; random data when not given."),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--model-input-shapes", "--input-shapes", metavar="NAME:[D,...]...",
        help="Shapes of the model's inputs in that run.",
    ),
]  # fmt: skip
Reference = Annotated[str, typer.Option(metavar="SPEC", help="The engine of that run.")]
Show = Annotated[
    list[str] | None,
    typer.Option(metavar="nodes,attrs,weights,taps,cuts", help="What to list."),
]
EngineShown = Annotated[
    str | None,
    typer.Option("--engine", metavar="SPEC", help="Build it and list layers and fused kernels."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(short_help="Cut a part out of a model.")(extract)
    app.command(short_help="Look into a model, or into an engine's build of it.")(inspect)


def extract(
    model: ModelFile,
    inputs: Begins = None,
    outputs: Ends = None,
    output: Output = Path("extracted.onnx"),
    values: Values = None,
    load_inputs: LoadInputs = None,
    model_input_shapes: Shapes = None,
    reference: Reference = "ort-reference",
) -> int:
    """Cuts out the part of a model between some tensors.

    Shapes and types left to auto are inferred, or taken from a run; free dimensions stay free.

    \b
    Examples:
      tapsect extract model.onnx --inputs x:[1,3,224,224]:float32 y:auto:auto --outputs z:auto
      tapsect extract model.onnx --inputs y:auto:auto --outputs z -o sub.onnx --values y.npz
    """
    from debugtaps import parse_input_shapes, write_npz
    from tapsect.byhand import extract_part
    from tapsect.escape import clean

    begins, ends = _specs(model, inputs or [], outputs or [])
    part = extract_part(
        model, begins, ends, values=values is not None, data=load_inputs or (),
        shapes=parse_input_shapes(model_input_shapes or ()) or None, reference=reference,
    )  # fmt: skip
    from tapsect.byhand.saving import save_part

    save_part(part.model, output)
    for note in part.notes:
        say(clean(note, limit=300))
    if values is not None:
        write_npz(values, part.inputs)
        write_npz(values.with_suffix(".expected.npz"), part.outputs)
    say(f"{part.nodes} nodes written to {output}")
    return 0


def _specs(
    model: Path, inputs: list[str], outputs: list[str]
) -> tuple[list[TensorSpec], list[TensorSpec]]:
    import onnx

    from tapsect.byhand import parse_input, parse_output

    names: set[str] = set()
    try:
        graph = onnx.load(model, load_external_data=False).graph
        names = {t for n in graph.node for t in (*n.input, *n.output)}
        names |= {v.name for v in (*graph.input, *graph.output)}
    except Exception:  # what is wrong with the file is said where it is read for good
        pass
    return (
        [parse_input(text, names.__contains__) for text in inputs],
        [parse_output(text, names.__contains__) for text in outputs],
    )


def inspect(
    model: ModelFile,
    show: Show = None,
    engine: EngineShown = None,
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    timeout: o.Timeout = 600.0,
) -> int:
    """Lists what a model holds, and what an engine makes of it.

    \b
    Examples:
      tapsect inspect model.onnx --show nodes,attrs
      tapsect inspect model.onnx --show cuts
      tapsect inspect model.onnx --engine ort
    """
    from debugtaps import UsageError
    from tapsect.byhand import SECTIONS, describe, describe_engine

    wanted = [word for each in show or () for word in each.split(",") if word]
    unknown = next((word for word in wanted if word not in SECTIONS), None)
    if unknown is not None:
        raise UsageError(f"--show: {unknown!r} is none of {', '.join(SECTIONS)}")
    text = describe(model, wanted)
    if engine is not None:
        from debugtaps import parse_options

        options = parse_options(engine_option or ())
        text += "\n\n" + describe_engine(
            model, engine, options, python=engine_python, timeout=timeout
        )
    say(text)
    return 0

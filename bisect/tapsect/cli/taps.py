"""``tapsect prepare``: a model, its inputs and its reference values, with the taps asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapsect.cli import options as o
from tapsect.cli.output import say
from tapsect.escape import clean

if TYPE_CHECKING:
    from debugtaps import Prepared

__all__ = ["add_to"]

_LISTED = 20

OnnxOut = Annotated[
    Path,
    typer.Option(metavar="FILE", help="Where the model goes; FILE.sources.json has its lines."),
]
NpzOut = Annotated[Path, typer.Option(metavar="FILE", help="Where its inputs go.")]
ReferenceOut = Annotated[
    Path, typer.Option(metavar="FILE", help="Where outputs and taps of the reference run go.")
]
DebugTaps = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|all",
        help="A tap(x, name) to expose; repeat it for more. all wins over names. In an ONNX "
        "file, a tensor's name.",
    ),
]
DebugPluginTaps = Annotated[
    bool,
    typer.Option("--debug-plugin-taps", help="Expose every input and output of every plugin."),
]
PluginOp = Annotated[
    list[str] | None,
    typer.Option(metavar="[DOMAIN::]OP", help="An operator that counts as a plugin, too."),
]
PluginReference = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DOMAIN::OP=MODULE:FUNCTION",
        help="What a plugin should compute; FUNCTION gets its inputs as arrays, its attributes "
        "by name.",
    ),
]
EveryTap = Annotated[bool, typer.Option("--verbose", "-v", help="List every tap.")]


def prepare_command(
    model: o.ModelFile,
    onnx_out: OnnxOut,
    npz_out: NpzOut,
    reference_out: ReferenceOut,
    debug_taps: DebugTaps = None,
    debug_plugin_taps: DebugPluginTaps = False,
    plugin_op: PluginOp = None,
    plugin_reference: PluginReference = None,
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    seed: o.Seed = 0,
    verbose: EveryTap = False,
) -> int:
    """Writes a model as ONNX, its inputs, and what the reference computes for them.

    Taps are off unless they are asked for; then the file is byte for byte that of the same model
    without taps. The list of taps rides inside it, so compile and verify need no flags.

    \b
    Examples:
      tapsect prepare model.py --onnx-out m.onnx --npz-out m.npz --reference-out m.reference.npz
      tapsect prepare model.py ... --debug-taps all
      tapsect prepare model.py ... --debug-taps backbone_out --debug-plugin-taps
      tapsect prepare model.onnx ... --inputs sample.npz

    \b
    Exit status:
      0  written
      2  wrong usage, model or input, or a tap that was asked for cannot be compared
      4  the environment failed
    """
    from debugtaps import ModelCodeError, parse_input_shapes, prepare

    try:
        prepared = prepare(
            model,
            onnx_out=onnx_out,
            npz_out=npz_out,
            reference_out=reference_out,
            debug_taps=debug_taps or (),
            plugin_taps=debug_plugin_taps,
            plugin_ops=plugin_op or (),
            plugin_references=plugin_reference or (),
            inputs=tuple(inputs or ()),
            input_shapes=parse_input_shapes(input_shapes or ()) or None,
            seed=seed,
        )
    except ModelCodeError as error:
        for line in error.trace.splitlines():
            sys.stderr.write(clean(line, limit=300) + "\n")
        raise
    _say(prepared, verbose=verbose)
    return 0


def _say(prepared: Prepared, *, verbose: bool) -> None:
    for note in prepared.notes:
        sys.stderr.write(clean(note, limit=1000) + "\n")
    manifest, without = prepared.manifest, prepared.uncompared
    say(
        f"{_count(len(manifest.outputs), 'output')}, {_count(len(manifest.taps), 'tap')}, "
        f"{len(manifest.taps) - len(without)} with a reference"
    )
    if verbose:
        for tap in manifest.taps:
            place = f"  {tap.source}" if tap.source else ""
            how = f"not compared: {tap.reason}" if tap.reference == "none" else tap.reference
            say(clean(f"  {tap.name}  {tap.tensor}  {how}{place}", limit=300))
    else:
        for name, reason in without[:_LISTED]:
            say(clean(f"  {name}  not compared: {reason}", limit=300))
        if len(without) > _LISTED:
            say(f"  … and {len(without) - _LISTED} more; --verbose lists them")
    files = (prepared.onnx, prepared.inputs, prepared.reference)
    say("Written to " + ", ".join(clean(str(file)) for file in files))


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("prepare", short_help="Write a model, its inputs and reference values.")(
        prepare_command
    )

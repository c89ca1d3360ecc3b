"""``tapsect bisect``: where the engine first diverges, why, and the smallest model that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

import tapsect
from debugtaps import TapsError
from tapsect.cli import options as o
from tapsect.cli.crash import Crash
from tapsect.cli.progress import watching
from tapsect.cli.report import print_finding
from tapsect.cli.values import parse_memory

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(short_help="Find the first divergence and the smallest failing case.")(bisect)


def bisect(
    model: o.ModelFile,
    inputs: o.Inputs = None,
    input_shapes: o.InputShapes = None,
    engine: o.EngineName = "ort",
    engine_option: o.EngineOption = None,
    engine_python: o.EnginePython = None,
    engine_file: o.EngineFile = None,
    reference: o.Reference = None,
    reference_model: o.ReferenceModel = None,
    precision: o.Precision = None,
    atol: o.Atol = None,
    rtol: o.Rtol = None,
    check_error_stat: o.CheckErrorStat = None,
    max_mape: o.MaxMape = None,
    judge: o.Judge = None,
    tap_memory: o.TapMemory = "1GiB",
    tap_mode: o.TapMode = "auto",
    timeout: o.Timeout = 600.0,
    budget: o.Budget = 120.0,
    jobs: o.Jobs = 1,
    out: o.Out = None,
    html: o.Html = False,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> int:
    """Finds where the engine first diverges, why, and the smallest model that still fails.

    \b
    Examples:
      tapsect bisect model.onnx
      tapsect bisect model.onnx --inputs a.npz b.npz --engine-option graph_optimization_level=basic
      tapsect bisect model.onnx --input-shapes x:[1,3,224,224] --precision fp16
      tapsect bisect model.onnx --reference golden.npz --atol 1e-3 boxes:0.5
      tapsect bisect model.onnx --engine my_engine.py:Engine --engine-python old/bin/python
      tapsect bisect model.py

    Of a Python file (class Model, get_fwd_args()) torch is the reference: a fault of the export
    to ONNX is told apart from one of the engine, and the line of Python is named.

    \b
    Exit status:
      0  the engine agrees
      1  it diverges; the place or the reason is known
      3  it diverges; the place was not found
      2  wrong usage or input    4  the environment failed    130  interrupted, can be continued
    """
    from debugtaps import parse_options
    from tapsect.diagnose.workers import begun as begin
    from tapsect.folder import check_folder, make_folder

    if html:  # a missing package is told before the work, not after it
        from tapsect.report import check_page

        check_page()
    folder = out or Path(f"tapsect-{model.stem}")
    check_folder(folder)
    settings = parse_options(engine_option or ())
    memory = parse_memory(tap_memory)
    workers = begin(engine, settings, engine_python, reference, timeout)
    try:
        with workers as begun, watching(quiet=quiet) as progress:
            from debugtaps import Tolerance, parse_input_shapes  # while the workers load

            shapes = parse_input_shapes(input_shapes or ())
            tolerance = Tolerance.parse(
                atol=atol or (), rtol=rtol or (), check_error_stat=check_error_stat or (),
                max_mape=max_mape or (),
            )  # fmt: skip
            finding = tapsect.bisect(
                model, inputs=inputs or (), input_shapes=shapes or None, engine=engine,
                engine_options=settings or None, engine_python=engine_python,
                engine_file=engine_file, reference=reference, reference_model=reference_model,
                precision=precision, tolerance=tolerance, judge=judge, tap_memory=memory,
                tap_mode=tap_mode, timeout=timeout, budget=budget, jobs=jobs, out=folder,
                seed=seed, progress=progress, command=("tapsect", *sys.argv[1:]), begun=begun,
            )  # fmt: skip
        from tapsect.report import write_page, write_reports

        write_reports(make_folder(folder), finding)
        if html:
            write_page(folder, finding)
    except TapsError:
        raise
    except Exception as error:
        raise Crash(error, folder) from error
    print_finding(finding, folder, quiet=quiet, as_json=as_json, verbose=verbose)
    return int(finding.exit_code)

"""What importing the package and asking for help may load, and who may import whom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tapsect.cli.app import app_for

ROOT = Path(__file__).resolve().parents[2]
ENGINES = {"onnxruntime", "onnx", "openvino", "tensorrt", "torch", "ray", "sqlalchemy", "bokeh"}
HEAVY = ENGINES | {"networkx", "numpy", "onnx_graphsurgeon", "ml_dtypes"}


def environment() -> dict[str, str]:
    path = os.pathsep.join(str(ROOT / source) for source in ("taps", "bisect"))
    return {**os.environ, "PYTHONPATH": path}


def loaded(program: str) -> set[str]:
    script = f"import sys\n{program}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "program",
    [
        "import tapsect",
        "import debugtaps",
        "import debugtaps; debugtaps.TapsError",
        "import tapsect; tapsect.Finding",
        "from tapsect.cli import main; main(['--version'])",
        "from tapsect.cli import main; main(['--help'])",
        "from tapsect.cli import main; main(['bisect', '--help'])",
        "from tapsect.cli import main\n"
        "for each in ('reduce', 'repeat', 'tactics', 'fix', 'versions', 'extract', 'inspect',\n"
        "             'report', 'triage', 'doctor', 'demo', 'prepare', 'compile', 'verify'):\n"
        "    main([each, '--help'])",
        "from tapsect.cli import main; main(['triage', 'run', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded(program: str) -> None:
    assert loaded(program) & HEAVY == set()


@pytest.mark.parametrize(
    ("command", "other"), [("bisect", "reduce"), ("reduce", "diagnosis"), ("verify", "models")]
)
def test_a_command_loads_no_other(command: str, other: str) -> None:
    modules = loaded(f"from tapsect.cli import main; main([{command!r}, '--help'])")
    assert "tapsect.cli.output" in modules
    assert f"tapsect.cli.{other}" not in modules


def test_every_command_is_found_by_its_name() -> None:
    every: Any = typer.main.get_command(app_for())
    for name in every.commands:
        one: Any = typer.main.get_command(app_for(name))
        assert name in one.commands
        assert len(one.commands) < len(every.commands)


def test_finding_the_way_to_the_diagnosis_loads_no_engine() -> None:
    assert loaded("import tapsect; tapsect.bisect") & (ENGINES - {"onnx"}) == set()


def test_reports_of_a_diagnosis_load_nothing_of_other_forms() -> None:
    assert loaded("import tapsect.report") & {"xml.etree", "bokeh", "jinja2", "pydantic"} == set()


def test_workers_begin_before_anything_heavy_is_loaded() -> None:
    program = "from debugtaps import spare_workers\nwith spare_workers(1): pass"
    assert loaded(program) & HEAVY == set()


def test_nothing_is_searched_for_garbage_when_the_process_ends() -> None:
    program = (
        "import gc; from tapsect.cli import main\n"
        "main(['--version'])\n"
        "assert gc.get_freeze_count() == 0, 'a caller goes on'\n"
        "sys.argv = ['tapsect', '--version']\n"
        "main()\n"
        "assert gc.get_freeze_count() > len(gc.get_objects())"
    )
    loaded(program)


def test_imports_point_down() -> None:
    lint = shutil.which("lint-imports") or str(Path(sys.executable).with_name("lint-imports"))
    if not Path(lint).exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [lint, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

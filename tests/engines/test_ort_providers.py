"""Execution providers of ONNX Runtime: what does not run where it was asked to is told."""

from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import tapsect
from debugtaps.engines.host import Host
from debugtaps.engines.ort import OrtEngine
from debugtaps.engines.registry import resolve
from debugtaps.errors import SpecError
from support.zoo import chain_cnn
from tapsect.report.markdown import render_markdown

# Part of the CPU wheel; it takes no node of the standard domain.
AZURE = "AzureExecutionProvider"

pytestmark = pytest.mark.skipif(
    AZURE not in onnxruntime.get_available_providers(), reason="no second provider here"
)


def said(folder: Path, nodes: int, **options: Any) -> tuple[str, ...]:
    path, _ = chain_cnn(nodes).save(folder)
    with Host(resolve("ort", options), timeout=30.0) as host:
        return host.build(path).said


def test_nodes_that_fell_back_are_named(tmp_path: Path) -> None:
    (told,) = said(tmp_path, 4, providers=AZURE, graph_optimization_level="disable")
    own, others = told.split("; ")
    assert own.startswith("0 of ")
    assert own.endswith(f" nodes run on {AZURE}")
    assert others.startswith("on CPUExecutionProvider: ")
    names = set(others.partition(": ")[2].split(", "))
    assert names == set(chain_cnn(4).names)


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    (told,) = said(tmp_path, 40, providers=AZURE, graph_optimization_level="disable")
    assert told.endswith(f" and {len(chain_cnn(40).names) - 20} more")


def test_the_cpu_alone_has_nothing_to_tell(tmp_path: Path) -> None:
    assert said(tmp_path, 4) == ()


def test_the_report_tells_of_it(tmp_path: Path) -> None:
    path, inputs = chain_cnn(4).save(tmp_path / "given")
    options = {"providers": AZURE}
    out = tmp_path / "out"
    finding = tapsect.bisect(path, inputs=[inputs], engine_options=options, out=out)
    assert any(f"nodes run on {AZURE}; on CPUExecutionProvider: " in n for n in finding.notes)
    assert AZURE in render_markdown(finding)


def test_one_mapping_of_options_is_for_the_first_provider() -> None:
    engine = OrtEngine([AZURE, "CPUExecutionProvider"], {"use_tf32": False, "device_id": 1})
    assert engine.provider_options == [{"use_tf32": "0", "device_id": "1"}, {}]


def test_a_provider_that_is_not_there_is_an_error() -> None:
    host = Host(resolve("ort", {"providers": f"MoonExecutionProvider,{AZURE}"}), timeout=30.0)
    with host, pytest.raises(SpecError, match="no MoonExecutionProvider: this onnxruntime has"):
        host.describe()

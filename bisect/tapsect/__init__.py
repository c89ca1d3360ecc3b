"""Finds where an engine first diverges from its reference, and the smallest model that fails.

>>> import tapsect
>>> finding = tapsect.bisect("model.onnx", engine="ort")  # doctest: +SKIP
>>> finding.message  # doctest: +SKIP
"Node 'Conv_7' is wrong: …"
>>> tapsect.reduce("model.onnx", check=["python", "check.py", "{model}"])  # doctest: +SKIP
Minimized(exit_code=0, message="1 of 64 nodes still fails …
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapsect.diagnose.call import fix
    from tapsect.diagnose.flow import diagnose as bisect
    from tapsect.finding import Finding
    from tapsect.minimal.call import reduce
    from tapsect.minimal.flow import Minimized
    from tapsect.steady.again import Repeated
    from tapsect.steady.call import repeat

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "Minimized",
    "Repeated",
    "__version__",
    "bisect",
    "fix",
    "reduce",
    "repeat",
]

# Loaded when first asked for: importing the package costs nothing.
_HOMES = {
    "Finding": ("tapsect.finding", "Finding"),
    "Minimized": ("tapsect.minimal.flow", "Minimized"),
    "Repeated": ("tapsect.steady.again", "Repeated"),
    "bisect": ("tapsect.diagnose.flow", "diagnose"),
    "fix": ("tapsect.diagnose.call", "fix"),
    "reduce": ("tapsect.minimal.call", "reduce"),
    "repeat": ("tapsect.steady.call", "repeat"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

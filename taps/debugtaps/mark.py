"""``tap(x, "name")`` marks a tensor of a torch model; it returns ``x`` itself.

Nothing here imports torch before a model does.  While nobody observes, a tap is one comparison
and leaves no trace in any graph: exported with taps off, a model is byte for byte that of the
same file without the ``tap`` lines.  (What is computed inside the call only, as in
``tap(x.sin(), "s")``, is code of the model's and may number its tensors differently.)

What a tap takes: a tensor of any type and memory format, or a list, tuple or dictionary of
tensors, which become ``name.0``, ``name.key``.  Names are unique in a model; a module that is
called twice needs a name for each call (``tap(x, f"h_{step}")``).  Under ``torch.vmap`` a tensor
stands for one example only, which no output can show: that is an error while observed.
``torch.jit.script`` is not supported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from debugtaps.errors import MissingPackage, TapError

if TYPE_CHECKING:
    from torch.nn import Module

    class Tap(Module):  # type: ignore[misc, unused-ignore]
        """See `_tap_module`."""

        def __init__(self, name: str) -> None: ...


__all__ = ["Tap", "tap"]

T = TypeVar("T")
Observer = Callable[[Any, str, str], None]

INSTALL = "pip install 'tapsect[torch]'"
_OURS = str(Path(__file__).parent)

# Set while a model is recorded or exported with its taps alive.
observer: Observer | None = None


def tap(x: T, name: str) -> T:
    """Returns ``x`` itself, and marks it as ``name``.

    >>> tap(3.0, "speed")
    3.0

    Args:
        x: A tensor, or a list, tuple or dictionary of tensors.
        name: Unique in the model.
    """
    if observer is not None:
        observer(x, name, "")
    return x


def check_name(name: object, place: str) -> str:
    """Returns a tap's name, or says what is wrong with it.

    Raises:
        TapError: It is no text, empty, or cannot name a tensor on disk.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise TapError(f"{place}: a tap is named {name!r}; name it with text that is not empty")
    if name == "benchmark_timings_ms":
        raise TapError(f"{place}: the name {name!r} holds the timings of the reference; rename it")
    return name


def place_of_call(*, skip: str = "") -> str:
    """Returns ``file:line`` of the innermost caller outside this package and ``skip``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) and not (skip and file.startswith(skip)):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"


def __getattr__(name: str) -> Any:
    if name != "Tap":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["Tap"] = _tap_module()
    return globals()["Tap"]


def _tap_module() -> type:
    """Returns the module that taps what passes through it, for ``nn.Sequential``.

    Its place counts as a layer: indices after it shift, and with them the names of weights.
    ``nn.Sequential(OrderedDict(...))`` with names of your own avoids that.
    """
    try:
        from torch import nn
    except ImportError:
        return _without_torch()

    def __init__(self: Any, name: str) -> None:
        nn.Module.__init__(self)
        self.name = check_name(name, place_of_call())
        self.place = place_of_call()

    def forward(self: Any, x: Any) -> Any:
        if observer is not None:
            observer(x, self.name, self.place)
        return x

    def extra_repr(self: Any) -> str:
        return repr(self.name)

    members = {
        "__init__": __init__,
        "forward": forward,
        "extra_repr": extra_repr,
        "__module__": __name__,
        "__doc__": "Taps what passes through it; a layer for ``nn.Sequential``.",
    }
    return type("Tap", (nn.Module,), members)


def _without_torch() -> type:
    def __init__(self: Any, name: str) -> None:
        raise MissingPackage(f"Tap is a torch module and torch is not installed; {INSTALL}")

    return type("Tap", (), {"__init__": __init__, "__module__": __name__})

"""What taps see: in an eager run their values, in a traced one their places in the graph.

A tap that is observed calls a side branch, an operator that reads the tensor and returns an empty
one.  The tensor itself goes on untouched, so neither eager results nor the exported graph change.
A pass-through operator would: it blocks fusions and copies, or breaks models that work in place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import mark
from debugtaps.errors import TapError

__all__ = ["Recorder", "observe_op", "observing"]


@dataclass
class Recorder:
    """What the taps of one run told.

    Attributes:
        keep: Whether values are kept; a trace has none.
        values: Torch tensors by tap, as they were at the tap.
        places: ``file:line`` of each tap.
        parts: For a tap of a container, the taps of its tensors.
        refused: Taps whose value no output can show, with the reason.
    """

    keep: bool = True
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, tensor: Any) -> None:
        """Keeps a tensor as it is now; a later operation in place shall not reach it."""
        place = self.pending.pop(name, "")
        if name in self.places:
            raise repeated(name, self.places[name], place)
        self.places[name] = place
        if self.keep:
            self.values[name] = tensor.detach().clone()

    @property
    def names(self) -> list[str]:
        """Returns every tap met, refused ones too, in order."""
        return list(dict.fromkeys([*self.places, *self.refused]))


def repeated(name: str, first: str, second: str) -> TapError:
    """Returns the error of a name that two taps bear."""
    places = f"at {first or 'an unknown place'} and at {second or 'an unknown place'}"
    if first and first == second:
        places = f"twice at {first} (a loop, or a module that is called more than once)"
    return TapError(
        f"tap name {name!r} is used {places}; names are unique in a model: give each call its "
        f'own, for instance tap(x, f"{name}_{{i}}")'
    )


_recorder: Recorder | None = None


@contextmanager
def observing(recorder: Recorder) -> Iterator[Recorder]:
    """Lets every tap report to ``recorder`` inside the block."""
    global _recorder
    observe_op()
    before = (mark.observer, _recorder)
    mark.observer, _recorder = _observe, recorder
    try:
        yield recorder
    finally:
        mark.observer, _recorder = before


@functools.cache
def observe_op() -> Any:
    """Returns the side-branch operator, registered on first use."""
    import torch

    library = torch.library.Library("debugtaps", "FRAGMENT")
    # Without a result the exporter has no value to look at, so one that is empty is returned.
    library.define("tap_observe(Tensor x, str name) -> Tensor")

    def take(x: Any, name: str) -> Any:
        if _recorder is not None:
            _recorder.take(name, x)
        return torch.empty(0)

    library.impl("tap_observe", take, "CompositeExplicitAutograd")
    torch.library.register_fake(
        "debugtaps::tap_observe", lambda x, name: torch.empty(0), lib=library
    )
    _kept.append(library)
    op = torch.ops.debugtaps.tap_observe.default
    torch.fx.node.has_side_effect(op)
    return op


_kept: list[Any] = []  # a library that is collected takes its operators with it


def _observe(x: Any, name: str, place: str) -> None:
    import torch

    if torch.compiler.is_dynamo_compiling():
        for part, tensor in _parts(x, name):
            torch.ops.debugtaps.tap_observe(tensor, part)
        return
    recorder = _recorder
    if recorder is None:
        return
    place = place or mark.place_of_call(skip=str(Path(torch.__file__).parent))
    mark.check_name(name, place)
    found = list(_parts(x, name))
    if not found:
        raise TapError(
            f"{place}: tap {name!r} got {_described(x)}; a tap takes a tensor, or a list, tuple "
            "or dictionary of tensors"
        )
    if found[0][0] != name:
        recorder.parts[name] = [part for part, _ in found]
    for part, tensor in found:
        reason = _why_not(tensor)
        if reason:
            recorder.refused[part] = f"{place}: {reason}"
            continue
        recorder.pending[part] = place
        torch.ops.debugtaps.tap_observe(tensor, part)
        if not recorder.keep:
            recorder.places.setdefault(part, recorder.pending.pop(part, place))


def _parts(x: Any, name: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(x, torch.Tensor):
        yield name, x
    elif isinstance(x, list | tuple):
        for index, each in enumerate(x):
            yield from _parts(each, f"{name}.{index}")
    elif isinstance(x, dict):
        for key, each in x.items():
            yield from _parts(each, f"{name}.{key}")


def _described(x: Any) -> str:
    if isinstance(x, list | tuple | dict):
        return f"a {type(x).__name__} without tensors"
    return f"a value of type {type(x).__name__}"


def _why_not(tensor: Any) -> str:
    """Returns why no output can show the tensor, or nothing."""
    import torch

    functorch = torch._C._functorch
    stack = functorch.get_interpreter_stack() or ()
    if any(level.key() == functorch.TransformType.Vmap for level in stack):
        return (
            "it stands under torch.vmap, where a tensor is one example and no output of the "
            "model; tap the result of vmap instead"
        )
    if tensor.layout is not torch.strided or getattr(tensor, "is_nested", False):
        return f"its layout is {tensor.layout}, which ONNX lacks; tap x.to_dense()"
    if tensor.is_quantized:
        return "it is a quantized tensor, which ONNX lacks; tap x.dequantize()"
    return ""

"""A second device for torch without a GPU: it computes on the CPU and refuses what a GPU refuses.

``with far():`` a tensor made for the device ``far`` lives there, and an operator that reads
tensors of both devices raises, as CUDA's do.  Numbers (tensors without dimensions) may be mixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

__all__ = ["far"]


@contextlib.contextmanager
def far() -> Iterator[None]:
    """Lets torch have the device ``far`` for as long as it lasts."""
    _named()
    with _Made(), _Far():
        yield


@cache
def _named() -> None:
    _setup_privateuseone_for_python_backend("far")


class _Tensor(torch.Tensor):  # type: ignore[misc]  # torch is read as untyped
    """A tensor that says it is far; what it holds is on the CPU."""

    @staticmethod
    def __new__(cls, near: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, near.size(), strides=near.stride(), dtype=near.dtype,
            storage_offset=near.storage_offset(), device="far:0",
        )  # fmt: skip

    def __init__(self, near: Any) -> None:
        self.near = near

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class _Far(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class _Made(TorchFunctionMode):  # type: ignore[misc]
    """Does what torch would not dispatch: ``torch.tensor(..., device="far")``, ``tolist``."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.tolist:
            return _near(args[0]).tolist()
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if func is torch.tensor else None
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


def _computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    homes = {isinstance(t, _Tensor) for t in tensors if t.dim()}
    if len(homes) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device: {func}")
    there = any(isinstance(t, _Tensor) for t in tensors)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == "far"
    found = func(*tree_map(_near, args), **tree_map(_near, kwargs))
    return tree_map(_Tensor, found, is_leaf=_plain) if there and _holds(found) else found


def _near(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.near if isinstance(value, _Tensor) else value


def _plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _holds(found: Any) -> bool:
    return all(_plain(each) for each in tree_leaves(found))

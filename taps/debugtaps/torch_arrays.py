"""Tensors of torch as arrays and back, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import TapError

__all__ = ["from_numpy", "to_numpy"]

Array = npt.NDArray[Any]


def to_numpy(tensor: Any) -> Array:
    """Returns a tensor's values without loss: bfloat16 and float8 as types of ``ml_dtypes``.

    Complex values become pairs along a last axis, as in exported models.

    Raises:
        TapError: Neither numpy nor ``ml_dtypes`` has the type, or the layout is not dense.
    """
    import ml_dtypes
    import torch

    value = tensor.detach().cpu()
    if value.layout is not torch.strided or value.is_quantized:
        raise TapError(f"a tensor of layout {value.layout} and type {value.dtype} is not dense")
    if value.is_complex():
        value = torch.view_as_real(value)
    value = value.resolve_conj().resolve_neg()
    name = str(value.dtype).removeprefix("torch.")
    kind = getattr(ml_dtypes, name, None)
    try:
        if kind is None:
            return np.array(value.numpy(), copy=True)
        bits = {1: torch.uint8, 2: torch.int16}[value.element_size()]
        return np.array(value.contiguous().view(bits).numpy(), copy=True).view(kind)
    except (TypeError, RuntimeError, KeyError) as error:
        raise TapError(f"values of type {value.dtype} cannot be kept ({error})") from None


def from_numpy(array: Array) -> Any:
    """Returns an array as a torch tensor of the same type; the values are copied."""
    import torch

    kind = getattr(torch, array.dtype.name, None)
    if array.dtype.isbuiltin == 1 or kind is None:
        return torch.from_numpy(np.array(array, copy=True))
    bits = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    return torch.from_numpy(array.copy(order="C").view(bits)).view(kind)

"""The reference run: the model in eager torch, its taps recorded and its time taken."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import ModelError, TapError
from debugtaps.recording import Recorder, observing
from debugtaps.torch_arrays import to_numpy
from debugtaps.torch_file import TorchFile
from debugtaps.user_code import user_code

__all__ = ["EagerRun", "run_eager"]

Array = npt.NDArray[Any]

_TIMED_SECONDS = 0.5
_TIMED_RUNS = 20
_LEAST_RUNS = 3


@dataclass(frozen=True, slots=True)
class EagerRun:
    """What torch computed.

    Attributes:
        outputs: The model's outputs in order, nested ones flattened, ``None`` left out.
        recorder: What the taps told.
        random: The largest difference between two runs, by the number of the output.
        random_taps: The same by tap.
        timings_ms: Of several runs without taps.
    """

    outputs: tuple[Array, ...]
    recorder: Recorder
    random: Mapping[int, float]
    random_taps: Mapping[str, float]
    timings_ms: Array


def run_eager(file: TorchFile, *, taps: bool) -> EagerRun:
    """Runs the model in eager torch.

    Args:
        file: The model.
        taps: Whether taps are recorded; without, ``tap`` does nothing at all.

    Raises:
        ModelCodeError: ``forward`` raised.
        ModelError: An output is no tensor, or one that numpy cannot hold.
        TapError: A tap is misplaced or repeated.
    """
    recorder, again = Recorder(), Recorder()
    with _quiet_eval():
        first = _outputs(file, _forward(file, recorder if taps else None))
        second = _outputs(file, _forward(file, again if taps else None))
        timings = _timings(file)
    random = {i: d for i, pair in enumerate(zip(first, second, strict=True))
              if (d := _distance(*pair))}  # fmt: skip
    moved = {n: d for n, v in recorder.values.items()
             if n in again.values and (d := _tensor_distance(v, again.values[n]))}  # fmt: skip
    return EagerRun(tuple(first), recorder, random, moved, timings)


@contextmanager
def _quiet_eval() -> Iterator[None]:
    import torch

    # The fused kernel of attention computes inner tensors that no tap then meets.
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _forward(file: TorchFile, recorder: Recorder | None) -> Any:
    args, kwargs = _copied((file.args, dict(file.kwargs)))
    with user_code("Model.forward", file.home):
        if recorder is None:
            return file.model(*args, **kwargs)
        with observing(recorder):
            return file.model(*args, **kwargs)


def _copied(value: Any) -> Any:
    """A forward that works in place shall not change what the next run is fed."""
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value
    )


def _outputs(file: TorchFile, result: Any) -> list[Array]:
    from torch.utils import _pytree

    found: list[Array] = []
    for path, leaf in _pytree.tree_flatten_with_path(result)[0]:
        if leaf is None:
            continue
        where = _pytree.keystr(path)
        if not _is_tensor(leaf):
            raise ModelError(
                f"{file.path}: forward returns a {type(leaf).__name__} (output{where}); outputs "
                "of a model are tensors, or lists, tuples or dictionaries of tensors"
            )
        try:
            found.append(to_numpy(leaf))
        except TapError as error:
            raise ModelError(f"{file.path}: output{where} cannot be kept: {error}") from None
    if not found:
        raise ModelError(f"{file.path}: forward returns no tensor")
    return found


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _distance(first: Array, second: Array) -> float:
    if first.shape != second.shape:
        return float("inf")
    if first.tobytes() == second.tobytes():
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(first.astype(np.float64) - second.astype(np.float64))))


def _tensor_distance(first: Any, second: Any) -> float:
    try:
        return _distance(to_numpy(first), to_numpy(second))
    except TapError:
        return 0.0


def _timings(file: TorchFile) -> Array:
    found: list[float] = []
    begun = time.perf_counter()
    while len(found) < _LEAST_RUNS or (
        len(found) < _TIMED_RUNS and time.perf_counter() - begun < _TIMED_SECONDS
    ):
        args, kwargs = _copied((file.args, dict(file.kwargs)))
        start = time.perf_counter()
        with user_code("Model.forward", file.home):
            file.model(*args, **kwargs)
        found.append((time.perf_counter() - start) * 1e3)
    return np.array(found)

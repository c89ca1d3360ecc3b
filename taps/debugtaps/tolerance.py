"""The tolerances a user asked for: Polygraphy's rule, for all outputs or for one by name.

An element fails when its error is above ``atol`` absolutely **and** above ``rtol`` relatively.
Two things differ from Polygraphy: equal non-finite elements agree, and one-sided ones always
fail.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from debugtaps.compare import comparable, mape, nonfinite_differs
from debugtaps.errors import InputError

__all__ = ["ErrorStat", "Limits", "Tolerance"]

Array = npt.NDArray[Any]
ErrorStat = Literal["elemwise", "mean", "median", "max", "quantile"]

_EPSILON = 2.0**-52  # stands for a reference of zero, as in Polygraphy's rule
_ELEMWISE: tuple[ErrorStat, float] = ("elemwise", 0.99)
_DEFAULT = 1e-5  # Polygraphy's, for the one of atol and rtol that was not given


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user allows one output: `None` where nothing was asked."""

    atol: float | None = None
    rtol: float | None = None
    stat: ErrorStat = "elemwise"
    quantile: float = 0.99
    max_mape: float | None = None

    def exceeded(self, engine: Array, reference: Array) -> str | None:
        """Returns what exceeds these limits in one sentence, or ``None``.

        An error fails when it is above ``atol`` absolutely **and** above ``rtol`` relatively;
        ``stat`` says which error: of every element, or one statistic of both over the tensor.
        Another shape and a one-sided non-finite element always fail; equal non-finite elements
        agree.

        >>> limits = Limits(atol=0.1, rtol=0.1)
        >>> limits.exceeded(np.array([1.05, 100.0]), np.array([1.0, 99.0])) is None
        True
        >>> limits.exceeded(np.array([1.5]), np.array([1.0]))
        '1 of 1 elements above atol 0.1 and rtol 0.1'
        """
        if engine.shape != reference.shape:
            return f"shape {list(engine.shape)}, expected {list(reference.shape)}"
        if (engine.dtype.kind in "OUST") != (reference.dtype.kind in "OUST"):
            return "one tensor holds text, the other numbers"
        got, want = comparable(engine, reference)
        differs = nonfinite_differs(got, want)
        if differs.any():
            return f"{int(differs.sum())} elements non-finite on one side"
        finite = np.isfinite(want)
        return self._numbers_exceeded(got[finite], want[finite])

    def _numbers_exceeded(self, got: Array, want: Array) -> str | None:
        if not want.size:
            return None
        if self.atol is not None and self.rtol is not None:
            error = np.abs(got - want)
            relative = error / np.where(want == 0, _EPSILON, np.abs(want))
            if self.stat == "elemwise":
                above = int(((error > self.atol) & (relative > self.rtol)).sum())
                if above:
                    return (
                        f"{above} of {want.size} elements above atol {self.atol:g}"
                        f" and rtol {self.rtol:g}"
                    )
            else:
                absolute, rel = self._statistic(error), self._statistic(relative)
                if absolute > self.atol and rel > self.rtol:
                    return (
                        f"{self.stat} error {absolute:.3g} above atol {self.atol:g} and"
                        f" relative {rel:.3g} above rtol {self.rtol:g}"
                    )
        if self.max_mape is not None and (percent := mape(got, want)) > self.max_mape:
            return f"mean error {percent:.3g} %, allowed {self.max_mape:g} %"
        return None

    def _statistic(self, error: Array) -> float:
        if self.stat == "quantile":
            return float(np.quantile(error, self.quantile))
        if self.stat == "mean":
            return float(np.mean(error))
        return float(np.median(error) if self.stat == "median" else np.max(error))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The tolerances a user gave, by output; the name ``""`` stands for all others.

    >>> t = Tolerance.parse(atol=["1e-3", "boxes:0.5"], check_error_stat=["max"])
    >>> t.limits("boxes").atol, t.limits("scores").atol, t.limits("scores").stat
    (0.5, 0.001, 'max')
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)
    stat: Mapping[str, tuple[ErrorStat, float]] = field(default_factory=dict)
    max_mape: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        *,
        atol: Iterable[str] = (),
        rtol: Iterable[str] = (),
        check_error_stat: Iterable[str] = (),
        max_mape: Iterable[str] = (),
    ) -> Tolerance | None:
        """Returns the tolerances of a command line, or ``None`` when none is given.

        Args:
            atol: ``V`` or ``NAME:V``.
            rtol: ``V`` or ``NAME:V``.
            check_error_stat: ``elemwise``, ``mean``, ``median``, ``max``, ``quantile`` or
                ``quantile=0.95``, each also as ``NAME:STAT``.
            max_mape: ``V`` or ``NAME:V``, in percent.

        Raises:
            InputError: A value is no number, is negative, or no statistic has that name.
        """
        parsed = cls(
            atol=_numbers_by_name("--atol", atol),
            rtol=_numbers_by_name("--rtol", rtol),
            stat={name: _stat(text) for name, text in _by_name(check_error_stat)},
            max_mape=_numbers_by_name("--max-mape", max_mape),
        )
        return parsed if parsed.atol or parsed.rtol or parsed.stat or parsed.max_mape else None

    def limits(self, output: str) -> Limits:
        """Returns what is allowed for ``output``.

        Once an absolute, a relative tolerance or a statistic is given for any output, atol and
        rtol are 1e-5 wherever they are not given, as in Polygraphy.
        """
        atol, rtol = _pick(self.atol, output), _pick(self.rtol, output)
        stat, quantile = self.stat.get(output) or self.stat.get("") or _ELEMWISE
        if self.atol or self.rtol or self.stat:  # with max_mape alone, only that counts
            atol = _DEFAULT if atol is None else atol
            rtol = _DEFAULT if rtol is None else rtol
        return Limits(atol, rtol, stat, quantile, _pick(self.max_mape, output))

    def exceeded(self, output: str, engine: Array, reference: Array) -> str | None:
        """Returns what exceeds the limits of ``output`` in one sentence, or ``None``."""
        return self.limits(output).exceeded(engine, reference)

    def check_names(self, outputs: Iterable[str]) -> None:
        """Checks that every output named here is one of the model's.

        Raises:
            InputError: One is not; the message names the nearest that is.
        """
        known = list(outputs)
        for name in [*self.atol, *self.rtol, *self.stat, *self.max_mape]:
            if name and name not in known:
                near = difflib.get_close_matches(name, known, 1) or known[:3]
                raise InputError(
                    f"A tolerance names output '{name}', which the model does not have;"
                    f" did you mean {', '.join(map(repr, near))}?"
                )


def _pick(table: Mapping[str, float], name: str) -> float | None:
    return table.get(name, table.get(""))


def _by_name(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Splits at the last colon: names of outputs may hold colons, values never do."""
    return [(name, value) for name, _, value in (text.rpartition(":") for text in texts)]


def _numbers_by_name(option: str, texts: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in _by_name(texts):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not value >= 0:
            raise InputError(f"{option} '{text}' is no number from 0 up; write V or NAME:V.")
        found[name] = value
    return found


def _stat(text: str) -> tuple[ErrorStat, float]:
    name, _, share = text.partition("=")
    if name not in get_args(ErrorStat) or (share and name != "quantile"):
        names = ", ".join(get_args(ErrorStat))
        raise InputError(f"--check-error-stat '{text}' is none of {names} (or quantile=0.95).")
    try:
        quantile = float(share or 0.99)
    except ValueError:
        quantile = math.nan
    if not 0 <= quantile <= 1:
        raise InputError(f"--check-error-stat '{text}': a quantile lies between 0 and 1.")
    return cast(ErrorStat, name), quantile

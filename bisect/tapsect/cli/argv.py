"""Lists after one flag: ``--inputs a.npz b.npz`` becomes ``--inputs a.npz --inputs b.npz``.

``--check`` takes all that follows, as one JSON list.

A word is taken into the list only while it looks like one of the list's values, so that MODEL may
stand before or after: ``--inputs a.npz model.onnx`` takes one input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["LISTS", "expand_lists"]

_SHOWN = r"(nodes|attrs|weights|taps|cuts)"
_STATS = r"(elemwise|mean|median|max|quantile(=[\d.]+)?)"


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda word: compiled.fullmatch(word) is not None


_is_number = _matches(r"(.*:)?\+?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _is_data(word: str) -> bool:
    return not word.startswith("-") and not word.endswith(".onnx")


LISTS: Mapping[str, Callable[[str], bool]] = {
    "--inputs": _is_data,
    "--input-shapes": _matches(r".+:\s*\[.*\]"),
    "--model-input-shapes": _matches(r".+:\s*\[.*\]"),
    "--outputs": _is_data,
    "--artifacts": _matches(r"[^-].*"),
    "--fail-code": _matches(r"\d+"),
    "--ignore-fail-code": _matches(r"\d+"),
    "--passes": _matches(r"[a-z]+(-[a-z]+)*(,[a-z-]+)*"),
    "--show": _matches(_SHOWN + rf"(,{_SHOWN})*"),
    "--engine-option": _matches(r"[^-].*?=.*"),
    "--knob": _matches(r"[A-Za-z_][\w.]*(?<!\.onnx)"),
    "--override-input-shapes": _matches(r".+:\s*\[.*\]"),
    "--atol": _is_number,
    "--rtol": _is_number,
    "--max-mape": _is_number,
    "--max-mse": _is_number,
    "--max-diff": _is_number,
    "--min-cosine": _is_number,
    "--max-ulp": _is_number,
    "--min-snr": _is_number,
    "--check-error-stat": _matches(rf"(.*:)?{_STATS}"),
}


def expand_lists(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the flag repeated before every value of a list.

    >>> expand_lists(["--inputs", "a.npz", "b.npz", "m.onnx", "--atol", "1e-3", "y:1"])
    ['--inputs', 'a.npz', '--inputs', 'b.npz', 'm.onnx', '--atol', '1e-3', '--atol', 'y:1']
    """
    expanded: list[str] = []
    flag: str | None = None
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word == "--":
            return [*expanded, word, *argv[position:]]
        if word == "--check":  # the rest is a command of its own, its options included
            return [*expanded, word, json.dumps(list(argv[position:]))]
        if word in LISTS:
            flag = word
            expanded.append(word)
            if position < len(argv):  # the first value is the flag's, whatever it looks like
                expanded.append(argv[position])
                position += 1
        elif flag is not None and LISTS[flag](word):
            expanded += [flag, word]
        else:
            name = word.partition("=")[0]
            flag = name if name in LISTS and "=" in word else None
            expanded.append(word)
    return expanded

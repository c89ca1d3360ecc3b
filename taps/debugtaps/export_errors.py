"""Why a model could not be exported, in the words of somebody who has to change it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from debugtaps.errors import ModelCodeError, ModelError, TapsError
from debugtaps.torch_file import TorchFile
from debugtaps.user_code import explained, shown_path, user_frame, user_frames

__all__ = ["explain_export"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CALL = re.compile(r'File "(.+?)", line (\d+), in (\w+)')
_NO_FUNCTION = re.compile(
    r"(?:No (?:ONNX function|decompositions|Python implementation).*?for|Unsupported FX nodes:.*?)"
    r"\s*<?\W*OpOverload\(op='([\w.:]+)'"
)

_TRANSLATING = re.compile(r"Error when translating node .*?target=torch\.ops\.([\w.]+)")


def explain_export(error: Exception, file: TorchFile) -> TapsError:
    """Returns the error that a failed export becomes."""
    chain = list(_chain(error))
    ours = next((e for e in chain if isinstance(e, TapsError)), None)
    if ours is not None:
        return ours
    text = _COLOUR.sub("", "\n".join(str(e) for e in chain))
    kinds = {type(e).__name__ for e in chain}
    if "data-dependent" in text or "DataDependent" in " ".join(kinds):
        return ModelError(
            f"{_place(text, file)}: forward cannot be traced: which way it goes, or how large a "
            "tensor is, depends on the values of a tensor (an if, a loop, an index); use "
            "torch.where or torch.cond, or compute it outside forward"
        )
    missing = _NO_FUNCTION.search(text)
    if missing:
        return ModelError(
            f"{file.path}: the exporter has no translation for the operator {missing[1]}; give "
            "one in onnx_translations()"
        )
    inner = chain[-1]
    failed = _TRANSLATING.search(text)
    if failed:
        return ModelError(
            f"{_place(text, file)}: the exporter cannot translate the operator {failed[1]}: "
            f"{_first_line(inner)}; give a translation of your own in onnx_translations(), or "
            "write it with other operators"
        )
    if user_frames(inner):
        raised = explained("Model.forward, while it was traced,", inner, file.home)
        return ModelCodeError(str(raised), raised.trace)
    return ModelError(
        f"{_place(text, file)}: the model cannot be exported to ONNX: {_first_line(inner)}"
    )


def _first_line(error: BaseException) -> str:
    first = next((s.strip() for s in str(error).splitlines() if s.strip()), "no message")
    return f"{type(error).__name__}: {_COLOUR.sub('', first)[:400]}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _place(text: str, file: TorchFile) -> str:
    """Returns the innermost line of the user's that a message mentions."""
    frames = [(f, n) for f, n, _ in _CALL.findall(text) if user_frame(f)]
    return f"{shown_path(frames[-1][0], file.home)}:{frames[-1][1]}" if frames else str(file.path)

"""Errors in the user's own Python, told with the user's lines and none of ours."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from debugtaps.errors import ModelCodeError, TapsError

__all__ = ["shown_path", "user_code", "user_frame"]

_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(k) for k in ("purelib", "platlib", "stdlib")})


@contextmanager
def user_code(what: str, home: Path) -> Iterator[None]:
    """Runs code of the user's; what it prints goes to standard error.

    Args:
        what: What runs, for the message: ``Model()``, ``Model.forward``.
        home: The folder of the user's file; paths are shown relative to it.

    Raises:
        ModelCodeError: It raised.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except TapsError:
        raise
    except SystemExit as error:
        raise ModelCodeError(f"{what} ended the process (SystemExit: {error.code})") from error
    except Exception as error:
        raise explained(what, error, home) from error


def explained(what: str, error: BaseException, home: Path) -> ModelCodeError:
    """Returns the error of a failure in the user's code."""
    kind, text = type(error).__name__, str(error).strip()
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{shown_path(error.filename, home)}:{error.lineno}"
        return ModelCodeError(f"{where}: {kind}: {error.msg}", f"{where}\n    {error.text or ''}")
    frames = user_frames(error)
    trace = "".join(traceback.format_list(frames)) + f"{kind}: {text}"
    if not frames:
        return ModelCodeError(f"{what} raised {kind}: {text[:600]}", trace)
    last = frames[-1]
    where = f"{shown_path(last.filename, home)}:{last.lineno}"
    line = f" (`{last.line}`)" if last.line else ""
    return ModelCodeError(
        f"{where}: {what} raised in {last.name}{line} {kind}: {text[:600]}", trace
    )


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the frames of the user's own files, outermost first."""
    return [f for f in traceback.extract_tb(error.__traceback__) if user_frame(f.filename)]


def user_frame(file: str) -> bool:
    """Returns whether a file is neither ours, nor of a library, nor made up."""
    return not (file.startswith((_OURS, "<")) or (file.startswith(_LIBRARIES)))


def shown_path(file: str, home: Path) -> str:
    """Returns a path as messages and files show it: relative to ``home`` where it lies there."""
    path = Path(file)
    try:
        return str(path.resolve().relative_to(home.resolve()))
    except ValueError:
        return str(path)

"""Reads what a diagnosis wrote; whatever else lies there is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from debugtaps import InputError
from tapsect.finding import Finding
from tapsect.folder import RESULT

__all__ = ["read_result"]


def read_result(folder: Path) -> Finding:
    """Returns the finding of a folder that a diagnosis wrote.

    Raises:
        InputError: There is no readable ``result.json``.
    """
    path = folder / RESULT if folder.is_dir() else folder
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {RESULT}; name a folder that tapsect bisect wrote."
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON or is truncated ({error}).") from None
    return Finding.from_json(body)

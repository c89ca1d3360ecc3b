"""A finding as text, as Markdown and on disk: pure functions, and one that writes."""

from __future__ import annotations

import json
from pathlib import Path

from debugtaps import InputError, write_json_atomic, write_text_atomic
from tapsect.finding import Finding
from tapsect.folder import MARKDOWN, RESULT
from tapsect.report.markdown import render_markdown
from tapsect.report.terminal import render, render_brief, render_text, wrapped

__all__ = [
    "read_result",
    "render",
    "render_brief",
    "render_markdown",
    "render_text",
    "wrapped",
    "write_reports",
]


def write_reports(folder: Path, finding: Finding) -> None:
    """Writes ``result.json`` and ``report.md`` into ``folder``."""
    write_json_atomic(folder / RESULT, finding.to_json())
    write_text_atomic(folder / MARKDOWN, render_markdown(finding))


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

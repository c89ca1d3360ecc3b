"""Names and messages come from models and engines; here they are made harmless to show.

A name may hold terminal sequences, marks that turn the direction of text, line breaks, HTML or
Markdown.  Everything that is no plain visible character is written as its escape.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["LONGEST", "clean", "code", "md"]

LONGEST = 2000
"""Most characters of one text in a report."""

_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~$&]|^[-+=])")
_LINK = re.compile(r"(?i)(\bhttps?|\bftp|\bwww|\bmailto|@)(?=[.:\w])")


def clean(text: str, *, limit: int = 400) -> str:
    r"""Returns ``text`` on one line, with every invisible character written as its escape.

    Args:
        text: What a model or an engine said.
        limit: Longest result; the middle of a longer one is left out.

    >>> clean("a\x1b[31mb\u202ec\n")
    'a\\x1b[31mb\\u202ec\\n'
    """
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} … {text[-half:]}"
    return "".join(c if _visible(c) else _escaped(c) for c in text)


def md(text: str) -> str:
    r"""Returns ``text`` as Markdown that shows exactly it.

    >>> print(md("<b>*x*</b>"))
    \<b\>\*x\*\</b\>
    """
    escaped = _MARKDOWN.sub(r"\\\1", clean(text, limit=LONGEST))
    return _LINK.sub("\\1\u200b", escaped)


def code(text: str, *, table: bool = False) -> str:
    """Returns ``text`` as a Markdown code span.

    Args:
        text: A name.
        table: Whether the span stands in a table, where a bar would end the cell.

    >>> code("a`b")
    '``a`b``'
    """
    shown = clean(text) or " "
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    if table:
        shown = shown.replace("|", "\\|")
    return f"{fence}{pad}{shown}{pad}{fence}"


def _visible(char: str) -> bool:
    # Cc control, Cf format (direction marks, zero width), Cs lone surrogates, Zl/Zp line ends,
    # Co private use, Cn not assigned.
    return char == " " or unicodedata.category(char)[0] not in "CZ"


def _escaped(char: str) -> str:
    if char == "\u00a0":
        return " "
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")

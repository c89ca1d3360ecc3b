"""``--bisect-versions``: of a new fault, the release of the engine that brought it, by trying."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debugtaps import TapsError
from tapsect.axes.versions import between, releases, version_key
from tapsect.diagnose.given import Options
from tapsect.progress import Progress
from tapsect.triage.content import arguments
from tapsect.triage.plan import Entry
from tapsect.triage.since import Since
from tapsect.versions import find_border

__all__ = ["changed_release", "prove"]


def changed_release(since: Since) -> tuple[str, str, str] | None:
    """Returns the engine's package and its releases before and after, the older one first.

    Args:
        since: Since when an entry fails.

    Returns:
        ``None`` when the package's release did not change, or the engine does not tell it.
    """
    if since.good is None or since.bad is None:
        return None
    before, after = (_versions(look.facts) for look in (since.good, since.bad))
    name = str(since.bad.facts["engine"]["describe"].get("name", ""))
    old, new = before.get(name), after.get(name)
    if old is None or new is None or old == new:
        return None
    low, high = sorted((str(old), str(new)), key=version_key)
    return name, low, high


def _versions(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    told: Mapping[str, Any] = facts["engine"]["describe"].get("versions", {})
    return told


def prove(entry: Entry, since: Since, progress: Progress) -> str | None:
    """Returns which release brought a fault, in one sentence; why that cannot be told otherwise.

    Args:
        entry: One that shows it.
        since: Since when.
        progress: Hears of each release.

    Returns:
        ``None`` when the engine's release did not change.
    """
    changed = changed_release(since)
    if changed is None:
        return None
    package, low, high = changed
    try:
        chosen = between(releases(package), low, high, package)
        return find_border(_options(entry), package, chosen, progress).message
    except TapsError as error:
        return f"The releases of {package} could not be tried: {error}"


def _options(entry: Entry) -> Options:
    told = arguments(entry)
    original = told.get("reference_model")
    return Options(
        Path(told["model"]), tuple(told.get("inputs", ())), told.get("input_shapes"),
        told["engine"], told.get("engine_options", {}), None, told.get("reference"),
        None if original is None else Path(original), told.get("precision"),
        judge=told.get("judge"), seed=told["seed"],
    )  # fmt: skip

"""What a report says of further looks: how often it fails, and for which inputs."""

from __future__ import annotations

from collections.abc import Callable

from tapsect.finding import Finding

__all__ = ["inputs", "often"]


def often(finding: Finding, text: Callable[[str], str]) -> list[str]:
    """Returns how often it fails, where that was measured.

    Args:
        finding: The result.
        text: Shows a sentence that holds names.
    """
    seen = finding.repeats
    if seen is None:
        return []
    rate = f"{seen.bad} of {seen.of} {seen.unit}s failed"
    lines = [f"{rate}: a rate of {seen.low:.0%} to {seen.high:.0%} (95 %)"]
    if seen.unit == "run":
        lines.append(f"in {seen.mixed} of {seen.builds} builds the runs disagree")
    lines += [text(each) for each in seen.chosen]
    if seen.confidence is not None:
        lines.append(f"the place is this one with a probability of {seen.confidence:.1%}")
    return lines


def inputs(finding: Finding, text: Callable[[str], str]) -> list[str]:
    """Returns which samples fail and what they have in common.

    Args:
        finding: The result.
        text: Shows a sentence that holds names.
    """
    seen = finding.samples
    if seen is None:
        return []
    lines = []
    if len(seen.failing) < seen.of:
        which = ", ".join(str(n) for n in seen.failing[:10])
        lines.append(f"{len(seen.failing)} of {seen.of} samples fail: {which}")
    for each in seen.separated_by:
        luck = f" (by luck in {each.chance:.0%})" if each.chance > 0.05 else ""
        lines.append(f"in failing samples {text(each.words)}{luck}")
    if seen.control is not None:
        lines.append(f"control: random data of the same sizes {seen.control}")
    return lines

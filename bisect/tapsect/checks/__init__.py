"""How the user says good or bad: a command, its files, a question.

=========  ================================================================================
module     what it holds
=========  ================================================================================
command    a command line, when it counts as failing, one run of it, what the run says
artifacts  the files a check leaves, sorted into good and bad
asking     the question that a person answers with good, bad or skip
=========  ================================================================================

Nothing here knows what is judged: a candidate of a reduction, or an engine that was built again.
"""

from __future__ import annotations

from tapsect.checks.artifacts import Artifacts
from tapsect.checks.asking import Ask, ask_verdict
from tapsect.checks.command import SKIP, CommandLine, Rule, Seen, judged, run_command

__all__ = [
    "SKIP",
    "Artifacts",
    "Ask",
    "CommandLine",
    "Rule",
    "Seen",
    "ask_verdict",
    "judged",
    "run_command",
]

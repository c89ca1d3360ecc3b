"""Many models, every night, one answer: what is new, known, fixed, flaky, and since when.

=============  ================================================================================
suite, plan    what a person wrote, checked; its entries
content        what an entry's answer depends on, as one key
job, runner    one entry in a process of its own; what became of it
supervise      that process, held to its limits of time, memory and builds
local, cluster many of them: threads of this machine, or Ray
history        runs, findings, observations, signatures, in SQLite or PostgreSQL
signatures     when two failures are the same fault
states         what is new about an observation, given the earlier ones   (pure)
since          last good, first bad, and what differs                     (pure)
nightly        the flow of one run
answers/       a run's summary -> terminal, JUnit, JSON, Markdown, HTML   (pure)
=============  ================================================================================
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["check_extra"]

_PACKAGES = ("sqlalchemy", "ruamel", "psutil", "jinja2")


def check_extra() -> None:
    """Checks that the packages of the extra ``triage`` are installed.

    Raises:
        MissingPackage: One is not.
    """
    from debugtaps import MissingPackage

    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise MissingPackage(
            f"tapsect triage needs '{missing}', which is not installed;"
            " pip install 'tapsect[triage]'"
        )

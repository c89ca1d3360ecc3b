"""Is it steady?  One engine asked again and again: builds, runs, tactics, sizes, equal rows.

=========  ==================================================================================
module     what it answers
=========  ==================================================================================
plan       what is asked for
bench      the engine, and who says good or bad: the reference, a command, a person
again      how often builds are bad, and whether it is the build or the run
prove      which choice of the builder makes a build bad
sizes      at which sizes of its dynamic dimensions a model fails
alike      whether an engine agrees with itself: rows, order, sizes, runs
=========  ==================================================================================
"""

from __future__ import annotations

from tapsect.steady.again import Repeated, repeat_builds
from tapsect.steady.alike import Selfcheck, check_itself
from tapsect.steady.plan import CANDIDATE, Check, Plan
from tapsect.steady.prove import Proof, prove_tactics
from tapsect.steady.sizes import Sweep, sweep_sizes

__all__ = [
    "CANDIDATE",
    "Check",
    "Plan",
    "Proof",
    "Repeated",
    "Selfcheck",
    "Sweep",
    "check_itself",
    "prove_tactics",
    "repeat_builds",
    "sweep_sizes",
]

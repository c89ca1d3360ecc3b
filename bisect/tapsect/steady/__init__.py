"""Is it steady?  One engine asked again and again: builds, runs, tactics, sizes, equal rows.

=========  ==================================================================================
module     what it answers
=========  ==================================================================================
plan       what is asked for
bench      the engine, and who says good or bad: the reference, a command, a person
again      how often builds are bad, and whether it is the build or the run
prove      which choice of the builder makes a build bad
=========  ==================================================================================
"""

from __future__ import annotations

from tapsect.steady.again import Repeated, repeat_builds
from tapsect.steady.plan import CANDIDATE, Check, Plan
from tapsect.steady.prove import Proof, prove_tactics

__all__ = ["CANDIDATE", "Check", "Plan", "Proof", "Repeated", "prove_tactics", "repeat_builds"]

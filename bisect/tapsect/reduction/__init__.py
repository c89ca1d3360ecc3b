"""The smallest sub-model that still fails.  Pure: it knows no model, process or file.

=============  ==============================================================================
problem        the noun in the middle: ``current``, ``consider(candidate)``, ``sort_key``
passes/        one way of making a candidate smaller per file, and one ordered table
reducer        the driver: start check, fixed point, proof of 1-minimality, fresh end check
=============  ==============================================================================
"""

from __future__ import annotations

from tapsect.candidate import Candidate, Structure
from tapsect.reduction.passes import BY_BISECTION, BY_STEPS, TABLE, Pass
from tapsect.reduction.problem import Check, Problem, Reducible
from tapsect.reduction.question import Answer, Asked, OtherFailure, Question
from tapsect.reduction.reducer import Confirm, DoesNotFail, Reduced, Stage, reduce

__all__ = [
    "BY_BISECTION",
    "BY_STEPS",
    "TABLE",
    "Answer",
    "Asked",
    "Candidate",
    "Check",
    "Confirm",
    "DoesNotFail",
    "OtherFailure",
    "Pass",
    "Problem",
    "Question",
    "Reduced",
    "Reducible",
    "Stage",
    "Structure",
    "reduce",
]

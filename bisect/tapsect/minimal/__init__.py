"""Any failing model, any check: the smallest one that fails the same way.

===========  ======================================================================================
module       what it answers
===========  ======================================================================================
trial        what a check is given: a model that can be run, and its samples
checks       a command says whether a trial fails; what a command is stands in `tapsect.checks`
person       a person says it
builtin      the engine against the reference says it
given_truth  what the user says of the whole: golden values, a judge
ground       the model, its samples and recorded values, ready to be cut
flaky        a check that fails now and then: its rate, and the search that bears it
magnitude    how large a wrong answer is
glance       a hint: one look at all tensors at once
parts        first stage: parts of the graph
models       second stage: what is left, as a whole
again        parts once more, of the plain model
flow         the order of it all
written      what stands on the disk at the end
call         the same from Python
===========  ======================================================================================
"""

from __future__ import annotations

from tapsect.checks import CommandLine, Rule
from tapsect.minimal.flow import Minimized, minimize
from tapsect.minimal.plan import Plan, passes_table

__all__ = ["CommandLine", "Minimized", "Plan", "Rule", "minimize", "passes_table"]

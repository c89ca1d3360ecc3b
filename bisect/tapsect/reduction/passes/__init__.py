"""The passes of a reduction, in the order in which they run.

A pass is a function ``run(problem)`` that proposes smaller candidates.  It is one file here and
one row of ``TABLE``; the row's name is the word on the command line.

If you write one, this is what the driver relies on:

*It proposes, and nothing else.*  ``problem.current`` is the smallest candidate that fails;
``problem.consider(candidate)`` says whether another one does, and makes it current when it is
smaller.  A pass never stores a candidate to return it, counts builds, caches answers, looks at a
clock or checks that a candidate is valid: asking about a candidate twice, or about one that
cannot exist, is free.

*It is deterministic.*  What it proposes depends on ``problem.current``, on the structure and on
the answers, and on nothing else: no randomness, no order of a ``set``.  The driver runs a pass
again only when ``current`` has changed since, and equal questions must end in equal minima.

*It may say what comes next.*  ``problem.foresee(candidates)`` names what will be asked if the
answers are no, so that several checks can run at a time.  It changes no answer and no count.

*It makes one sweep.*  Never run to a fixed point inside a pass.  Another pass may make yours
worth more by then; the driver repeats the whole table until nothing changes.

*It never assumes monotony.*  That a candidate fails says nothing about larger ones, and that it
does not fail says nothing about smaller ones.  Probe in halves to be fast, but end in single
steps when the pass is of the kind ``shrink``.

*Success must not cost more than failure.*  After a success go on from where you are, do not
start over: a pass that restarts is quadratic exactly where it works best.

*It goes from coarse to fine.*  The first proposals should remove half of what can be removed: a
pass that has nothing to do on large candidates should find out in O(log n) questions.

*Its docstring says what it guarantees to have tried* when it returns with ``current`` unchanged.
A pass of the kind ``shrink`` must finish, whatever the budget: the proof that the result is
1-minimal rests on it.  One of the kind ``beautify`` may be stopped at any question, after which
every answer is no.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tapsect.reduction.passes.bypass_nodes import bypass_nodes
from tapsect.reduction.passes.cut_ends import cut_ends
from tapsect.reduction.passes.cut_outputs import cut_outputs
from tapsect.reduction.passes.drop_runs import drop_runs
from tapsect.reduction.passes.feed_directly import feed_directly
from tapsect.reduction.passes.fold_branch import fold_branch
from tapsect.reduction.passes.walk_ends import walk_ends

__all__ = ["BY_BISECTION", "BY_STEPS", "TABLE", "Pass"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One row of the table.

    Attributes:
        name: The word on the command line and in the trail.
        purpose: One line for a person.
        run: The pass; it sees an ``Asked`` over its kind of candidate.
        kind: ``shrink`` must finish, ``beautify`` stops at the budget.
    """

    name: str
    purpose: str
    run: Callable[[Any], None]
    kind: Literal["shrink", "beautify"]


TABLE: tuple[Pass, ...] = (
    Pass("cut-outputs", "look at fewer tensors", cut_outputs, "shrink"),
    Pass("cut-ends", "end earlier, begin later", cut_ends, "shrink"),
    Pass("bypass-nodes", "let readers read what a node read", bypass_nodes, "shrink"),
    Pass("fold-branch", "feed what a branch computed", fold_branch, "beautify"),
    Pass("drop-runs", "drop runs of nodes and feed their readers", drop_runs, "shrink"),
    Pass("feed-directly", "feed what a node read in the given model", feed_directly, "beautify"),
)
"""Cheap and coarse first.  Bypassing comes before dropping: between two nodes that fail only
together every drop is in vain, while one bypass may take everything away."""

BY_BISECTION: tuple[Pass, ...] = (TABLE[1],)
"""What ``--mode bisect`` runs: a contiguous part, in a logarithm of calls."""

BY_STEPS: tuple[Pass, ...] = (
    Pass("walk-ends", "end earlier, begin later, one node at a time", walk_ends, "shrink"),
)
"""What ``--mode linear`` runs: a contiguous part, also where the failure is not monotone."""

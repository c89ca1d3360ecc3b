"""Searchers: a question goes in, an answer and its price come out.  Pure, standard library only.

=========  ==========================================  ============================
module     question                                    cost for one culprit among n
=========  ==========================================  ============================
line       which is the first bad position?            log2(n)
frontier   which taps can be trusted, and where        1, or 2 log2(n) when taps
           does the fault hide between them?           disturb the failure
subsets    which items are needed together?            2 log2(n)
foresight  what will one of these ask next?            none
=========  ==========================================  ============================

No searcher knows a graph, an engine, a process or a file.  Each one counts its calls, and the
tests bound the count.
"""

from __future__ import annotations

"""One command: from a model and an engine to a finding.

=======  ======================================================================================
flow     the decisions, in order
workers  engine and reference, which begin to load before anything else
subject  what is diagnosed; everything that can be wrong with the user's input is found there
ends     the truth about the outputs, and the engine's outputs judged against it
blame    confirmed alone, reduced, checked against a second leg
shrink   a confirmed part, handed to the reducer
summary  sentences, records, files
=======  ======================================================================================
"""

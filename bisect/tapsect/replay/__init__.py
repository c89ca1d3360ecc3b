"""What an operator introduced, measured on the reference: replay, causal test, explanations.

============  ================================================================================
reference     the run we believe: noise on its edges, captures, shapes
regions       all operators replayed at once on the engine's own inputs
accumulation  what long sums add to the floor
causal        does one suspect's error alone move the outputs?
propagation   how much of an error came from before
============  ================================================================================
"""

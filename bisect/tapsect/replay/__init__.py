"""What an operator introduced, measured on the reference: replay, causal test, explanations.

============  ================================================================================
noise         what rounding might do: how coarse each edge is, and the noise that stands for it
reference     the run we believe, in its worker: captures, shapes, end-to-end floors
regions       all operators replayed at once on the engine's own inputs
judging       one replayed tensor against the engine's
precision     the precision each class of operators computes in
accumulation  what long sums add to the floor
causal        does one suspect's error alone move the outputs?
propagation   how much of an error came from before
============  ================================================================================
"""

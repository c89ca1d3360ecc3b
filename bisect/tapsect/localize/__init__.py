"""Where: from a failing output to a part of the model that fails by itself.

=========  ====================================================================================
taps       with values: taps, observer proof, replay, causal test
evidence   what faithful builds told
liars      taps that show something else than what is computed
predicate  without values: the engine's message, then prefixes of the model
recorded   values to feed
examine    does a cut-out part fail by itself?
confirm    the located region alone, grown while it does not fail
explain    contributors and amplifiers, when no operator is to blame
=========  ====================================================================================
"""

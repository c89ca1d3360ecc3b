"""Engines: what builds and runs a model, and the child process it does that in."""

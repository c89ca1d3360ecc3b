"""Benchmarks: the bisector beside what people use, in one run.  Never a test of speed."""

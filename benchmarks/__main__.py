"""Runs the benchmark of the whole command: ``python -m benchmarks``."""

from benchmarks.bench import main

raise SystemExit(main())

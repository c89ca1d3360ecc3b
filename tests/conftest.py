"""What every test and every process of one inherits: no more threads than cores, compiled files.

Hundreds of processes are started here.  Each would begin with one thread of OpenBLAS a core, which
spins although nobody multiplies, and compile every module again where a shell forbids bytecode.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

"""What every test and every process of one inherits: one thread, compiled files, no clock.

Hundreds of processes are started here.  Each would begin with one thread of OpenBLAS a core, which
spins although nobody multiplies, and compile every module again where a shell forbids bytecode.
"""

from __future__ import annotations

import os
import sys

from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A machine that is busy is no fault of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

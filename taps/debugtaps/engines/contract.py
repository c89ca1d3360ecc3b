"""The contract of an engine.  Nothing need be inherited: any object with ``build`` will do.

An engine turns an ONNX file into a session; a session answers feeds with outputs.

* ``model`` is an ONNX file.  Weights may lie beside it.  Every tensor named in ``taps`` is
  already promoted: it is a graph output of that file, after the model's own outputs.  An
  engine that has another way to look inside (debug tensors, say) sets ``promotes_taps = True``
  and gets the file without promoted outputs.
* ``run`` returns every graph output and every tap it could expose, under its ONNX name.
  ``feeds`` may hold more names than the model reads.
* A ``build`` or ``run`` that fails raises.  It may also end the process, or never return:
  the caller runs engines in a child process and survives both.

Optional members, asked with ``getattr``:

========================  =====================================================================
engine ``describe()``     mapping with ``name``, ``versions``, ``device`` …
engine ``knobs()``        settings that can be turned one by one
engine ``unit_roundoff``  u of the arithmetic the engine says it computes in
engine ``load(folder)``   a session from what ``save`` wrote; of one file, from that file
engine ``expect(ranges)`` hears before a build what its data need, by input: ``min``, ``opt`` and
                          ``max`` of the shape, ``values`` of small integers
engine ``builds_only``    its sessions never run: it only tells whether a model builds
session ``save(folder)``  engine, plan, cache, tactics, log
session ``fusions()``     sets of ONNX node names that run as one kernel
session ``kernels()``     the same where it takes a build more to tell: asked only when taps
                          change the failure
session ``precisions()``  mapping of tensor or node name to a type name
session ``tactics()``     mapping of a key (a layer, a node) to what the builder chose for it
session ``notes()``       sentences that a reader of the report must know of this build
========================  =====================================================================

``knobs()`` maps options of the constructor to what they may be set to, the options that change
least first: ``{"threads": [1]}`` names other values, the most careful one first;
``{"disabled_optimizers": {"any": ["A", "B"]}}`` an option that takes any subset of those names,
``{"f32_nodes": {"any": "nodes"}}`` one that takes the nodes which shall stay in fp32.
``tapsect fix`` turns them: it constructs the engine anew, in the same process, with one option or
several set so.

Exceptions are observations, but for three: one named ``BadOption`` is the user's matter, a
``TimeoutError`` a time-out, and after one with ``fatal = True`` the process is not used again.

A deterministic engine answers equal feeds with equal bits.  One that does not is fine too: the
diagnosis measures it and says ``flaky_build`` or ``flaky_run``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]

__all__ = ["Array", "Engine", "Feeds", "Session"]


@runtime_checkable
class Session(Protocol):
    """A built engine, ready to run."""

    def run(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, np.ndarray[Any, Any]]:
        """Returns every graph output and every tap that could be exposed, by ONNX name."""

    def close(self) -> None:
        """Frees what the session holds."""


@runtime_checkable
class Engine(Protocol):
    """Turns an ONNX file into a session."""

    def build(self, model: Path, taps: Sequence[str] = ()) -> Session:
        """Returns a session for ``model`` that also exposes ``taps``."""

"""Suites for triage: tiny models with nodes of their own, engines with planted faults, a clock."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.build import Built, Net

if TYPE_CHECKING:  # the models are for tests without the extra, too
    from tapsect.triage.summary import Summary

__all__ = ["FIRST", "Suite", "nth_night", "states", "tiny", "value_at"]

ONE = {"intra_op_num_threads": 1}
"""Idle threads would spin."""
FIRST = dt.datetime(2030, 1, 1, 2, 0, tzinfo=dt.UTC)


def nth_night(number: int) -> dt.datetime:
    """Returns two in the morning of a night; the first is number 1."""
    return FIRST + dt.timedelta(days=number - 1)


def tiny(scope: str, *, seed: int = 0, size: int = 6) -> Built:
    """Returns MatMul, Add, Relu, LayerNormalization, Tanh; node names begin with ``scope/``."""
    net = Net(seed=seed)
    with net.scope(scope):
        x = net.op("Relu", net.linear(net.input("x", (3, size)), size, size))
        scale = net.const(1 + 0.1 * net.rng.standard_normal(size), name="scale")
        net.output(net.op("Tanh", net.op("LayerNormalization", x, scale, axis=-1)))
    return net.build()


def value_at(*nodes: str, **keys: Any) -> dict[str, Any]:
    """Returns a fault that makes the values of nodes wrong."""
    return {"kind": "value", "nodes": list(nodes), **keys}


@dataclass
class Suite:
    """A suite on disk, run night by night.

    Attributes:
        folder: Where everything lies.
        history: Where its history is kept.
        out: Its folder of results.
    """

    folder: Path
    history: str = "history.sqlite"
    out: str = "out"

    @property
    def path(self) -> Path:
        """The suite's file."""
        return self.folder / "suite.yaml"

    def models(self, *names: str) -> None:
        """Writes models; the faults of an engine name their nodes."""
        for number, name in enumerate(names):
            tiny(name, seed=number).save(self.folder / name)

    def write(
        self,
        engines: Mapping[str, Sequence[Mapping[str, Any]]],
        models: Sequence[str],
        *,
        expect: Sequence[Mapping[str, Any]] = (),
        limits: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Writes the suite: planted engines with their faults times models.

        Args:
            engines: Faults by the name of the engine.
            models: Names given to `models`.
            expect: Expectations.
            limits: Of each entry.
            **more: Further keys of each engine.
        """
        body = {
            "name": "zoo",
            "history": self.history,
            "out": self.out,
            "limits": {"time": 300, "budget": 0, **(limits or {})},
            "engines": [
                {
                    "name": name,
                    "spec": "planted",
                    "options": {"faults": list(faults), **ONE},
                    **more,
                }
                for name, faults in engines.items()
            ],
            "models": [
                {"path": f"{n}/model.onnx", "name": n, "inputs": [f"{n}/inputs.npz"]}
                for n in models
            ],
            "expect": list(expect),
        }
        self.path.write_text(json.dumps(body, indent=1), encoding="utf-8")  # JSON is YAML

    def night(self, number: int = 1, **how: Any) -> Summary:
        """Returns what a run saw in a night."""
        from tapsect.triage.whole import How, run_suite

        how = {"jobs": 2, **how}
        summary, _ = run_suite(self.path, How(**how), now=lambda: nth_night(number))
        return summary


def states(summary: Summary) -> dict[str, str]:
    """Returns the state of each entry."""
    return {row.entry: row.state for row in summary.rows}

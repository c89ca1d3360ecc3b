"""What rounding might do to a model: how coarse each edge is, and the noise that stands for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from onnx import TensorProto

from debugtaps import Graph, Node, Noise
from tapsect.rounding.discrete import ROUNDERS
from tapsect.topology import CONTRACTIONS, Topology

__all__ = ["NoiseModel", "own_roundoff"]

_OWN: dict[int, float] = {
    TensorProto.DOUBLE: 2.0**-53,
    TensorProto.FLOAT: 2.0**-24,
    TensorProto.FLOAT16: 2.0**-11,
    TensorProto.BFLOAT16: 2.0**-8,
}


def own_roundoff(elem: int | None) -> float:
    """Returns the unit roundoff of a storage type; 0 for one that is not a float."""
    return _OWN.get(elem or 0, 0.0)


class NoiseModel:
    """The noise of one graph at the stated precision.

    Args:
        graph: The model under suspicion.
        stated: Unit roundoff of the stated precision; None takes each tensor's own type.
        seed: Of the noise.
    """

    def __init__(self, graph: Graph, *, stated: float | None, seed: int = 0) -> None:
        self.graph, self.stated, self.seed = graph, stated, seed
        self.topology = Topology(graph)

    def roundoff(self, tensor: str, level: float = 0.0) -> float:
        """Returns u of an edge: the coarsest of its own type's, the stated one and ``level``."""
        return max(own_roundoff(self.graph.elem(tensor)), self.stated or 0.0, level)

    @cached_property
    def pool_of(self) -> Mapping[str, str]:
        """Returns the noise pool of each noisy edge: by storage type and by who touches it.

        Edges that a contraction reads or writes (``c``) and the rest (``r``) have pools of their
        own, since engines lower the precision of contractions alone.
        """
        graph = self.graph
        touched: set[str] = set()
        for node in graph.nodes:
            if node.op in CONTRACTIONS:
                touched.update(node.reads, node.writes)
        return {t: f"{graph.elem(t)}{'c' if t in touched else 'r'}" for t in self.topology.noisy}

    @cached_property
    def rounded(self) -> Mapping[str, Node]:
        """Returns the float tensors that an operator rounds to steps, with that operator.

        Only at the precision of fp32: a narrow tap rounds values onto ties that the kernel
        never saw.
        """
        idle = self.graph.fixed | self.graph.shapelike
        return {
            n.reads[0]: n for n in self.graph.nodes
            if n.op in ROUNDERS and not n.domain and n.reads
            and self.graph.is_float(n.reads[0]) and n.reads[0] not in idle
            and (n.op != "Cast" or not self.graph.is_float(n.writes[0]))
            and self.roundoff(n.reads[0]) <= 2.0**-24
        }  # fmt: skip

    def noise(
        self, pools: Iterable[str], samples: int, *, level: float = 0.0,
        contraction: float | None = None, factor: float = 1.0, coherent: bool = False,
    ) -> list[dict[str, Noise]]:  # fmt: skip
        """Returns the runs of a sweep.

        Args:
            pools: Names of the pools of a perturbed model.
            samples: How many runs.
            level: Least u of every edge.
            contraction: Least u of edges that a contraction touches; ``level`` when None.
            factor: Multiplies u.
            coherent: Whether the first two runs shake all edges up, then all down.
        """
        runs = []
        for number in range(samples):
            mode = ("plus", "minus")[number] if coherent and number < 2 else "uniform"
            run: dict[str, Noise] = {}
            for place, pool in enumerate(sorted(pools)):
                key = pool.split("::")[1]
                least = level if contraction is None or key.endswith("r") else contraction
                u = factor * max(own_roundoff(int(key[:-1])), self.stated or 0.0, least)
                run[pool] = (mode, u, self.seed + 1000 * number + place)  # type: ignore[assignment]
            runs.append(run)
        return runs

"""A Ray cluster of two nodes on this machine; one is killed while it works."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("ray")

import ray

from debugtaps import EnvironmentFailure
from support import gated_engine
from support.nights import Suite, states
from tapsect.triage.cluster import Cluster
from tapsect.triage.summary import Summary
from tapsect.triage.whole import open_history

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # Ray's own, and many

ENGINE = f"{Path(gated_engine.__file__)}:Gated"


class Nodes:
    """A head that runs nothing, and two nodes that run one task each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.cluster: Any = RayCluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self.cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        """Where it is reached."""
        return str(self.cluster.address)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def gated(folder: Path, *models: str) -> Suite:
    suite = Suite(folder)
    suite.models(*models)
    suite.write({"e": []}, models)
    body = json.loads(suite.path.read_text("utf-8"))
    body["engines"][0] |= {"spec": ENGINE, "options": {"folder": str(folder)}}
    suite.path.write_text(json.dumps(body), encoding="utf-8")
    return suite


def builds(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text("utf-8").split() if log.exists() else []


@pytest.mark.parametrize("shared", [False, True])
def test_a_node_that_is_killed_loses_and_doubles_nothing(
    nodes: Nodes, tmp_path: Path, *, shared: bool
) -> None:
    models = [f"m{n}" for n in range(4)]
    suite = gated(tmp_path, *models)
    seen: list[Summary] = []
    url = f"file://{tmp_path / 'shared'}" if shared else None
    run = threading.Thread(
        target=lambda: seen.append(suite.night(1, ray=nodes.address, shared=url))
    )
    run.start()
    while len(builds(tmp_path)) < 2:  # one waits at its gate on each node
        assert run.is_alive()
        time.sleep(0.05)
    nodes.cluster.remove_node(nodes.nodes[0], allow_graceful=False)
    (tmp_path / "open").touch()
    run.join()
    (summary,) = seen
    assert states(summary) == {f"{m}/e": "agrees" for m in models}
    made = builds(tmp_path)
    assert set(made) == set(models)
    assert len(made) == 5  # what ran on the lost node ran again, nothing else did
    with open_history(str(suite.path)) as history:
        assert len(history.observed()) == 4
    for row in summary.rows:
        folder = tmp_path / "out" / "findings" / row.folder
        text = (folder / "result.json").read_text("utf-8")
        assert "tapsect-task" not in text  # the folder of the task is nobody's business
        assert json.loads(text)["model"]["path"] == str(tmp_path / row.entry[:2] / "model.onnx")


def test_what_no_node_can_hold_is_said_and_the_rest_runs(nodes: Nodes, tmp_path: Path) -> None:
    suite = gated(tmp_path, "m0", "m1")
    body = json.loads(suite.path.read_text("utf-8"))
    body["models"][0]["limits"] = {"memory": "900TiB"}
    suite.path.write_text(json.dumps(body), encoding="utf-8")
    (tmp_path / "open").touch()
    summary = suite.night(1, ray=nodes.address)
    assert states(summary) == {"m0/e": "new", "m1/e": "agrees"}
    assert "no node of the cluster has" in summary.rows[0].message


def test_a_cluster_that_is_not_there_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"no Ray cluster answers at 127.0.0.1:1 "):
        gated(tmp_path, "m0").night(1, ray="127.0.0.1:1")
    assert builds(tmp_path) == []


def test_no_cluster_here_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match="no Ray cluster answers at auto"):
        Cluster(tmp_path, "auto")

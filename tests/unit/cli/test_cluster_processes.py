"""`run_cluster` over nodes that are small shell programs: what it reports, and the exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from triokafka.cli.cluster.layout import ClusterLayout
from triokafka.cli.cluster.processes import NodeFailedError, run_cluster

NODE = """#!/bin/sh
# Arguments: -m triokafka storage|broker …; a node ends with the status in the file "end" of its directory.
[ "$3" = broker ] || exit 0
cd "$(dirname "$5")"
[ ! -e refuse ] || { echo "the port is taken" >&2; exit 1; }
while [ -e wait ]; do sleep 0.01; done
echo $$ > pid.new; mv pid.new pid
echo "ready 127.0.0.1:1"
while [ ! -e end ]; do sleep 0.01; done
exit "$(cat end)"
"""


class Cluster:
    """A cluster that runs in a task of the test."""

    def __init__(self, layout: ClusterLayout, capture: pytest.CaptureFixture[str]) -> None:
        self.layout = layout
        self.status: int | None = None
        self.out = self.err = ""
        self._capture = capture

    async def run(self) -> None:
        self.status = await run_cluster(self.layout)

    def directory(self, node_id: int) -> Path:
        return Path(self.layout.nodes[node_id - 1].config).parent

    def pid(self, node_id: int) -> int:
        return int((self.directory(node_id) / "pid").read_text())

    def end(self, node_id: int, status: int) -> None:
        """Let a node end by itself."""
        new = self.directory(node_id) / "end.new"
        new.write_text(str(status))
        new.rename(self.directory(node_id) / "end")

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while True:
                out, err = self._capture.readouterr()
                self.out += out
                self.err += err
                if condition():
                    return
                await trio.sleep(0.005)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cluster:
    program = tmp_path / "node"
    program.write_text(NODE)
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    layout = ClusterLayout.of(str(tmp_path / "cluster"), 2, "127.0.0.1", 0, {})
    for node in layout.nodes:
        node.write()
    return Cluster(layout, capsys)


@asynccontextmanager
async def started(cluster: Cluster) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        await cluster.until(lambda: cluster.out == f"ready {cluster.layout.bootstrap_servers}\n")
        yield
        await cluster.until(lambda: cluster.status is not None)


@pytest.mark.parametrize("status", [0, 3])
async def test_node_that_ends_is_reported_and_the_others_run_on(cluster: Cluster, status: int) -> None:
    async with started(cluster):
        cluster.end(2, status)
        await cluster.until(lambda: cluster.err != "")
        log = cluster.layout.nodes[1].log
        assert cluster.err == f"Node 2 ended with status {status}; 1 of 2 run on. Its log: {log}\n"
        assert cluster.status is None
        os.kill(cluster.pid(1), 0)  # it runs
        os.kill(os.getpid(), signal.SIGTERM)
    assert cluster.status == 1
    assert cluster.err.count("\n") == 1, "a node that was asked to end is not reported"


async def test_cluster_ends_with_its_last_node(cluster: Cluster) -> None:
    async with started(cluster):
        os.kill(cluster.pid(1), signal.SIGKILL)
        await cluster.until(lambda: "Node 1 was ended by signal 9; 1 of 2 run on." in cluster.err)
        cluster.end(2, 0)
        await cluster.until(lambda: "Node 2 ended with status 0; 0 of 2 run on." in cluster.err)
    assert cluster.status == 1


async def test_cluster_that_is_stopped_ends_with_status_0(cluster: Cluster) -> None:
    async with started(cluster):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (cluster.status, cluster.err) == (0, "")


async def test_node_that_does_not_start_ends_the_others(cluster: Cluster) -> None:
    (cluster.directory(2) / "refuse").touch()
    with pytest.raises(NodeFailedError, match=r"Node 2 did not start. The end of .*\nthe port is taken"):
        await cluster.run()
    if (cluster.directory(1) / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(cluster.pid(1), 0)


async def test_cluster_becomes_ready_although_a_node_has_ended_meanwhile(cluster: Cluster) -> None:
    """Programs wait for the line."""
    (cluster.directory(1) / "wait").touch()
    cluster.end(2, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        await cluster.until(lambda: "Node 2 ended with status 3; 1 of 2 run on." in cluster.err)
        (cluster.directory(1) / "wait").unlink()
        await cluster.until(lambda: cluster.out == f"ready {cluster.layout.bootstrap_servers}\n")
        os.kill(os.getpid(), signal.SIGTERM)
    assert cluster.status == 1

"""The control endpoint of a broker or a cluster for tests: its calls, by HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trio

from triokafka.broker_stub.control.endpoint import ControlEndpoint
from triokafka.testing import RunningBroker, RunningCluster, running_broker, running_cluster
from triokafka.testing.control import control_actions, control_metrics
from triokafka.world.system import RealWorld

JSON = {"Content-Type": "application/json"}


class Control:
    """A client of an endpoint for a broker or a cluster."""

    def __init__(self, target: RunningBroker | RunningCluster) -> None:
        self._endpoint = ControlEndpoint(target.faults, RealWorld(), control_metrics(target), control_actions(target))
        self._address = ""

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        host, port = await self._endpoint.bind("127.0.0.1", 0)
        self._address = f"http://{host}:{port}"
        task_status.started()
        await self._endpoint.run()

    async def ask(self, path: str, method: str = "POST", **body: Any) -> tuple[int, Any]:
        """Status and decoded answer."""
        data = json.dumps(body).encode() if method == "POST" else None

        def ask() -> tuple[int, Any]:
            try:
                with urlopen(Request(self._address + path, data, JSON, method=method), timeout=10) as answer:
                    return answer.status, json.loads(answer.read())
            except HTTPError as error:
                return error.code, json.loads(error.read())

        return await trio.to_thread.run_sync(ask)


async def test_a_broker_is_stopped_started_frozen_and_filled_over_http() -> None:
    async with running_broker() as broker, trio.open_nursery() as nursery:
        control = Control(broker)
        await nursery.start(control.serve)
        address = broker.bootstrap_servers
        assert await control.ask("/brokers", "GET") == (
            200,
            {"brokers": [{"broker": broker.node_id, "bootstrap_servers": address, "running": True, "frozen": False}]},
        )
        assert await control.ask("/stop", clean=False) == (200, {})
        assert not broker.is_running
        status, answer = await control.ask("/cut-connections")
        assert (status, answer["kind"]) == (400, "IllegalStateError") and "start() it first" in answer["error"]
        assert await control.ask("/start") == (200, {})
        assert await control.ask("/restart") == (200, {})
        assert broker.is_running and broker.bootstrap_servers == address
        assert await control.ask("/cut-connections") == (200, {"connections": 0})
        await control.ask("/freeze")
        assert broker.world.is_frozen
        await control.ask("/thaw")
        assert not broker.world.is_frozen
        await control.ask("/fill-disk", free_bytes=100)
        assert broker.world.disk_room == 100
        await control.ask("/free-disk")
        assert broker.world.disk_room is None
        before = broker.world.now()
        await control.ask("/advance-clock", ms=60_000)
        assert broker.world.now() > before + 60
        assert await control.ask("/members", group="g") == (200, {"members": []})
        status, answer = await control.ask("/expire-member", group="g")
        assert (status, answer["kind"]) == (400, "UnknownMemberIdError")
        await broker.create_topic("t")
        assert await control.ask("/move-leader", topic="t") == (200, {"leader": broker.node_id})
        assert await control.ask("/move-coordinator", group="g") == (200, {"coordinator": broker.node_id})
        await control.ask("/faults", api="Fetch", close="before", times=-1)
        await control.ask("/reset")
        assert not broker.faults.armed
        nursery.cancel_scope.cancel()


async def test_leaders_and_coordinators_of_a_cluster_move_over_http() -> None:
    async with running_cluster(nodes=2) as cluster, trio.open_nursery() as nursery:
        control = Control(cluster)
        await nursery.start(control.serve)
        await cluster.create_topic("t", partitions=1)
        for to in (1, 2, 1):
            assert await control.ask("/move-leader", topic="t", partition=0, to=to) == (200, {"leader": to})
            assert cluster.leader("t") == to
            assert await control.ask("/move-coordinator", group="g", to=to) == (200, {"coordinator": to})
            assert cluster.coordinator("g") == to
        status, answer = await control.ask("/stop")
        assert (status, answer["error"]) == (400, "broker must be one of [1, 2], not None")
        assert await control.ask("/stop", broker=1, move=True) == (200, {})
        assert (cluster.leader("t"), cluster.broker(1).is_running) == (2, False)
        assert await control.ask("/start", broker=1) == (200, {})
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/advance-clock", {}, "/advance-clock needs ms"),
        ("/advance-clock", {"ms": "soon"}, "ms cannot be 'soon'"),
        ("/advance-clock", {"ms": True}, "ms cannot be True"),
        ("/advance-clock", {"ms": -5}, "a clock can only be put forward, not by -5 ms"),
        ("/advance-clock", {"ms": 10**400}, "by a thousand years in all"),
        ("/fill-disk", {"free_bytes": -1}, "0 free bytes or more, not -1"),
        ("/move-leader", {"topic": "t", "partitoin": 1}, "not partitoin; did you mean 'partition'?"),
        ("/freeze", {"broker": 9}, "broker must be one of"),
        ("/freez", {}, "did you mean '/freeze'?"),
        ("/faults", {"api": "Fecth"}, "there is no API 'Fecth'; did you mean 'Fetch'?"),
        ("/faults", {"api": "Fetch", "delay": 1}, "did you mean 'delay_ms'?"),
        ("/faults", {"error": "NOT_LEADER"}, "there is no error 'NOT_LEADER'"),
    ],
)
async def test_invalid_action_is_refused_with_a_reason(path: str, body: dict[str, Any], said: str) -> None:
    async with running_broker() as broker, trio.open_nursery() as nursery:
        control = Control(broker)
        await nursery.start(control.serve)
        status, answer = await control.ask(path, **body)
        assert status in (400, 404) and said in answer["error"]
        assert (await control.ask("/freeze", "GET"))[0] == 405
        nursery.cancel_scope.cancel()

"""Claims about the control endpoint: faults over HTTP, for tests in other languages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import pytest
import trio

from triokafka import errors
from triokafka.broker_stub.control.endpoint import ControlEndpoint, as_json, from_json
from triokafka.broker_stub.faults.faults import Fault, Faults, RequestFault
from triokafka.broker_stub.http_server import BadRequestError
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.world.system import RealWorld


class Control:
    """A client of the endpoint."""

    def __init__(self, faults: Faults, address: tuple[str, int]) -> None:
        self.faults = faults
        self._address = address

    async def ask(
        self,
        method: str,
        path: str = "/faults",
        body: object = None,
        raw: bytes | None = None,
        *,
        decoded: bool = True,
    ) -> Any:
        """Status and body, decoded unless it is plain text."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {len(content)}\r\n\r\n"
        first, _, rest = (await self._answer_to(head.encode(), content)).partition(b"\r\n")
        text = rest.partition(b"\r\n\r\n")[2].decode()
        return int(first.split()[1]), json.loads(text) if decoded else text

    async def status_of(self, request: bytes) -> int:
        """The status that a request gets which is sent as it is."""
        return int((await self._answer_to(request)).split()[1])

    async def _answer_to(self, *parts: bytes) -> bytes:
        stream = await RealWorld().connect(*self._address)
        for part in parts:
            await stream.send(part)
        answer, buffer = b"", bytearray(4096)
        while size := await stream.receive_into(memoryview(buffer)):
            answer += buffer[:size]
        stream.close()
        return answer


@asynccontextmanager
async def control(metrics: Callable[[], Iterable[Sample]] = tuple) -> AsyncIterator[Control]:
    faults = Faults()
    endpoint = ControlEndpoint(faults, RealWorld(), metrics)
    address = await endpoint.bind("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        yield Control(faults, address)
        nursery.cancel_scope.cancel()


async def test_faults_are_armed_listed_and_disarmed() -> None:
    async with control() as c:
        one = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "t", "times": 3, "leader": [2, 7]}
        status, armed = await c.ask("POST", body=one)
        assert (status, len(armed)) == (200, 1)
        fault = c.faults.for_item(0, "t", 5)
        assert fault is not None
        assert (fault.error, fault.leader) == (errors.NotLeaderForPartitionError, (2, 7))
        await c.ask("POST", body=[{"api": 1, "close": "after"}, {"delay_ms": 50, "chance": 0.5, "times": -1}])
        status, armed = await c.ask("GET")
        assert [fault.get("times") for fault in armed] == [2, 1, -1]
        assert armed[0]["error"] == "NotLeaderForPartitionError"
        assert armed[1] == {"api": "Fetch", "times": 1, "skip": 0, "chance": 1.0, "close": "after"} | {
            name: 0 for name in ("delay_ms", "answer_delay_ms", "throttle_ms")
        }
        assert await c.ask("DELETE") == (200, [])
        assert not c.faults.armed


@pytest.mark.parametrize(
    "wrong",
    [
        {"error": "NoSuchError"},
        {"error": "KafkaError"},
        {"error": 12345},
        {"error": 6, "tpoic": "t"},
        {"error": 6, "times": "3"},
        {"error": 6, "times": True},
        {"error": 6, "leader": [1]},
        {"api": "Prodigy", "close": "after"},
        {"close": "sometimes"},
        {"close": "after", "topic": "t"},
        {"delay_ms": -1},
        {"answer_delay_ms": 10**400},
        {"throttle_ms": 2**31},
        {"close": "after", "times": -2},
        {"close": "after", "skip": -1},
        {"close": "after", "chance": float("nan")},
        {"error": 6, "leader": [2**31, 0]},
        {"error": True},
        {"error": "BrokerResponseError"},
        [{"close": "after"}, {"delay_ms": -1}],
        7,
    ],
)
async def test_invalid_fault_is_refused_with_a_message(wrong: object) -> None:
    async with control() as c:
        status, answer = await c.ask("POST", body=wrong)
        assert status == 400
        assert answer["error"]
        assert not c.faults.armed


async def test_other_requests_are_refused() -> None:
    async with control() as c:
        assert (await c.ask("GET", "/"))[0] == 404
        assert (await c.ask("PUT"))[0] == 405
        assert (await c.ask("POST", raw=b"{"))[0] == 400
        assert (await c.ask("nonsense and more", ""))[0] == 400


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /faults HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n",
        b"POST /faults HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"POST /faults HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60_000,
        b"POST /faults HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + b"9" * 5_000,
        b"POST /faults HTTP/1.1\r\nContent-Length: 2\r\n\r\n\xff\xfe",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ],
)
async def test_malformed_requests_are_refused_and_the_endpoint_continues(request_bytes: bytes) -> None:
    async with control() as c:
        assert await c.status_of(request_bytes) == 400
        assert await c.ask("GET") == (200, [])


async def test_unexpected_error_is_answered_and_the_endpoint_continues() -> None:
    def broken() -> Iterable[Sample]:
        raise ZeroDivisionError("in the metrics")

    async with control(broken) as c:
        assert await c.ask("GET", "/metrics") == (500, {"error": "in the metrics", "kind": "ZeroDivisionError"})
        assert await c.ask("GET") == (200, [])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(errors.RequestTimedOutError, 0, "t", 1, after_append=True, skip=2),
        Fault(errors.UnknownError, api_key=99, partition=0),
        Fault(errors.UnknownError, api_key=0),
        RequestFault(api_key=3, client_id="c", lose_answer=True, throttle_ms=5),
    ],
)
def test_fault_survives_its_json_form(fault: Fault | RequestFault) -> None:
    again = from_json(as_json(fault))
    assert asdict(again) == asdict(fault)


@pytest.mark.parametrize("name", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "MESSAGE_TOO_LARGE"])
def test_errors_go_by_kafkas_names_too(name: str) -> None:
    fault = from_json({"error": name})
    assert isinstance(fault, Fault)
    assert fault.error.code in (45, 47, 10)


def test_an_unknown_error_says_so() -> None:
    with pytest.raises(BadRequestError, match="no error"):
        from_json({"error": "NOPE"})


async def test_metrics_are_there_for_prometheus_under_kafkas_names() -> None:
    """With label values quoted."""
    samples = [
        Sample("kafka.network:type=RequestMetrics,name=TotalTimeMs", {"request": "Fetch"}, 3.25, "0.99"),
        Sample("kafka.network:type=RequestMetrics,name=TotalTimeMs", {"request": "Fetch"}, 7, "Count"),
        Sample("kafka.server:type=socket-server-metrics,name=connection-count", {"listener": 'A"\n'}, 2),
        Sample("triokafka:type=Tasks", {}, 12),
    ]
    async with control(lambda: samples) as c:
        status, text = await c.ask("GET", "/metrics", decoded=False)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert (status, lines) == (
            200,
            [
                'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 3.25',
                'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 7',
                'kafka_server_socket_server_metrics_connection_count{listener="A\\"\\n"} 2',
                "triokafka_tasks 12",
            ],
        )
        assert (await c.ask("POST", "/metrics"))[0] == 404

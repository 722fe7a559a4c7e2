"""Large responses: a thread decodes them, the event loop continues, and the responses stay in order."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import Raw
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_connection import ASK, connected
from tests.unit.network.test_network_client import client_of
from triokafka.errors import KafkaConnectionError, ProtocolError, RequestTimedOutError
from triokafka.network.in_flight_request import InFlightRequest
from triokafka.network.large_responses import LARGE_BYTES, decode_here, decode_in_thread
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from triokafka.protocol.frames import encode_response
from triokafka.world.system import RealWorld

COUNT = 20_000
LARGE = MetadataResponse(topics=[MetadataResponseTopic(name=f"topic-{number}") for number in range(COUNT)])


class Threads:
    """A world's threads: functions wait in ``queued`` until `run`."""

    def __init__(self) -> None:
        self.queued: list[trio.Event] = []

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        done = trio.Event()
        self.queued.append(done)
        with trio.CancelScope(shield=True):  # like a thread, which cannot be stopped
            await done.wait()
        return function(*args)

    def run(self) -> None:
        for done in self.queued:
            done.set()
        self.queued.clear()


@contextmanager
def threads() -> Iterator[Threads]:
    made = Threads()
    with patch.object(current_simulation().host("client").world, "run_in_thread", made.call):
        yield made


def names(response: Any) -> int:
    assert isinstance(response, MetadataResponse)
    return len(response.topics)


@simulated
async def test_other_tasks_run_while_a_large_response_is_decoded() -> None:
    with threads() as queue:
        async with connected() as (broker, connection):
            broker.script(MetadataRequest, LARGE)
            answers: list[int] = []
            for _ in range(3):
                connection.submit(ASK, 9, lambda response, error: answers.append(names(response)))
            await broker.wait_for(MetadataRequest, 3)
            await trio.sleep(1)
            assert len(queue.queued) == 1
            assert answers == []
            queue.run()
            await trio.sleep(1)
            assert answers == [COUNT, 1, 1]


@pytest.mark.parametrize("silence_limit", [float("inf"), 2.0])
@simulated
async def test_connection_does_not_count_as_silent_while_its_response_is_decoded(silence_limit: float) -> None:
    """Data that this client has not read yet cannot be overdue."""
    probes = 0

    def note_probe() -> None:
        nonlocal probes
        probes += 1

    with threads() as queue:
        async with connected(silence_limit=silence_limit, on_silent=note_probe) as (broker, connection):
            broker.script(MetadataRequest, LARGE)
            answers: list[Any] = []
            for _ in range(2):
                connection.submit(ASK, 9, lambda response, error: answers.append((response, error)))
            await trio.sleep(1)
            connection.submit(ASK, 9, lambda response, error: answers.append((response, error)), timeout=0.5)
            connection.suspect(current_simulation().host("client").world.now() + 1)
            await trio.sleep(60)
            assert connection.error is None
            queue.run()
            await trio.sleep(1)
            assert [names(response) for response, _ in answers] == [COUNT, 1, 1]
            assert probes == 0
            broker.script(MetadataRequest, Raw())  # the silence limit applies again
            with pytest.raises(RequestTimedOutError):
                await connection.call(ASK, 9, timeout=1)


@simulated
async def test_connection_that_ends_during_decoding_fails_the_request_once() -> None:
    with threads() as queue:
        async with connected() as (broker, connection):
            broker.script(MetadataRequest, LARGE)
            outcomes: list[Any] = []
            connection.submit(ASK, 9, lambda response, error: outcomes.append(error))
            await trio.sleep(1)
            connection.close(KafkaConnectionError("the end"))
            assert [str(error) for error in outcomes] == ["the end"]
            queue.run()
            await trio.sleep(1)
            assert len(outcomes) == 1


@simulated
async def test_client_that_is_cancelled_during_decoding_ends_with_the_thread() -> None:
    with threads() as queue:
        async with client_of() as (cluster, client):
            await client.refresh_metadata()
            cluster.brokers[1].script(MetadataRequest, LARGE)
            with trio.move_on_after(1) as scope:
                await client.send(1, ASK)
            assert scope.cancelled_caught
            current_simulation().nursery.start_soon(run_later, queue)


async def run_later(queue: Threads) -> None:
    await trio.testing.wait_all_tasks_blocked()
    queue.run()


@simulated
async def test_one_response_is_decoded_at_a_time_whatever_its_connection() -> None:
    with threads() as queue:
        async with client_of(nodes=3) as (cluster, client):
            await client.refresh_metadata()
            answers: list[Any] = []

            async def ask(node: int) -> None:
                answers.append(names(await client.send(node, ASK)))

            for broker in cluster.brokers.values():
                broker.script(MetadataRequest, LARGE)
            async with trio.open_nursery() as nursery:
                for node in (1, 2, 3):
                    nursery.start_soon(ask, node)
                for done in range(3):
                    await trio.sleep(1)
                    assert len(queue.queued) == 1
                    assert len(answers) == done
                    queue.run()
            assert answers == [COUNT] * 3


@simulated
async def test_large_response_that_is_malformed_ends_the_connection() -> None:
    async with connected() as (broker, connection):
        whole = b"".join(encode_response(LARGE, version=9, correlation_id=0))
        broker.script(MetadataRequest, Raw(whole[:100_000] + b"\xff" * (len(whole) - 100_000)))
        with pytest.raises(ProtocolError, match="broker 1 sent a MetadataResponse that is invalid in version 9"):
            await connection.call(ASK, 9)


@simulated
async def test_large_response_to_another_request_ends_the_connection() -> None:
    async with connected() as (broker, connection):
        broker.script(MetadataRequest, Raw(b"".join(encode_response(LARGE, version=9, correlation_id=7))))
        with pytest.raises(ProtocolError, match="correlation id 7, but 0 was due"):
            await connection.call(ASK, 9)


def fetched(partitions: int, size: int) -> tuple[InFlightRequest, memoryview]:
    """Return a Fetch response as a connection passes it on."""
    data = [PartitionData(partition_index=number, records=bytes(size)) for number in range(partitions)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=uuid.UUID(int=1), partitions=data)])
    frame = b"".join(encode_response(response, version=13, correlation_id=0))[4:]
    return InFlightRequest(FetchRequest, 13, 0, 0.0, 0.0, lambda response, error: None), memoryview(frame)


@pytest.mark.parametrize(("partitions", "size", "here"), [(1, 1 << 20, True), (50, 8 << 10, True), (9000, 10, False)])
async def test_response_of_records_is_decoded_at_once_unless_it_has_many_elements(
    partitions: int, size: int, here: bool
) -> None:
    entry, frame = fetched(partitions, size)
    assert len(frame) > LARGE_BYTES
    response = decode_here(entry, frame, "a broker", max_memory=1 << 30)
    assert (response is not None) == here
    if response is None:
        ran_in: list[int] = []
        decode = InFlightRequest.decode

        def note(*args: Any, **options: Any) -> Any:
            ran_in.append(threading.get_ident())
            return decode(*args, **options)

        with patch.object(InFlightRequest, "decode", note):
            response = await decode_in_thread(RealWorld(), entry, frame, "a broker", max_memory=1 << 30)
        assert len(ran_in) == 1
        assert ran_in[0] != threading.get_ident()
    assert isinstance(response, FetchResponse)
    assert [len(one.records or b"") for one in response.responses[0].partitions] == [size] * partitions


class StepsOf(trio.abc.Instrument):
    """Counts how often the event loop runs the task of a function."""

    def __init__(self, function: str) -> None:
        self.count = 0
        self._function = function

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith(self._function)


@simulated
async def test_large_responses_of_records_do_not_wake_the_task_that_watches_for_silence() -> None:
    """Waking it takes an exception and two task switches for each response."""
    async with connected() as (broker, connection):
        data = PartitionData(partition_index=0, records=bytes(1 << 19))
        topic = FetchableTopicResponse(topic_id=uuid.UUID(int=1), partitions=[data])
        broker.script(FetchRequest, *[FetchResponse(responses=[topic]) for _ in range(4)])
        await connection.call(FetchRequest(), 13)
        steps = StepsOf("_watch_deadlines")
        trio.lowlevel.add_instrument(steps)
        for _ in range(3):
            response = await connection.call(FetchRequest(), 13)
            assert len(response.responses[0].partitions[0].records) == 1 << 19
        trio.lowlevel.remove_instrument(steps)
        assert steps.count == 0

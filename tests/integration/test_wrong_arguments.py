"""Invalid arguments: an error at once that names the argument, and a client that still works afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from triokafka import Consumer, Producer, TopicPartition
from triokafka.errors import InvalidTopicError
from triokafka.testing import running_broker

T0 = TopicPartition("t", 0)
_IMPOSSIBLE = ["x" * 40_000, "x" * 250, "a topic", "\ud800", ".", "..", "ä"]


@pytest.mark.parametrize("topic", _IMPOSSIBLE)
async def test_invalid_topic_name_is_refused_and_the_producer_still_works(topic: str) -> None:
    """A name that no request can encode once stayed in every later Metadata request, and all of them failed."""
    async with running_broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopicError, match="cannot exist"):
            await producer.send(topic, b"v")
        with pytest.raises(InvalidTopicError, match="cannot exist"):
            await producer.partitions_for(topic)
        assert (await (await producer.send("t", b"v"))).offset == 0


@pytest.mark.parametrize("topic", [None, -1, 1.5, b"t", ("t", 0)])
async def test_topic_that_is_not_a_string_is_refused_and_the_producer_still_works(topic: Any) -> None:
    async with running_broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="not the name of a topic"):
            await producer.send(topic, b"v")
        with pytest.raises(TypeError, match="not the name of a topic"):
            await producer.partitions_for(topic)
        assert (await (await producer.send("t", b"v"))).offset == 0


CALLS: list[tuple[type[Exception], str, Callable[[Any], Awaitable[object] | None]]] = [
    (InvalidTopicError, "cannot exist", lambda c: c.subscribe(["x" * 250])),
    (InvalidTopicError, "cannot exist", lambda c: c.assign([TopicPartition("a topic", 0)])),
    (InvalidTopicError, "cannot exist", lambda c: c.partitions_for_topic("\ud800")),
    (TypeError, "not the name of a topic", lambda c: c.subscribe([5])),
    (TypeError, "topics must be", lambda c: c.subscribe(None)),
    (TypeError, "must be a mapping", lambda c: c.offsets_for_times([T0])),
    (TypeError, "timestamp .* int", lambda c: c.offsets_for_times({T0: "now"})),
    (TypeError, "must be an iterable of TopicPartition", lambda c: c.assign("t")),
    (TypeError, "must be an iterable of TopicPartition", lambda c: c.assign(T0)),
    (TypeError, "must be an iterable of TopicPartition", lambda c: c.assign(None)),
    (TypeError, "must be a TopicPartition", lambda c: c.end_offsets(["t"])),
    (TypeError, "number of a partition is an int", lambda c: c.beginning_offsets([TopicPartition("t", "0")])),  # type: ignore[arg-type]
    (ValueError, "count from 0", lambda c: c.beginning_offsets([TopicPartition("t", -1)])),
    (ValueError, "count from 0", lambda c: c.committed([TopicPartition("t", 2**40)])),
    (TypeError, "must be a TopicPartition", lambda c: c.position("t")),
    (TypeError, "must be a TopicPartition", lambda c: c.pause("t")),
    (TypeError, "timeout_ms must be a number", lambda c: c.end_offsets([T0], timeout_ms=float("nan"))),
    (TypeError, "timeout_ms must be a number", lambda c: c.poll(timeout_ms="5")),
    (TypeError, "max_records must be an int", lambda c: c.poll(max_records=1.5)),
    (TypeError, "offsets must be a mapping", lambda c: c.commit([T0])),
    (TypeError, "an offset must be an int", lambda c: c.commit({T0: None})),
    (TypeError, "an offset must be an int", lambda c: c.seek(T0, "5")),
    (ValueError, "larger than the largest offset", lambda c: c.commit({T0: 2**70})),
    (ValueError, "larger than the largest offset", lambda c: c.seek(T0, 2**70)),
    (TypeError, "on_done must be callable", lambda c: c.commit_nowait(on_done=[])),
]


@pytest.mark.parametrize(("kind", "message", "call"), CALLS)
async def test_consumer_refuses_a_wrong_argument_and_still_works(
    kind: type[Exception], message: str, call: Callable[[Any], Awaitable[object] | None]
) -> None:
    async with running_broker() as broker:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await (await producer.send("t", b"v"))
        options: Any = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
        async with Consumer(**options, auto_offset_reset="earliest") as consumer:
            with pytest.raises(kind, match=message):
                result = call(consumer)
                if result is not None:
                    await result
            consumer.assign([("t", 0)])  # type: ignore[list-item] # pairs were always taken
            assert (await anext(consumer)).value == b"v"

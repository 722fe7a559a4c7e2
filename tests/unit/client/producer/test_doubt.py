"""Batches with an unknown outcome: which batches may follow them, and which must retain their sequence numbers."""

from __future__ import annotations

import pytest

from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import TopicAuthorizationFailedError
from triokafka.protocol.api.produce import ProduceRequest


@simulated
async def test_refusal_after_an_attempt_with_unknown_outcome_repeats_no_later_batch() -> None:
    """The first batch was written before its final refusal, and so was the second, which retains its sequence
    number.
    """
    async with scripted() as s, s.producer(linger_ms=0, batch_size=100, retry_backoff_ms=10) as producer:

        def swallow(request: ProduceRequest) -> None:
            s.broker.produce(request)

        await (await producer.send("orders", b"warm"))
        s.broker.script(ProduceRequest, swallow, swallow)
        first, second = [await producer.send("orders", b"%d" % number * 60) for number in range(2)]
        await s.broker.wait_for(ProduceRequest, 3)
        s.broker.script(ProduceRequest, s.broker.refuse(29))
        s.broker.cut()
        with pytest.raises(TopicAuthorizationFailedError):
            await first
        await second
        await (await producer.send("orders", b"later"))
        assert s.cluster.values("orders") == [b"warm", b"0" * 60, b"1" * 60, b"later"]
        assert memory_is_whole(producer)


@simulated
async def test_refusal_after_an_attempt_with_unknown_outcome_leaves_no_gap() -> None:
    """Here neither was written: the second is refused as out of order, gets a new sequence number, and is
    written once.
    """
    async with scripted() as s, s.producer(linger_ms=0, batch_size=100, retry_backoff_ms=10) as producer:
        await (await producer.send("orders", b"warm"))
        s.broker.script(ProduceRequest, lambda request: None, lambda request: None)
        first, second = [await producer.send("orders", b"%d" % number * 60) for number in range(2)]
        await s.broker.wait_for(ProduceRequest, 3)
        s.broker.script(ProduceRequest, s.broker.refuse(29))
        s.broker.cut()
        with pytest.raises(TopicAuthorizationFailedError):
            await first
        assert (await second).offset == 1
        assert s.cluster.values("orders") == [b"warm", b"1" * 60]
        assert memory_is_whole(producer)

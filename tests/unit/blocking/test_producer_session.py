"""The loop's side of a blocking producer."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from triokafka.blocking.producer.session import ProducerSession
from triokafka.errors import ClosedError
from triokafka.loop_thread import LoopThread


async def test_send_to_a_new_topic_is_refused_when_the_producer_is_closed_meanwhile() -> None:
    """The partitions arrive when no further task can start to take over the records. The error names the close."""
    session = ProducerSession(cast(LoopThread, None), {}, staged_bytes=1, name="p")

    async def partitions(topic: str, seconds: float) -> Any:
        session._closing.set()
        nursery.cancel_scope.cancel()
        return ()

    session.partitions = partitions  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        session._nursery = nursery
        session._producer = cast(Any, object())
        with pytest.raises(ClosedError, match="was closed while"):
            await session.learn("t", 1)
    assert not session._stages

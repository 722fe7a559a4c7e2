"""Records on their way from threads to the loop: every wait for them ends, whatever other threads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import trio
import trio.testing

from triokafka import Producer
from triokafka.blocking.callbacks import CallbackThread
from triokafka.blocking.producer.staging import Stage, Staging
from triokafka.errors import ClosedError
from triokafka.loop_thread import LoopThread


class _Accepted:
    """Deliveries of which only the number counts."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def parts(self) -> Iterator[Any]:
        return iter(())


class _SlowProducer:
    """Takes records over when ``go`` is released."""

    def __init__(self) -> None:
        self.go = trio.Semaphore(0)
        self.taken: list[bytes] = []

    async def send_many(self, topic: str, values: Sequence[bytes]) -> _Accepted:
        await self.go.acquire()
        self.taken += values
        return _Accepted(len(values))


@pytest.fixture
def staging() -> Staging:
    # Neither is called here: no callback waits for the records.
    return Staging(cast(LoopThread, None), cast(CallbackThread, None), limit=1 << 20)


def put(stage: Stage, value: bytes) -> None:
    """As the first record of a chunk, which another thread sends."""
    with stage.staging.lock:
        chunk = stage.open or stage.begin()
        chunk.values.append(value)
    stage.wake()


async def test_flush_waits_for_earlier_records_only(autojump_clock: trio.testing.MockClock, staging: Staging) -> None:
    """A record that began a new chunk during the transfer of the last one made ``flush`` wait for ever."""
    stage, producer = Stage(staging, "t"), _SlowProducer()
    handed_over = trio.Event()

    async def flush() -> None:
        await stage.wait_handed_over()
        handed_over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.run, cast(Producer, producer))
        put(stage, b"before")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        put(stage, b"meanwhile")
        await trio.testing.wait_all_tasks_blocked()
        assert not handed_over.is_set()
        producer.go.release()
        with trio.fail_after(1):
            await handed_over.wait()
        assert producer.taken == [b"before"]
        nursery.cancel_scope.cancel()


async def test_flush_ends_when_the_producer_ends(autojump_clock: trio.testing.MockClock, staging: Staging) -> None:
    """One chunk is being transferred, and another one waits."""
    stage, producer = Stage(staging, "t"), _SlowProducer()
    with trio.fail_after(1):
        async with trio.open_nursery() as flushing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.run, cast(Producer, producer))
                put(stage, b"first")
                await trio.testing.wait_all_tasks_blocked()
                put(stage, b"second")
                flushing.start_soon(stage.wait_handed_over)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            staging.fail([stage], ClosedError("the producer has ended"))

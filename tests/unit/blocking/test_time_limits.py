"""A time limit of a blocking call covers all that the call waits for, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from triokafka.blocking import KafkaProducer
from triokafka.blocking.consumer.session import ConsumerSession
from triokafka.blocking.errors import KafkaTimeoutError
from triokafka.record_buffer import RecordBuffer
from triokafka.structs import TopicPartition

T0 = TopicPartition("t", 0)


class _SilentConsumer:
    """A consumer whose coordinator answers nothing."""

    async def commit(self, offsets: object, *, timeout_ms: float) -> None:
        await trio.sleep_forever()


class _Loop:
    """Starts tasks in the test's nursery instead of in a thread."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any, name: str) -> None:
        self._nursery.start_soon(work, *arguments, name=name)


class _Conversation:
    def __init__(self) -> None:
        self.answered_at: list[float] = []

    def answer_later(self) -> Callable[[BaseException | None], None]:
        return lambda error: self.answered_at.append(trio.current_time())


@pytest.mark.parametrize("commit", [True, False])
async def test_closing_a_consumer_spends_its_time_limit_once(
    autojump_clock: trio.testing.MockClock, commit: bool
) -> None:
    async with trio.open_nursery() as nursery:
        loop: Any = _Loop(nursery)
        options = {"group_id": "g", "client_id": "c"}
        session = ConsumerSession(loop, options, RecordBuffer(), commit_seconds=5.0, on_commit=None)
        conversation: Any = _Conversation()
        consumer: Any = _SilentConsumer()
        session.conversation, session._consumer = conversation, consumer
        session.positions = lambda: {T0: 1}  # type: ignore[method-assign, dict-item]
        began = trio.current_time()
        await session.close(commit, 2.0)
        # The commit leaves time to say goodbye to the group.
        assert trio.current_time() - began == (1.5 if commit else 0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await trio.sleep(10)
        assert conversation.answered_at == [pytest.approx(began + 2)]


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr("triokafka.blocking.deadline.time", clock)
    monkeypatch.setattr("triokafka.blocking.producer.kafka.time", clock)
    return clock


def _producer(**configs: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), **configs)


def test_close_gives_callbacks_the_time_that_the_flush_left(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = _producer()
    call = producer._session.loop.call
    left: list[float | None] = []

    def slow(work: Any, *arguments: Any) -> Any:
        clock.now += 1.5
        return call(work, *arguments)

    monkeypatch.setattr(producer._session.loop, "call", slow)
    monkeypatch.setattr(producer._session.callbacks, "wait", left.append)
    producer.close(timeout=2)
    assert left == [0.5]


def test_flush_gives_callbacks_the_time_that_the_brokers_left(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with _producer() as producer:
        left: list[float | None] = []

        def slow(work: Any, *arguments: Any) -> bool:
            clock.now += 1.5
            return True

        with monkeypatch.context() as patch:
            patch.setattr(producer._session.loop, "call", slow)
            patch.setattr(producer._session.callbacks, "wait", left.append)
            with pytest.raises(KafkaTimeoutError):
                producer.flush(timeout=2)
        assert left == [0.5]


def test_send_waits_for_partitions_and_buffer_together_for_max_block_ms(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _producer(max_block_ms=2_000, buffer_memory=20_000) as producer:
        limits: list[float] = []

        def learn(topic: str, until: float) -> Any:
            clock.now += 1.5
            producer._staging.staged += 100_000
            return object()

        def wait_for_room(timeout: float) -> None:
            limits.append(timeout)
            raise KafkaTimeoutError("no room")

        monkeypatch.setattr(producer, "_learn", learn)
        monkeypatch.setattr(producer._staging, "wait_for_room", wait_for_room)
        with pytest.raises(KafkaTimeoutError, match="no room"):
            producer.send("new", b"value")
        assert limits == [0.5]
        producer._staging.staged = 0

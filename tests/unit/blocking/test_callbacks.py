"""Where callbacks of sent records run, and what a closed producer still accepts and reports."""

from __future__ import annotations

import threading

import pytest

from triokafka.blocking.callbacks import CallbackThread
from triokafka.blocking.future import Outcome
from triokafka.blocking.producer.chunk import Chunk
from triokafka.blocking.producer.future import FutureRecordMetadata
from triokafka.blocking.producer.staging import Stage, Staging
from triokafka.errors import IllegalStateError, KafkaError
from triokafka.loop_thread import loop_thread


async def ident() -> int:
    return threading.get_ident()


def staging() -> Staging:
    return Staging(loop_thread(), CallbackThread("callbacks under test"), 1 << 20)


class Called:
    """A callback that notes its thread."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.times = 0
        self._event = threading.Event()

    def __call__(self, _: object) -> None:
        self.thread = threading.get_ident()
        self.times += 1
        self._event.set()

    def wait(self) -> int | None:
        assert self._event.wait(20)
        return self.thread


def test_a_callback_added_while_its_record_is_being_settled_is_called_once() -> None:
    first, second = Called(), Called()
    adding: list[threading.Thread] = []

    class Interleaved(Chunk):
        """Another thread adds its callback between the check of the outcome and the calls."""

        def outcome(self, index: int) -> Outcome | None:
            found = super().outcome(index)
            if not adding:
                adding.append(threading.Thread(target=future.add_errback, args=(second,)))
                adding[0].start()
                adding[0].join(20)
            return found

    chunk = Interleaved(Stage(staging(), "topic"))
    future = FutureRecordMetadata(chunk, 0)
    future.add_errback(first)
    loop_thread().soon(chunk.handed, KafkaError("refused"))
    with pytest.raises(KafkaError, match="refused"):
        future.get(20)
    loop_ident = loop_thread().call(ident)
    for called in (first, second):
        assert called.wait() not in (threading.get_ident(), loop_ident)
    assert adding
    assert chunk.stage.staging.callbacks.wait(20)
    assert (first.times, second.times) == (1, 1)
    chunk.stage.staging.callbacks.end()


def test_callbacks_added_after_the_end_run_and_waiters_wake() -> None:
    chunk = Chunk(Stage(staging(), "topic"))
    first, second, third = (FutureRecordMetadata(chunk, index) for index in range(3))
    before, after = Called(), Called()
    first.add_errback(before)
    for _ in range(3):
        chunk.handed(KafkaError("refused"))
    before.wait()
    chunk.stage.staging.callbacks.end()
    second.add_errback(after)
    with pytest.raises(KafkaError, match="refused"):
        second.get(timeout=20)
    assert after.wait() != threading.get_ident()
    with pytest.raises(KafkaError, match="refused"):
        third.get(timeout=20)


def test_a_stage_whose_producer_is_closed_begins_nothing() -> None:
    stage = Stage(staging(), "topic")
    chunk = stage.begin()
    stage.staging.close()
    assert stage.open is chunk
    stage.staging.fail([stage], KafkaError("the end"))
    with pytest.raises(IllegalStateError, match="closed"):
        stage.begin()


def test_staged_records_fail_at_the_end_even_without_senders() -> None:
    stage = Stage(staging(), "topic")
    stage.staging.stages["topic"] = stage
    chunk = stage.begin()
    chunk.values.append(b"left")
    stage.staging.close()
    stage.staging.fail([stage], KafkaError("the end"))
    with pytest.raises(KafkaError, match="the end"):
        FutureRecordMetadata(chunk, 0).get(timeout=20)


def test_sender_that_waits_for_room_fails_when_the_producer_is_closed() -> None:
    """The records that the loop was taking over may never be released."""
    full = staging()
    full.staged = full.limit + 1
    refused = threading.Event()

    def send() -> None:
        with pytest.raises(IllegalStateError, match="closed"):
            full.wait_for_room(20)
        refused.set()

    threading.Thread(target=send, daemon=True).start()
    full.close()
    assert refused.wait(10)

"""Futures of sent records: when ``get`` returns, and what its error references."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import trio

from triokafka import Deliveries, Producer
from triokafka.blocking.callbacks import CallbackThread
from triokafka.blocking.producer.chunk import Chunk
from triokafka.blocking.producer.future import FutureRecordMetadata
from triokafka.blocking.producer.notification import Notification
from triokafka.blocking.producer.staging import Stage, Staging
from triokafka.errors import MessageSizeTooLargeError
from triokafka.loop_thread import LoopThread


class _Callbacks:
    """Stands in for the callback thread. ``meanwhile`` runs when a caller checks whether it is in this thread."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    @property
    def is_current_thread(self) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return False

    def put(self, do: Callable[..., object], *arguments: Any) -> None:
        pass


class _Loop:
    """A loop that never runs its functions."""

    def soon(self, do: Callable[..., object], *arguments: Any) -> bool:
        return True


class _Noted(Notification):
    """Records the futures that were waited for."""

    waited = 0

    def wait(self, lock: threading.Lock, timeout: float | None) -> None:
        self.waited += 1


@pytest.fixture
def callbacks() -> _Callbacks:
    return _Callbacks()


@pytest.fixture
def chunk(callbacks: _Callbacks) -> Chunk:
    staging = Staging(cast(LoopThread, _Loop()), cast(CallbackThread, callbacks), limit=1 << 20)
    return Chunk(Stage(staging, "t"))


def test_get_waits_for_callbacks_that_began_while_it_looked_at_them(chunk: Chunk, callbacks: _Callbacks) -> None:
    """`get` saw callbacks not yet called, then saw them running, and did not wait for their end."""
    future, error, notification = FutureRecordMetadata(chunk, 0), MessageSizeTooLargeError("too large"), _Noted()
    future.add_errback(lambda _: None)
    chunk.handed(error)
    callbacks.meanwhile = lambda: chunk._take([0], notification)
    with pytest.raises(MessageSizeTooLargeError):
        future.get(timeout=1)
    assert notification.waited == 1


def test_error_does_not_grow_with_every_call_of_get(chunk: Chunk) -> None:
    """Records that failed together have the same error, and their futures raise it again and again."""
    error = MessageSizeTooLargeError("too large")
    chunk.handed(error)
    chunk.handed(error)
    lengths: list[int] = []
    for number in range(20):
        with pytest.raises(MessageSizeTooLargeError) as raised:
            FutureRecordMetadata(chunk, number % 2).get(timeout=1)
        assert raised.value is error
        lengths.append(len(raised.traceback))
    assert set(lengths) == {lengths[0]}


class _Records:
    """Stands for the variables of a call's frames."""


class _RefusingProducer:
    """Refuses every record as `Producer.send_many` does."""

    def __init__(self) -> None:
        self.records: list[weakref.ref[_Records]] = []

    async def send_many(self, topic: str, values: Any) -> Any:
        records = _Records()
        self.records.append(weakref.ref(records))
        await trio.lowlevel.checkpoint()
        try:
            raise MessageSizeTooLargeError("too large")
        except MessageSizeTooLargeError as error:
            raise MessageSizeTooLargeError(f"record 0 of 1: {error}") from None


async def test_error_of_a_record_does_not_keep_those_that_were_handed_over_with_it(chunk: Chunk) -> None:
    chunk.values.append(b"value")
    producer = _RefusingProducer()
    await cast(Stage, chunk.stage)._hand_over(cast(Producer, producer), chunk)
    gc.collect()
    assert isinstance(FutureRecordMetadata(chunk, 0).exception, MessageSizeTooLargeError)
    assert [records() for records in producer.records] == [None]


def test_futures_read_during_the_creation_of_deliveries_get_the_same_outcome() -> None:
    """The future was reported as not handed over: its `get` then waited forever, or an assertion ended the loop."""
    staging = Staging(cast(LoopThread, _Loop()), cast(CallbackThread, _Callbacks()), limit=1 << 20)
    chunk = Chunk(Stage(staging, "t"))
    seen: list[Any] = []
    other = threading.Thread(target=lambda: seen.append(chunk.delivery(2)))

    class Accepted:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[str]:
            yield "first"
            other.start()
            other.join(0.1)  # it cannot end before these are made
            yield "second"
            yield "third"

        def parts(self) -> Iterator[Any]:
            return iter(())

    chunk.handed(cast(Deliveries, Accepted()))
    assert cast(Any, chunk.delivery(2)) == "third"
    other.join(10)
    assert seen == ["third"]

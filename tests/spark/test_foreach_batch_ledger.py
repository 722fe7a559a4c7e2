"""The ledger topic, which records the completed work of each batch, on a broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

import triokafka
from tests.spark.topics import Record, make_topic
from tests.support.waiting import until
from triokafka.errors import ConfigurationError, TopicAuthorizationFailedError
from triokafka.spark.writing.foreach_batch_ledger import Ledger


def ledger(bootstrap: str, topic: str) -> Ledger:
    return Ledger(topic, {"bootstrap_servers": bootstrap})


def test_restarted_driver_knows_the_completed_batches(bootstrap: str) -> None:
    one = ledger(bootstrap, f"{make_topic(bootstrap)}-done")
    assert one.last_done(b"q/mail") is None
    one.note(b"q/mail", 0)
    one.note(b"q/mail", 1)
    one.note(b"q/copy", 0)
    assert (one.last_done(b"q/mail"), one.last_done(b"q/copy"), one.last_done(b"r/mail")) == (1, 0, None)
    assert ledger(bootstrap, one.topic).last_done(b"q/mail") == 1


def test_only_new_ledger_records_are_read_again(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ledger(bootstrap, f"{make_topic(bootstrap)}-done")
    for batch in range(3):
        one.note(b"q", batch)
    read: list[list[tuple[int, int]]] = []

    class Watched(triokafka.RangeReader):
        def __init__(self, ranges: Any, **options: Any) -> None:
            read.append(list(ranges.values()))
            super().__init__(ranges, **options)

    monkeypatch.setattr(triokafka, "RangeReader", Watched)
    assert one.last_done(b"q") == 2
    ledger(bootstrap, one.topic).note(b"q", 3)
    assert one.last_done(b"q") == 3
    assert read == [[(0, 3)], [(3, 4)]]


async def delete(bootstrap: str, topic: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.delete_topics([topic])


@pytest.mark.parametrize("notes", [0, 1, 2])
def test_recreated_topic_is_read_from_its_beginning(bootstrap: str, notes: int) -> None:
    """This holds even if the new topic has as many records as the old one, or more."""
    one = ledger(bootstrap, f"{make_topic(bootstrap)}-done")
    one.note(b"q", 7)
    assert one.last_done(b"q") == 7
    trio.run(delete, bootstrap, one.topic)
    other = ledger(bootstrap, one.topic)
    assert other.last_done(b"q") is None
    for batch in range(notes):
        other.note(b"r", batch)
    assert (one.last_done(b"q"), one.last_done(b"r")) == (None, notes - 1 if notes else None)


def test_a_topic_that_was_deleted_is_created_again(bootstrap: str) -> None:
    one = ledger(bootstrap, f"{make_topic(bootstrap)}-done")
    assert one.last_done(b"q") is None
    trio.run(delete, bootstrap, one.topic)
    assert one.last_done(b"q") is None
    one.note(b"q", 1)
    assert one.last_done(b"q") == 1


def test_two_concurrent_readers_do_not_undo_each_other(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries may share a function. While the first one's read is delayed, the second could read further."""
    one = ledger(bootstrap, f"{make_topic(bootstrap)}-done")
    one.note(b"q", 5)
    held_up, go_on = threading.Event(), threading.Event()
    found: list[int | None] = []

    class Slow(triokafka.RangeReader):
        async def next_records(self, limit: int = 1_000) -> list[triokafka.ConsumerRecord]:
            records = await super().next_records(limit)
            if records and not held_up.is_set():
                held_up.set()
                await trio.to_thread.run_sync(go_on.wait)
            return records

    monkeypatch.setattr(triokafka, "RangeReader", Slow)
    first = threading.Thread(target=lambda: found.append(one.last_done(b"q")))
    first.start()
    held_up.wait()
    ledger(bootstrap, one.topic).note(b"q", 7)
    second = threading.Thread(target=lambda: found.append(one.last_done(b"q")))
    second.start()
    until(lambda: one._turn.statistics().tasks_waiting > 0, "the second reader did not wait for the first")
    go_on.set()  # the older state of the first reader must not overwrite the newer state of the second
    first.join()
    second.join()
    assert found == [5, 7]


def test_an_existing_topic_is_not_created(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that may write to the topic need not be allowed to create it."""

    one = ledger(bootstrap, make_topic(bootstrap))

    async def refuse(*_: object, **__: object) -> None:
        raise TopicAuthorizationFailedError("no")

    monkeypatch.setattr(triokafka.AdminClient, "create_topics", refuse)
    one.note(b"q", 1)
    assert one.last_done(b"q") == 1


@pytest.mark.parametrize("value", [b"flight", b"{}", b"[1]", b'{"batch": "x"}'])
def test_a_topic_with_other_records_is_refused(bootstrap: str, value: bytes) -> None:
    topic = make_topic(bootstrap, [Record(value, b"key")])
    with pytest.raises(
        ConfigurationError, match=rf"'{topic}' has a record that is not a ledger entry, at offset 0 of partition 0"
    ):
        ledger(bootstrap, topic).last_done(b"q")


def test_no_repr_contains_options() -> None:
    assert repr(Ledger("done", {"bootstrap_servers": "h:1", "client_id": "hush"})) == "Ledger('done')"

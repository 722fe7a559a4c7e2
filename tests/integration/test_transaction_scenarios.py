"""The guarantees of transactions with the producers of four clients: the same scenarios, checked by librdkafka's
consumer.

``TRIOKAFKA_TEST_BOOTSTRAP`` runs them on another broker, such as Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.transactional_drivers import DRIVERS, Refused, TransactionalDriver, committed, create, read
from tests.support.waiting import until

Open = Callable[..., TransactionalDriver]


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.name)
def producer(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Open]:
    """Create producers of one client; ``initialized`` ones have their producer id."""
    made: list[TransactionalDriver] = []

    def make(transactional_id: str | None = None, timeout_ms: int = 60_000) -> TransactionalDriver:
        one: TransactionalDriver = request.param(bootstrap, transactional_id or uuid.uuid4().hex, timeout_ms)
        made.append(one)
        one.init()
        return one

    yield make
    for one in made:
        one.close()


def test_commit_shows_all_records_and_abort_none(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    one = producer()
    for number in range(6):
        one.begin()
        for partition in range(2):
            one.send(topic, b"%d" % number, partition)
        if number % 2:
            one.flush()
            one.abort()
        else:
            one.commit()
    assert read(bootstrap, topic, 2) == [b"0", b"2", b"4"] * 2
    assert len(read(bootstrap, topic, 2, "read_uncommitted")) == 12


def test_open_transaction_blocks_readers_of_its_partition(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    slow, quick = producer(), producer()
    slow.begin()
    slow.send(topic, b"slow")
    slow.flush()
    quick.begin()
    quick.send(topic, b"quick")
    quick.commit()
    assert read(bootstrap, topic, stable=False) == [], (
        "the last stable offset is the first record of the open transaction"
    )
    slow.commit()
    assert read(bootstrap, topic) == [b"slow", b"quick"]


def test_abort_drops_unsent_records_and_does_not_affect_the_next_transaction(
    producer: Open, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    one = producer()
    for number in range(4):
        one.begin()
        for _ in range(20):
            one.send(topic, b"dropped")
        one.abort()
        one.begin()
        one.send(topic, b"%d" % number)
        one.commit()
    assert read(bootstrap, topic) == [b"0", b"1", b"2", b"3"]


def test_newer_producer_fences_the_older_and_aborts_its_transaction(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    old = producer(topic)
    old.begin()
    old.send(topic, b"zombie")
    old.flush()
    new = producer(topic)
    new.begin()
    new.send(topic, b"new")
    new.commit()
    with pytest.raises(Refused):
        old.send(topic, b"zombie again")
        old.commit()
    assert read(bootstrap, topic) == [b"new"]


def test_offsets_follow_the_outcome(producer: Open, bootstrap: str, topic: str, group: str) -> None:
    create(bootstrap, topic)
    one = producer()
    one.begin()
    one.send(topic, b"a")
    one.send_offsets(group, {(topic, 0): 5})
    one.commit()
    assert committed(bootstrap, group, topic) == 5
    one.begin()
    one.send(topic, b"b")
    one.send_offsets(group, {(topic, 0): 9})
    one.abort()
    assert committed(bootstrap, group, topic) == 5
    one.begin()
    one.send_offsets(group, {(topic, 0): 7})
    one.commit()
    assert committed(bootstrap, group, topic) == 7, "a transaction may have offsets only"


def test_transaction_that_takes_too_long_is_aborted(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    slow = producer(timeout_ms=1_500)
    slow.begin()
    slow.send(topic, b"late")
    slow.flush()
    follower = producer()
    follower.begin()
    follower.send(topic, b"follower")
    follower.commit()
    until(lambda: read(bootstrap, topic, stable=False) == [b"follower"], "the slow transaction did not time out", 40)
    with pytest.raises(Refused):
        slow.commit()
    assert read(bootstrap, topic) == [b"follower"]


def test_empty_transactions_write_no_record(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    one = producer()
    for number in range(6):
        one.begin()
        if number % 2:
            one.abort()
        else:
            one.commit()
    one.begin()
    one.send(topic, b"only")
    one.commit()
    assert read(bootstrap, topic) == [b"only"]


def test_two_producers_on_many_partitions_stay_apart(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 20)
    commits, aborts = producer(), producer()
    commits.begin()
    aborts.begin()
    for number in range(40):
        commits.send(topic, b"yes", number % 20)
        aborts.send(topic, b"no", number % 20)
    aborts.flush()
    commits.flush()
    aborts.abort()
    commits.commit()
    assert read(bootstrap, topic, 20) == [b"yes"] * 40


def test_large_transaction_is_complete(producer: Open, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 10)
    one = producer()
    for _ in range(2):
        one.begin()
        for number in range(2_000):
            one.send(topic, b"%d" % number, number % 10)
        one.commit()
    found = read(bootstrap, topic, 10)
    assert len(found) == 4_000 and len(set(found)) == 2_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_transaction_of_100_000_records_over_50_partitions_is_complete(
    producer: Open, bootstrap: str, topic: str, group: str
) -> None:
    create(bootstrap, topic, 50)
    one = producer(timeout_ms=600_000)
    for number, commits in enumerate((True, False, True)):
        one.begin()
        for record in range(100_000):
            one.send(topic, b"%d-%d" % (number, record), record % 50)
        one.send_offsets(group, {(topic, 0): number})
        if commits:
            one.commit()
        else:
            one.flush()
            one.abort()
    found = read(bootstrap, topic, 50)
    assert len(found) == 200_000
    assert set(found) == {b"%d-%d" % (number, record) for number in (0, 2) for record in range(100_000)}
    assert committed(bootstrap, group, topic) == 2


@pytest.mark.parametrize("stage", ["initialized", "begun", "sent", "flushed", "offsets", "committed", "aborted"])
def test_restarted_producer_works_whatever_the_older_one_did(
    stage: str, producer: Open, bootstrap: str, topic: str, group: str
) -> None:
    create(bootstrap, topic)
    old = producer(topic)
    steps: list[tuple[str, Callable[[], None]]] = [
        ("begun", old.begin),
        ("sent", lambda: old.send(topic, b"old")),
        ("flushed", old.flush),
        ("offsets", lambda: old.send_offsets(group, {(topic, 0): 1})),
    ]
    if stage in ("committed", "aborted"):
        steps.append((stage, old.commit if stage == "committed" else old.abort))
    for name, step in steps:
        if stage == "initialized":
            break
        step()
        if name == stage:
            break
    new = producer(topic)  # the older producer still exists, and sends no more requests
    new.begin()
    new.send(topic, b"new")
    new.commit()
    assert read(bootstrap, topic) == ([b"old", b"new"] if stage == "committed" else [b"new"])
    assert committed(bootstrap, group, topic) == (1 if stage == "committed" else None)

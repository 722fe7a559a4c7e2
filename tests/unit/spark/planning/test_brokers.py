"""Requests to brokers from the driver: retries, time limits, and deleted topics."""

from __future__ import annotations

import logging
import traceback
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import trio

import triokafka
from triokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.spark.planning import brokers
from triokafka.spark.planning.brokers import Brokers, NoSuchTopicError, ask_brokers, without_frames
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.structs import TopicPartition


def options(**more: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "fetchOffset.retryIntervalMs": "1", **more}
    if not {"assign", "subscribePattern"} & set(more):
        given.setdefault("subscribe", "orders")
    return ReadOptions.parse(given)


# ---------------------------------------------------------------- messages


def test_client_errors_name_sparks_options() -> None:
    """A user who reads ``request_timeout_ms`` would set it as an option, but Spark's has another name."""
    error = without_frames(RequestTimedOutError("no answer within request_timeout_ms=5 from 'client_id'"))
    assert str(error) == "no answer within kafka.request.timeout.ms=5 from 'client_id'"
    assert error.__notes__ == [
        "Try again; if it happens often, check the broker's load or raise kafka.request.timeout.ms."
    ]
    assert without_frames(error).__notes__ == error.__notes__, "once"


# ---------------------------------------------------------------- tries


class Failing:
    """An operation that raises these errors, one per call, and then returns the number of calls."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def __call__(self, asked: Brokers) -> int:
        self.tries += 1
        await trio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        return self.tries


def test_metadata_that_changed_midway_is_requested_again() -> None:
    """A topic is deleted between two requests, for instance, or was created so recently that the broker does not know
    it.
    """
    gone = NoSuchTopicError("gone")
    assert ask_brokers(options(), Failing(gone, gone)) == 3
    work = Failing(gone, gone)
    with pytest.raises(UnknownTopicOrPartitionError, match="gone"):
        ask_brokers(options(**{"fetchOffset.numRetries": "2"}), work)
    assert work.tries == 2


@pytest.mark.parametrize("is_silent", [True, False])
def test_silent_brokers_are_reported_before_the_timeout(monkeypatch: pytest.MonkeyPatch, is_silent: bool) -> None:
    messages: list[str] = []
    logged = trio.Event()

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            logged.set()

    async def work(asked: Brokers) -> None:
        if is_silent:
            await logged.wait()

    monkeypatch.setattr(brokers, "_SILENCE", 0.0 if is_silent else 30.0)
    handler = Listening()
    brokers._log.addHandler(handler)
    try:
        ask_brokers(options(), work)
    finally:
        brokers._log.removeHandler(handler)
    assert [text.partition(" for ")[0] for text in messages] == ["brokers at 127.0.0.1:1: no answer"] * is_silent


def test_error_message_includes_its_remedy() -> None:
    """Spark prints the text of a traceback, in which notes follow the message."""
    work = Failing(*[TopicAuthorizationFailedError("topic 'orders'")] * 3)
    with pytest.raises(TopicAuthorizationFailedError) as raised:
        ask_brokers(options(), work)
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.endswith("TopicAuthorizationFailedError: topic 'orders'\nGrant the operation on the topic.\n")


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), KafkaConnectionError("down"), KafkaError("defect")])
def test_permanent_error_is_raised_at_once(error: KafkaError) -> None:
    """The client itself has retried until its time limit."""
    work = Failing(error)
    with pytest.raises(type(error)) as raised:
        ask_brokers(options(), work)
    assert work.tries == 1
    assert not [entry for entry in raised.traceback if "site-packages" in str(entry.path)]


def test_a_hanging_request_ends_with_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(asked: Brokers) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(brokers, "_GRACE", 0.0)
    with pytest.raises(
        KafkaTimeoutError, match=r"127\.0\.0\.1:1 returned no offsets of Subscribe\[orders\] within 0 s"
    ):
        ask_brokers(options(**{"kafka.default.api.timeout.ms": "50"}), hang)


# ---------------------------------------------------------------- partitions


class Topics:
    """Stands in for the admin client: topics with their numbers of partitions, or the error of describing one."""

    def __init__(self, **topics: int | Exception) -> None:
        self._topics = topics

    async def list_topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self._topics]

    async def describe_topics(self, names: tuple[str, ...]) -> Any:
        from triokafka.client.admin.types import PartitionDescription, Results, TopicDescription

        found: dict[str, Any] = {}
        errors: dict[str, Exception] = {}
        for name in names:
            count = self._topics.get(name, UnknownTopicOrPartitionError(name))
            if isinstance(count, Exception):
                errors[name] = count
            else:
                parts = tuple(PartitionDescription(number, None, -1, (), (), ()) for number in range(count))
                found[name] = TopicDescription(name, UUID(int=0), False, parts)
        return Results(found, errors)


def asked(given: ReadOptions, **topics: int | Exception) -> Brokers:
    return Brokers(given, cast("triokafka.AdminClient", Topics(**topics)))


async def test_named_topics_and_partitions_must_exist_unless_they_may_be_missing() -> None:
    subscribed = asked(options(subscribe="orders,gone"), orders=2)
    with pytest.raises(NoSuchTopicError, match=r"topic 'gone' does not exist at 127\.0\.0\.1:1: .* option 'subscribe'"):
        await subscribed.partitions()
    orders = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert await subscribed.partitions(missing_ok=True) == orders
    assigned = asked(options(assign='{"orders": [1, 7]}'), orders=2)
    with pytest.raises(NoSuchTopicError, match="names orders-7, but orders has 2 partitions"):
        await assigned.partitions()
    assert await assigned.partitions(missing_ok=True) == orders[1:]


async def test_a_topic_with_nearly_the_same_name_is_proposed() -> None:
    for name, message in (
        ("oders", r"option 'subscribe'; did you mean 'orders'\?$"),
        ("payments", "option 'subscribe'$"),
    ):
        with pytest.raises(NoSuchTopicError, match=message):
            await asked(options(subscribe=name), orders=2).partitions()


async def test_a_matching_topic_that_was_just_deleted_is_left_out() -> None:
    matching = asked(options(subscribePattern="o.*"), orders=1, other=UnknownTopicOrPartitionError("other"), x=1)
    assert await matching.partitions() == [TopicPartition("orders", 0)]


async def test_topics_that_do_not_match_are_not_described() -> None:
    """A topic without a leader, for instance, must not delay a query that does not read it."""
    matching = asked(options(subscribePattern="o.*"), orders=1, payments=KafkaError("no leader"))
    assert await matching.partitions() == [TopicPartition("orders", 0)]


async def test_another_error_of_a_topic_is_raised() -> None:
    with pytest.raises(KafkaError, match="not allowed"):
        await asked(options(subscribePattern="o.*"), orders=KafkaError("not allowed")).partitions()

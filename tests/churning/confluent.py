"""A group member with confluent-kafka."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.churning.member import Fenced, Journal, Terms

_LATER: Final = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    # The broker is down.
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
"""Errors after which a commit is retried, or its records are read again by the next owner."""
_FENCED: Final = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


def _options(terms: Terms) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": terms.bootstrap,
        "group.id": terms.group,
        "client.id": terms.client_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": terms.max_poll_interval_ms,
        "log_level": 0,
    }
    if terms.instance is not None:
        options["group.instance.id"] = terms.instance
    if terms.protocol == "consumer":
        return {**options, "group.protocol": "consumer", "group.remote.assignor": terms.strategy}
    return {
        **options,
        "partition.assignment.strategy": terms.strategy,
        "session.timeout.ms": terms.session_timeout_ms,
        "heartbeat.interval.ms": terms.heartbeat_interval_ms,
    }


def take_part(terms: Terms, journal: Journal) -> None:
    """Read and commit until the end of the input."""
    consumer = Consumer(_options(terms))

    def commit() -> None:
        journal.report_reads()
        positions = dict(journal.uncommitted)
        if not positions:
            return
        offsets = [TopicPartition(terms.topic, *at) for at in positions.items()]
        try:
            results = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError._FATAL:  # of that one, only the next poll tells the reason
                _judge(problem.args[0])
            return
        failed = {one.partition for one in results if one.error is not None}
        for one in results:
            if one.error is not None:
                _judge(one.error)
        journal.committed({partition: at for partition, at in positions.items() if partition not in failed})

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit()
        journal.forget(one.partition for one in partitions)

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        journal.report_reads()
        journal.forget(one.partition for one in partitions)

    try:
        journal.report(joining=True)
        consumer.subscribe([terms.topic], on_revoke=revoked, on_lost=lost)
        while not journal.leave.is_set():
            message = consumer.poll(0.1)
            for _ in range(200):
                if message is None:
                    break
                error = message.error()
                if error is not None:
                    _judge(error)
                else:
                    journal.read(message.partition() or 0, message.offset() or 0)
                message = consumer.poll(0)
            commit()
            journal.assigned(one.partition for one in consumer.assignment())
    finally:
        consumer.close()


def _judge(error: KafkaError) -> None:
    """Raise fatal errors."""
    if error.code() in _FENCED and "instance" in error.str().lower():
        raise Fenced(error.str())
    if error.code() not in _LATER and (error.fatal() or not error.retriable()):
        raise KafkaException(error)

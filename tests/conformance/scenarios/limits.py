"""Limits, and the codes with which the broker says that one was hit."""

from __future__ import annotations

import time

from tests.conformance.catalogue import FIRST_TIMESTAMP, Case, scenario
from tests.conformance.driver import Message


@scenario
def record_too_large(case: Case) -> None:
    """A record above max.message.bytes is refused with MESSAGE_TOO_LARGE (10)."""
    topic = case.topic(max_message_bytes=10_000)
    assert case.outcome_of(topic, Message(b"x" * 20_000), delivery_timeout_ms=5_000) == 10
    assert case.send(topic, [Message(b"x" * 9_000)])[0].offset == 0


@scenario
def default_record_limit(case: Case) -> None:
    """The broker's own limit is 1 MiB and a little."""
    topic = case.topic()
    assert case.outcome_of(topic, Message(b"x" * 1_100_000), delivery_timeout_ms=5_000) == 10
    assert case.send(topic, [Message(b"x" * 1_040_000)])[0].offset == 0


@scenario
def limit_counts_compressed_bytes(case: Case) -> None:
    """max.message.bytes counts what is stored: a record that compresses well may be larger."""
    topic = case.topic(max_message_bytes=10_000)
    assert case.send(topic, [Message(b"x" * 100_000)], compression_type="gzip")[0].offset == 0


@scenario
def raised_limit(case: Case) -> None:
    """A higher max.message.bytes holds from then on."""
    topic = case.topic(max_message_bytes=10_000)
    case.configure(topic, "max.message.bytes", "3000000")
    case.until(lambda: case.client.describe_configs("topic", topic)["max.message.bytes"].value == "3000000")
    assert case.send(topic, [Message(b"x" * 2_000_000)])[0].offset == 0


@scenario
def too_far_in_the_future(case: Case) -> None:
    """A time beyond message.timestamp.after.max.ms is refused with INVALID_TIMESTAMP (32)."""
    topic = case.topic(message_timestamp_after_max_ms=60_000)
    late = int(time.time() * 1000) + 3_600_000
    assert case.outcome_of(topic, Message(b"v", timestamp=late), delivery_timeout_ms=5_000) == 32
    assert case.send(topic, [Message(b"v")])[0].offset == 0


@scenario
def too_far_in_the_past(case: Case) -> None:
    """A time beyond message.timestamp.before.max.ms is refused with INVALID_TIMESTAMP (32)."""
    topic = case.topic(message_timestamp_before_max_ms=60_000)
    assert case.outcome_of(topic, Message(b"v", timestamp=FIRST_TIMESTAMP), delivery_timeout_ms=5_000) == 32
    assert case.send(topic, [Message(b"v")])[0].offset == 0


@scenario
def min_insync_replicas_above_the_replicas(case: Case) -> None:
    """min.insync.replicas above the number of replicas asks for no more than all of them."""
    topic = case.topic(min_insync_replicas=2)
    assert case.send(topic, [Message(b"v")])[0].offset == 0
    assert case.send(topic, [Message(b"v")], acks=1)[0].offset == 1


@scenario
def text_beside_offset_too_long(case: Case) -> None:
    """A text of more than offset.metadata.max.bytes beside an offset: OFFSET_METADATA_TOO_LARGE (12)."""
    topic = case.topic()
    consumer = case.client.consumer(case.name())
    consumer.assign(topic, {0: 0})
    assert case.refusal(lambda: consumer.commit({(topic, 0): (1, "x" * 5_000)})) == 12
    other = case.client.consumer(case.name())
    other.assign(topic, {0: 0})
    # confluent-kafka sends a byte more than it is given.
    other.commit({(topic, 0): (1, "x" * 4_095)})
    assert other.committed((topic, 0)) == 1


@scenario
def one_bad_record_spares_the_others(case: Case) -> None:
    """Only the partition of a refused batch is concerned."""
    topic = case.topic(partitions=2, max_message_bytes=10_000)
    outcomes = case.client.produce(
        topic, [Message(b"x" * 20_000, partition=0), Message(b"fine", partition=1)], delivery_timeout_ms=5_000
    )
    assert getattr(outcomes[0], "code", None) == 10
    assert getattr(outcomes[1], "offset", None) == 0

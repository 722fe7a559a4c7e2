"""Groups of every kind, written to a broker, and their descriptions by an admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.kafka_python_driver import KafkaPythonDriver
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import until

TIMEOUT: Final = 60.0
TOPIC: Final = "t"
PARTITIONS: Final = 4
RECORDS: Final = 20
GROUPS: Final = ("classic", "modern", "by hand", "left", "half", "one removed")
"""Those that are left in the end; "gone" has been deleted."""
_LONG_SESSION_MS: Final = 250_000
_NOT_YET: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def member(bootstrap: str, group: str, instance: str | None = None, protocol: str = "classic") -> Consumer:
    """Return a member with confluent-kafka that has subscribed to the topic."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": instance or "dynamic",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if instance is not None:
        options["group.instance.id"] = instance
    if protocol == "classic":
        options |= {"partition.assignment.strategy": "range", "session.timeout.ms": _LONG_SESSION_MS}
        options |= {"heartbeat.interval.ms": 500}
    consumer = Consumer(options)
    consumer.subscribe([TOPIC])
    return consumer


def together(members: Sequence[Consumer]) -> None:
    """Poll until each member has the same number of partitions."""

    def shared() -> bool:
        for one in members:
            message = one.poll(0.05)
            assert message is None or message.error() is None, message.error()
        return [len(one.assignment()) for one in members] == [PARTITIONS // len(members)] * len(members)

    until(shared, "the members share the topic")


def at(partition: int, offset: int, metadata: str = "", leader_epoch: int | None = None) -> TopicPartition:
    """Return an offset of the topic."""
    more = {} if leader_epoch is None else {"leader_epoch": leader_epoch}
    return TopicPartition(TOPIC, partition, offset, metadata=metadata, **more)


def _commit_by_hand(bootstrap: str, group: str, positions: Sequence[TopicPartition]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=list(positions), asynchronous=False)
    finally:
        consumer.close()


def write_groups(bootstrap: str) -> None:
    """Create and fill the topic, and create groups of every kind."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0
    for group, protocol in (("classic", "classic"), ("modern", "consumer")):
        # Static members that close do not leave the group.
        members = [member(bootstrap, group, instance, protocol) for instance in ("one", "two")]
        together(members)
        for one in members:
            one.commit(offsets=[at(p.partition, 3, f"note {p.partition}", 0) for p in one.assignment()])
        for one in members:
            one.commit(offsets=[at(p.partition, 2, "bäck") for p in one.assignment()], asynchronous=False)
            one.close()
    for group in ("left", "gone"):
        alone = member(bootstrap, group)
        together([alone])
        alone.commit(offsets=[at(0, 4)], asynchronous=False)
        alone.close()
    static = member(bootstrap, "one removed", "removed")
    together([static])
    static.commit(offsets=[at(1, 1)], asynchronous=False)
    static.close()
    _commit_by_hand(bootstrap, "by hand", [at(0, 1, "where", 0), at(1, 5)])
    _commit_by_hand(bootstrap, "half", [at(0, 1), at(1, 2)])
    driver = KafkaPythonDriver(bootstrap, TIMEOUT)
    try:
        driver.delete_group_offsets("half", [(TOPIC, 0)])
        driver.remove_static_member("one removed", "removed")
        driver.delete_group("gone")
    finally:
        driver.close()


def serves(bootstrap: str, *, without: Sequence[str] = ()) -> bool:
    """Whether all groups can be described, which is not possible immediately after a start."""
    try:
        seen(bootstrap, without=without)
    except KafkaException as error:
        if error.args[0].code() not in _NOT_YET:
            raise
        return False
    return True


def seen(bootstrap: str, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return an admin client's descriptions of all groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found: dict[str, Any] = {}
    listed = admin.list_consumer_groups().result(TIMEOUT)
    if listed.errors:
        raise KafkaException(listed.errors[0])
    found["listed"] = sorted((one.group_id, one.state.name, one.type.name) for one in listed.valid)
    for group, described in admin.describe_consumer_groups([g for g in GROUPS if g not in without]).items():
        description = described.result(TIMEOUT)
        members = sorted(
            (
                one.group_instance_id or "",
                one.client_id,
                one.host,
                sorted(p.partition for p in one.assignment.topic_partitions),
            )
            for one in description.members
        )
        positions = committed_offsets(admin, group)
        offsets = sorted((p.partition, p.offset, p.metadata, p.leader_epoch) for p in positions)
        found[group] = (description.state.name, description.type.name, description.partition_assignor, members, offsets)
    return found

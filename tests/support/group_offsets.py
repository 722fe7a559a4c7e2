"""The committed offsets of a group, as librdkafka's admin client lists them."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.waiting import TIMEOUT, until

_NOT_YET: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


def has_coordinator(admin: AdminClient, group: str) -> bool:
    """Whether the group's coordinator serves it, which is not so immediately after a start."""
    try:
        admin.describe_consumer_groups([group])[group].result(TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() in _NOT_YET:
            return False
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
    return True


def committed_offsets(
    admin: AdminClient, group: str, partitions: list[TopicPartition] | None = None, **options: Any
) -> list[TopicPartition]:
    """Return the committed offsets of a group, of all its partitions or of some.

    First wait until the group has a coordinator: if a broker answers that it is not the coordinator,
    ``list_consumer_group_offsets`` can end the whole process (librdkafka issue 5040).
    """
    until(lambda: has_coordinator(admin, group), f"group {group} has no coordinator")
    asked = ConsumerGroupTopicPartitions(group, partitions)
    return list(admin.list_consumer_group_offsets([asked], **options)[group].result(TIMEOUT).topic_partitions)

"""kafka-python 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import kafka
from kafka import errors
from kafka.admin import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.conformance.driver import (
    ClientDriver,
    Cluster,
    Config,
    ConsumerDriver,
    Delivered,
    Group,
    Member,
    Message,
    NotOffered,
    Options,
    Partition,
    Record,
    Refused,
    Spot,
    Topic,
)

_PRODUCER: Final = Options(
    "kafka-python",
    {
        name: name
        for name in (
            "acks",
            "batch_size",
            "compression_type",
            "delivery_timeout_ms",
            "enable_idempotence",
            "linger_ms",
            "max_in_flight_requests_per_connection",
            "request_timeout_ms",
            "retries",
        )
    },
)
_CONSUMER: Final = Options(
    "kafka-python",
    {
        name: name
        for name in (
            "api_version",
            "auto_commit_interval_ms",
            "auto_offset_reset",
            "check_crcs",
            "client_rack",
            "enable_auto_commit",
            "fetch_max_bytes",
            "fetch_max_wait_ms",
            "fetch_min_bytes",
            "group_instance_id",
            "heartbeat_interval_ms",
            "isolation_level",
            "max_partition_fetch_bytes",
            "max_poll_interval_ms",
            "max_poll_records",
            "metadata_max_age_ms",
            "partition_assignment_strategy",
            "session_timeout_ms",
        )
    },
)
_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_KINDS: Final = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}
_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}
_CODES: Final = {kind.__name__: code for code, kind in errors.kafka_errors.items()}


def _refused(error: BaseException) -> Refused:
    return Refused(getattr(error, "errno", None), f"{type(error).__name__}: {str(error)[:200]}")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except errors.KafkaError as error:
        raise _refused(error) from error


def _check(answer: Any) -> None:
    """Check a result: some calls return the class of an error, or its text."""
    if isinstance(answer, type) and answer is not errors.NoError:
        raise Refused(answer.errno, answer.__name__)  # type: ignore[attr-defined]
    if isinstance(answer, str) and answer != "OK":
        name = answer.partition("] ")[2].partition(":")[0] or answer
        raise Refused(_CODES.get(name), answer)


class KafkaPythonConsumer(ConsumerDriver):
    """``kafka.KafkaConsumer``."""

    def __init__(self, driver: KafkaPythonDriver, group: str | None, options: dict[str, Any]) -> None:
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        strategies = options.pop("partition_assignment_strategy", None)
        translated = _CONSUMER.translate(options)
        if strategies is not None:
            translated["partition_assignment_strategy"] = [_ASSIGNORS[name] for name in strategies.split(",")]
        with _refusals():
            self._consumer = kafka.KafkaConsumer(bootstrap_servers=driver.bootstrap, group_id=group, **translated)
        self._patience_ms = int(driver.patience * 1000)
        self._closed = False

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe(pattern=f"^{pattern}$")

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        self._consumer.assign([TopicPartition(topic, partition) for partition in offsets])
        for partition, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(TopicPartition(topic, partition), offset)

    def poll(self) -> list[Record]:
        with _refusals():
            # With a shorter timeout, the client abandons joining a group halfway, and starts over forever.
            found = self._consumer.poll(2_000)
        return [_record(record) for records in found.values() for record in records]

    def assignment(self) -> set[Spot]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def position(self, spot: Spot) -> int:
        with _refusals():
            return int(self._consumer.position(TopicPartition(*spot)))

    def seek(self, spot: Spot, offset: int) -> None:
        self._consumer.seek(TopicPartition(*spot), offset)

    def seek_to_beginning(self, spot: Spot) -> None:
        self._consumer.seek_to_beginning(TopicPartition(*spot))

    def seek_to_end(self, spot: Spot) -> None:
        self._consumer.seek_to_end(TopicPartition(*spot))

    def pause(self, spot: Spot) -> None:
        self._consumer.pause(TopicPartition(*spot))

    def resume(self, spot: Spot) -> None:
        self._consumer.resume(TopicPartition(*spot))

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        with _refusals():
            if offsets is None:
                self._consumer.commit()
            else:
                asked = {TopicPartition(*spot): OffsetAndMetadata(*to, -1) for spot, to in offsets.items()}
                self._consumer.commit(asked)

    def committed(self, spot: Spot) -> int | None:
        with _refusals():
            found: int | None = self._consumer.committed(TopicPartition(*spot))
        return found

    def beginning(self, spot: Spot) -> int:
        partition = TopicPartition(*spot)
        with _refusals():
            return int(self._consumer.beginning_offsets([partition])[partition])

    def end(self, spot: Spot) -> int:
        partition = TopicPartition(*spot)
        with _refusals():
            return int(self._consumer.end_offsets([partition])[partition])

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        partition = TopicPartition(*spot)
        with _refusals():
            found = self._consumer.offsets_for_times({partition: timestamp})[partition]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close()


def _record(record: Any) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )


class KafkaPythonDriver(ClientDriver):
    """kafka-python's producer, consumer and admin client."""

    name = "kafka-python"

    def __init__(self, bootstrap: str, patience: float) -> None:
        super().__init__(bootstrap, patience)
        self._made: kafka.KafkaAdminClient | None = None
        self._consumers: list[KafkaPythonConsumer] = []

    @property
    def _admin(self) -> kafka.KafkaAdminClient:
        if self._made is None:
            timeout = int(self.patience * 1000)
            with _refusals():
                self._made = kafka.KafkaAdminClient(
                    bootstrap_servers=self.bootstrap, request_timeout_ms=timeout, bootstrap_timeout_ms=timeout
                )
        return self._made

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        if self._made is not None:
            self._made.close()

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        options = {"acks": "all", "linger_ms": 5, "enable_idempotence": False, **options}
        if options.get("compression_type") == "none":
            options["compression_type"] = None
        if "delivery_timeout_ms" in options:
            # It insists that the one is longer than the other.
            options.setdefault("request_timeout_ms", options["delivery_timeout_ms"] - 100)
        if any(value is None for message in messages for _, value in message.headers):
            raise NotOffered("a header of kafka-python cannot be null")
        with _refusals():
            producer = kafka.KafkaProducer(
                bootstrap_servers=self.bootstrap,
                max_request_size=50_000_000,
                max_block_ms=int(self.patience * 1000),
                **_PRODUCER.translate(options),
            )
        outcomes: list[Delivered | Refused] = []
        try:
            sent: list[Any] = []
            for message in messages:
                try:
                    sent.append(
                        producer.send(
                            topic,
                            message.value,
                            key=message.key,
                            partition=message.partition,
                            timestamp_ms=message.timestamp,
                            headers=list(message.headers),
                        )
                    )
                except errors.KafkaError as error:
                    sent.append(_refused(error))
                except ValueError as error:
                    raise NotOffered(f"kafka-python refuses it itself: {error}") from error
            for future in sent:
                try:
                    found = future if isinstance(future, Refused) else future.get(self.patience)
                except errors.KafkaError as error:
                    outcomes.append(_refused(error))
                else:
                    is_refused = isinstance(found, Refused)
                    outcomes.append(found if is_refused else _delivered(found))
        finally:
            producer.close(timeout=self.patience)
        return outcomes

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        made = KafkaPythonConsumer(self, group, options)
        self._consumers.append(made)
        return made

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int = 1,
        replication: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        if assignment is not None:
            partitions = replication = -1
        replicas = dict(enumerate(assignment or ()))
        topics = [NewTopic(name, partitions, replication, replicas, dict(configs or {})) for name in names]
        with _refusals():
            answer = self._admin.create_topics(topics, validate_only=validate_only, raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        with _refusals():
            answer = self._admin.delete_topics(list(names), raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        asked = {topic: NewPartitions(count, None if assignment is None else [list(some) for some in assignment])}
        with _refusals():
            self._admin.create_partitions(asked, validate_only=validate_only)

    def topics(self) -> set[str]:
        with _refusals():
            return set(self._admin.list_topics())

    def describe_topic(self, name: str) -> Topic:
        return self._describe(name)

    def describe_topic_by_id(self, topic_id: str) -> Topic:
        return self._describe(UUID(topic_id))

    def _describe(self, topic: str | UUID) -> Topic:
        with _refusals():
            (found,) = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], f"{topic} was not described")
        return Topic(
            found["is_internal"],
            {
                p["partition_index"]: Partition(p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"]))
                for p in found["partitions"]
            },
            str(found["topic_id"]),
        )

    def delete_topic_by_id(self, topic_id: str) -> None:
        with _refusals():
            answer = self._admin.delete_topics([UUID(topic_id)], raise_errors=False)
        (topic,) = answer["topics"]
        if topic["error_code"]:
            raise Refused(topic["error_code"], f"{topic_id} was not deleted")

    def describe_cluster(self) -> Cluster:
        with _refusals():
            found = self._admin.describe_cluster()
        nodes = (node.get("broker_id", node.get("node_id")) for node in found["brokers"])
        return Cluster(found["cluster_id"], found["controller_id"], tuple(sorted(nodes)))

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        resource = ConfigResource(_KINDS[kind], name)
        with _refusals():
            found = self._admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        return {
            key: Config(entry["value"], _SOURCES[entry["config_source"]], entry["read_only"], entry["is_sensitive"])
            for key, entry in found[kind][name].items()
        }

    def _alter(self, kind: str, name: str, changes: Mapping[str, Any], validate_only: bool, incremental: bool) -> None:
        resource = ConfigResource(_KINDS[kind], name, dict(changes))
        with _refusals():
            found = self._admin.alter_configs(
                [resource], validate_only=validate_only, raise_on_unknown=False, incremental=incremental
            )
        _check(found[kind][name])

    def incremental_alter(
        self, kind: str, name: str, changes: Mapping[str, tuple[str, str | None]], *, validate_only: bool = False
    ) -> None:
        operations = {key: (AlterConfigOp[operation.upper()], value) for key, (operation, value) in changes.items()}
        self._alter(kind, name, operations, validate_only, True)

    def alter_configs(self, kind: str, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        self._alter(kind, name, configs, validate_only, False)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        with _refusals():
            found = self._admin.delete_records(asked)
        return {spot.partition: answer["low_watermark"] for spot, answer in found.items()}

    def list_offsets(self, topic: str, specs: Mapping[int, str | int]) -> dict[int, tuple[int, int]]:
        asked = {
            TopicPartition(topic, partition): spec if isinstance(spec, int) else OffsetSpec[spec.upper()]
            for partition, spec in specs.items()
        }
        with _refusals():
            found = self._admin.list_partition_offsets(asked)
        return {spot.partition: (answer.offset, answer.timestamp) for spot, answer in found.items()}

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        with _refusals():
            found = self._admin.list_groups(
                states_filter=None if states is None else list(states),
                types_filter=None if types is None else list(types),
            )
        return {group["group_id"] for group in found}

    def describe_group(self, group: str) -> Group:
        with _refusals():
            found = self._admin.describe_groups([group])[group]
        _check(found["error"] or "OK")
        return Group(
            found["group_state"], found["protocol_data"], tuple(_member(member) for member in found["members"])
        )

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        if require_stable:
            raise NotOffered("kafka-python's administrator cannot ask for stable offsets")
        with _refusals():
            found = self._admin.list_group_offsets({group: None})[group]
        return {(p.topic, p.partition): (at.offset, at.metadata) for p, at in found.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[Spot, int]) -> None:
        asked = {TopicPartition(*spot): OffsetAndMetadata(offset, "", -1) for spot, offset in offsets.items()}
        with _refusals():
            found = self._admin.alter_group_offsets(group, asked)
        for answer in found.values():
            _check(answer)

    def delete_group_offsets(self, group: str, spots: Sequence[Spot]) -> None:
        with _refusals():
            found = self._admin.delete_group_offsets(group, [TopicPartition(*spot) for spot in spots])
        for answer in found.values():
            _check(answer)

    def delete_group(self, group: str) -> None:
        with _refusals():
            found = self._admin.delete_groups([group])
        _check(f"] {found[group]}" if found[group] != "OK" else "OK")

    def remove_static_member(self, group: str, instance: str) -> None:
        with _refusals():
            found = self._admin.remove_group_members(group, [MemberToRemove(group_instance_id=instance)])
        for answer in found.values():
            _check(answer)


def _delivered(found: Any) -> Delivered:
    return Delivered(found.partition, -1 if found.offset is None else found.offset, found.timestamp or -1)


def _member(member: Mapping[str, Any]) -> Member:
    assigned = member["member_assignment"] or {"assigned_partitions": ()}
    topics = assigned["assigned_partitions"]
    spots = frozenset((topic["topic"], number) for topic in topics for number in topic["partitions"])
    return Member(member["member_id"], member["client_id"], member["client_host"], spots)

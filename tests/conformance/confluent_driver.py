"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin

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
    "confluent-kafka",
    {
        "acks": "acks",
        "batch_size": "batch.size",
        "compression_type": "compression.type",
        "delivery_timeout_ms": "message.timeout.ms",
        "enable_idempotence": "enable.idempotence",
        "linger_ms": "linger.ms",
        "max_in_flight_requests_per_connection": "max.in.flight.requests.per.connection",
        "retries": "retries",
    },
)
_CONSUMER: Final = Options(
    "confluent-kafka",
    {
        "allow_auto_create_topics": "allow.auto.create.topics",
        "auto_commit_interval_ms": "auto.commit.interval.ms",
        "auto_offset_reset": "auto.offset.reset",
        "check_crcs": "check.crcs",
        "client_rack": "client.rack",
        "enable_auto_commit": "enable.auto.commit",
        "fetch_max_bytes": "fetch.max.bytes",
        "fetch_max_wait_ms": "fetch.wait.max.ms",
        "fetch_min_bytes": "fetch.min.bytes",
        "group_instance_id": "group.instance.id",
        "group_protocol": "group.protocol",
        "group_remote_assignor": "group.remote.assignor",
        "heartbeat_interval_ms": "heartbeat.interval.ms",
        "isolation_level": "isolation.level",
        "max_partition_fetch_bytes": "max.partition.fetch.bytes",
        "max_poll_interval_ms": "max.poll.interval.ms",
        "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
        "partition_assignment_strategy": "partition.assignment.strategy",
        "session_timeout_ms": "session.timeout.ms",
    },
)
T = TypeVar("T")

_RESETS: Final = {"none": "error"}
_KINDS: Final = {"topic": ck_admin.ConfigResource.Type.TOPIC, "broker": ck_admin.ConfigResource.Type.BROKER}
_STATES: Final = {"STABLE": "Stable", "EMPTY": "Empty", "DEAD": "Dead"}

_PROPAGATION_SECONDS: Final = 5.0
"""How long a broker may take to learn of a new topic."""


def _refused(error: ck.KafkaError) -> Refused:
    code = error.code()
    return Refused(code if code > 0 else None, f"{error.name()}: {error.str()}")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ck.KafkaException as exception:
        raise _refused(exception.args[0]) from exception


class ConfluentConsumer(ConsumerDriver):
    """``confluent_kafka.Consumer``."""

    def __init__(self, driver: ConfluentDriver, group: str | None, options: dict[str, Any]) -> None:
        self._patience = driver.patience
        reset = options.get("auto_offset_reset", "earliest")
        configuration = _CONSUMER.translate({**options, "auto_offset_reset": _RESETS.get(reset, reset)})
        # It requires a group id even without a group; auto-commit is off, because there is no group to commit for.
        if group is None:
            configuration |= {"group.id": "nobody", "enable.auto.commit": False}
        else:
            configuration |= {"group.id": group, "enable.auto.commit": options.get("enable_auto_commit", False)}
        if "sticky" in options.get("partition_assignment_strategy", "").split(","):
            raise NotOffered("confluent-kafka has no assignor sticky, but cooperative-sticky only")
        if options.get("group_protocol") == "consumer":
            for name in ("heartbeat.interval.ms", "session.timeout.ms"):
                configuration.pop(name, None)
        small = min(int(configuration.get("fetch.max.bytes", 10_000_000)), 10_000_000)
        configuration |= {"bootstrap.servers": driver.bootstrap, "message.max.bytes": max(1000, small)}
        self._consumer = ck.Consumer({**configuration, "log_level": 0})

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe([f"^{pattern}$"])

    def subscribe_server_pattern(self, pattern: str) -> None:
        try:
            self._consumer.subscribe([f"^{pattern}"])
        except ck.KafkaException as exception:
            raise NotOffered("confluent-kafka refuses a pattern that is none itself") from exception

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        self._consumer.assign(
            [ck.TopicPartition(topic, p, ck.OFFSET_INVALID if at is None else at) for p, at in offsets.items()]
        )

    def poll(self) -> list[Record]:
        with _refusals():
            found = self._consumer.consume(1000, 0.1)
        for message in found:
            error = message.error()
            if error is not None:
                raise _refused(error)
        return [_record(message) for message in found]

    def assignment(self) -> set[Spot]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def position(self, spot: Spot) -> int:
        (found,) = self._consumer.position([ck.TopicPartition(*spot)])
        return int(found.offset)

    def seek(self, spot: Spot, offset: int) -> None:
        with _refusals():
            self._consumer.seek(ck.TopicPartition(*spot, offset))

    def seek_to_beginning(self, spot: Spot) -> None:
        self.seek(spot, ck.OFFSET_BEGINNING)

    def seek_to_end(self, spot: Spot) -> None:
        self.seek(spot, ck.OFFSET_END)

    def pause(self, spot: Spot) -> None:
        self._consumer.pause([ck.TopicPartition(*spot)])

    def resume(self, spot: Spot) -> None:
        self._consumer.resume([ck.TopicPartition(*spot)])

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        with _refusals():
            if offsets is None:
                answers = self._consumer.commit(asynchronous=False)
            else:
                asked = [ck.TopicPartition(*spot, offset, text) for spot, (offset, text) in offsets.items()]
                answers = self._consumer.commit(offsets=asked, asynchronous=False)
        for answer in answers:
            if answer.error is not None:
                raise _refused(answer.error)

    def committed(self, spot: Spot) -> int | None:
        with _refusals():
            (found,) = self._consumer.committed([ck.TopicPartition(*spot)], self._patience)
        if found.error is not None:
            raise _refused(found.error)
        return None if found.offset < 0 else int(found.offset)

    def beginning(self, spot: Spot) -> int:
        return self._watermarks(spot)[0]

    def end(self, spot: Spot) -> int:
        return self._watermarks(spot)[1]

    def _watermarks(self, spot: Spot) -> tuple[int, int]:
        low, high = self._once_known(
            lambda: self._consumer.get_watermark_offsets(ck.TopicPartition(*spot), self._patience)
        )
        return int(low), int(high)

    def _once_known(self, call: Callable[[], T]) -> T:
        """Repeat a call while the client's broker does not know a topic whose creation was acknowledged."""
        give_up_at = time.monotonic() + min(self._patience, _PROPAGATION_SECONDS)
        while True:
            try:
                with _refusals():
                    return call()
            except Refused as refusal:
                if "_UNKNOWN_PARTITION" not in str(refusal) or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.05)

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        (found,) = self._once_known(
            lambda: self._consumer.offsets_for_times([ck.TopicPartition(*spot, timestamp)], self._patience)
        )
        if found.error is not None:
            raise _refused(found.error)
        return None if found.offset < 0 else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


def _offset(offset: int | None) -> int:
    return -1 if offset is None else max(offset, -1)


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp,
        kind - 1,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


class ConfluentDriver(ClientDriver):
    """confluent-kafka's producer, consumer and admin client."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str, patience: float) -> None:
        super().__init__(bootstrap, patience)
        self._made: ck_admin.AdminClient | None = None
        self._consumers: list[ConfluentConsumer] = []

    @property
    def _admin(self) -> ck_admin.AdminClient:
        if self._made is None:
            timeout = int(self.patience * 1000)
            self._made = ck_admin.AdminClient(
                {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": timeout, "log_level": 0}
            )
        return self._made

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    def _result(self, future: Any) -> Any:
        with _refusals():
            return future.result(self.patience)

    def _code(self, future: Any) -> int:
        try:
            self._result(future)
        except Refused as refusal:
            if refusal.code is None:
                raise
            return refusal.code
        return 0

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        outcomes: dict[int, Delivered | Refused] = {}
        configuration = _PRODUCER.translate({"acks": "all", "linger_ms": 5, "enable_idempotence": False, **options})
        configuration |= {"bootstrap.servers": self.bootstrap, "message.max.bytes": 50_000_000, "log_level": 0}
        producer = ck.Producer(configuration)

        def note(index: int, error: ck.KafkaError | None, message: Any) -> None:
            if error is not None:
                outcomes[index] = _refused(error)
            else:
                outcomes[index] = Delivered(message.partition(), _offset(message.offset()), message.timestamp()[1])

        for index, message in enumerate(messages):
            more: dict[str, Any] = {}
            if message.partition is not None:
                more["partition"] = message.partition
            if message.timestamp is not None:
                more["timestamp"] = message.timestamp
            try:
                producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    on_delivery=lambda error, sent, index=index: note(index, error, sent),
                    **more,
                )
            except ck.KafkaException as exception:
                outcomes[index] = _refused(exception.args[0])
            producer.poll(0)
        left = producer.flush(self.patience)
        if left:
            producer.purge()
            raise TimeoutError(f"{left} records were not answered within {self.patience} s")
        return [outcomes[index] for index in range(len(messages))]

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        made = ConfluentConsumer(self, group, options)
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
        more: dict[str, Any] = {"replication_factor": replication}
        if assignment is not None:
            more = {"replica_assignment": [list(replicas) for replicas in assignment]}
        topics = [ck_admin.NewTopic(name, partitions, config=dict(configs or {}), **more) for name in names]
        futures = self._admin.create_topics(topics, validate_only=validate_only, request_timeout=self.patience)
        return {name: self._code(future) for name, future in futures.items()}

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        futures = self._admin.delete_topics(list(names), request_timeout=self.patience)
        return {name: self._code(future) for name, future in futures.items()}

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        more = {} if assignment is None else {"replica_assignment": [list(replicas) for replicas in assignment]}
        asked = ck_admin.NewPartitions(topic, count, **more)
        self._result(self._admin.create_partitions([asked], validate_only=validate_only)[topic])

    def topics(self) -> set[str]:
        with _refusals():
            return set(self._admin.list_topics(timeout=self.patience).topics)

    def describe_topic(self, name: str) -> Topic:
        found = self._result(self._admin.describe_topics(ck.TopicCollection([name]))[name])
        return Topic(
            found.is_internal,
            {
                p.id: Partition(p.leader.id, tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
                for p in found.partitions
            },
        )

    def describe_cluster(self) -> Cluster:
        found = self._result(self._admin.describe_cluster())
        return Cluster(found.cluster_id, found.controller.id, tuple(sorted(node.id for node in found.nodes)))

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        resource = ck_admin.ConfigResource(_KINDS[kind], name)
        found = self._result(self._admin.describe_configs([resource])[resource])
        return {
            key: Config(entry.value, int(entry.source), entry.is_read_only, entry.is_sensitive)
            for key, entry in found.items()
        }

    def incremental_alter(
        self, kind: str, name: str, changes: Mapping[str, tuple[str, str | None]], *, validate_only: bool = False
    ) -> None:
        entries = [
            ck_admin.ConfigEntry(
                key, value, incremental_operation=getattr(ck_admin.AlterConfigOpType, operation.upper())
            )
            for key, (operation, value) in changes.items()
        ]
        resource = ck_admin.ConfigResource(_KINDS[kind], name, incremental_configs=entries)
        self._result(self._admin.incremental_alter_configs([resource], validate_only=validate_only)[resource])

    def alter_configs(self, kind: str, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        resource = ck_admin.ConfigResource(_KINDS[kind], name, set_config=dict(configs))
        self._result(self._admin.alter_configs([resource], validate_only=validate_only)[resource])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = [ck.TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        futures = self._admin.delete_records(asked, request_timeout=self.patience)
        return {spot.partition: self._result(future).low_watermark for spot, future in futures.items()}

    def list_offsets(self, topic: str, specs: Mapping[int, str | int]) -> dict[int, tuple[int, int]]:
        asked = {
            ck.TopicPartition(topic, partition): ck_admin.OffsetSpec.for_timestamp(spec)
            if isinstance(spec, int)
            else getattr(ck_admin.OffsetSpec, spec)()
            for partition, spec in specs.items()
        }
        found = {spot.partition: self._result(future) for spot, future in self._admin.list_offsets(asked).items()}
        return {partition: (result.offset, result.timestamp) for partition, result in found.items()}

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        more: dict[str, Any] = {}
        if states is not None:
            more["states"] = {getattr(ck.ConsumerGroupState, state.upper()) for state in states}
        if types is not None:
            more["types"] = {getattr(ck.ConsumerGroupType, kind.upper()) for kind in types}
        found = self._result(self._admin.list_consumer_groups(request_timeout=self.patience, **more))
        if found.errors:
            raise _refused(found.errors[0].args[0])
        return {group.group_id for group in found.valid}

    def describe_group(self, group: str) -> Group:
        found = self._result(self._admin.describe_consumer_groups([group], request_timeout=self.patience)[group])
        return Group(
            _STATES.get(found.state.name, found.state.name),
            found.partition_assignor,
            tuple(
                Member(
                    member.member_id,
                    member.client_id,
                    member.host,
                    frozenset((p.topic, p.partition) for p in member.assignment.topic_partitions),
                )
                for member in found.members
            ),
        )

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        asked = [ck.ConsumerGroupTopicPartitions(group)]
        futures = self._admin.list_consumer_group_offsets(
            asked, require_stable=require_stable, request_timeout=self.patience
        )
        found = self._result(futures[group])
        for p in found.topic_partitions:
            if p.error is not None:
                raise _refused(p.error)
        return {(p.topic, p.partition): (p.offset, p.metadata or "") for p in found.topic_partitions}

    def alter_group_offsets(self, group: str, offsets: Mapping[Spot, int]) -> None:
        spots = [ck.TopicPartition(*spot, offset) for spot, offset in offsets.items()]
        asked = [ck.ConsumerGroupTopicPartitions(group, spots)]
        found = self._result(self._admin.alter_consumer_group_offsets(asked, request_timeout=self.patience)[group])
        for p in found.topic_partitions:
            if p.error is not None:
                raise _refused(p.error)

    def delete_group(self, group: str) -> None:
        self._result(self._admin.delete_consumer_groups([group], request_timeout=self.patience)[group])

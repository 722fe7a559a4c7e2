"""aiokafka, in an asyncio loop in its own thread, so that its background tasks continue between calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

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

T = TypeVar("T")

_PRODUCER: Final = Options(
    "aiokafka",
    {
        "acks": "acks",
        "batch_size": "max_batch_size",
        "compression_type": "compression_type",
        "delivery_timeout_ms": "request_timeout_ms",
        "enable_idempotence": "enable_idempotence",
        "linger_ms": "linger_ms",
    },
)
_CONSUMER: Final = Options(
    "aiokafka",
    {
        name: name
        for name in (
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
}
_KINDS: Final = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}


def _refused(error: BaseException) -> Refused:
    return Refused(getattr(error, "errno", None), f"{type(error).__name__}: {str(error)[:200]}")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except errors.KafkaError as error:
        raise _refused(error) from error


def _check(code: int, text: object = "") -> None:
    if code:
        raise Refused(code, str(text))


class AiokafkaConsumer(ConsumerDriver):
    """``aiokafka.AIOKafkaConsumer``."""

    def __init__(self, driver: AiokafkaDriver, group: str | None, options: dict[str, Any]) -> None:
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        strategies = options.pop("partition_assignment_strategy", None)
        translated = _CONSUMER.translate(options)
        if strategies is not None:
            missing = set(strategies.split(",")) - set(_ASSIGNORS)
            if missing:
                raise NotOffered(f"aiokafka has no assignor {', '.join(missing)}")
            translated["partition_assignment_strategy"] = [_ASSIGNORS[name] for name in strategies.split(",")]
        self._driver = driver
        self._closed = False

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=driver.bootstrap, group_id=group, **translated)
            await consumer.start()
            return consumer

        self._consumer = driver.run(start())

    def subscribe(self, topics: Sequence[str]) -> None:
        self._driver.call(self._consumer.subscribe, topics=list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._driver.call(self._consumer.subscribe, pattern=f"^{pattern}$")

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        self._driver.call(self._consumer.assign, [TopicPartition(topic, partition) for partition in offsets])
        for partition, offset in offsets.items():
            if offset is not None:
                self.seek((topic, partition), offset)

    def poll(self) -> list[Record]:
        found = self._driver.run(self._consumer.getmany(timeout_ms=100))
        return [_record(record) for records in found.values() for record in records]

    def assignment(self) -> set[Spot]:
        return {(p.topic, p.partition) for p in self._driver.call(self._consumer.assignment)}

    def position(self, spot: Spot) -> int:
        return int(self._driver.run(self._consumer.position(TopicPartition(*spot))))

    def seek(self, spot: Spot, offset: int) -> None:
        self._driver.call(self._consumer.seek, TopicPartition(*spot), offset)

    def seek_to_beginning(self, spot: Spot) -> None:
        self._driver.run(self._consumer.seek_to_beginning(TopicPartition(*spot)))

    def seek_to_end(self, spot: Spot) -> None:
        self._driver.run(self._consumer.seek_to_end(TopicPartition(*spot)))

    def pause(self, spot: Spot) -> None:
        self._driver.call(self._consumer.pause, TopicPartition(*spot))

    def resume(self, spot: Spot) -> None:
        self._driver.call(self._consumer.resume, TopicPartition(*spot))

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        asked = None if offsets is None else {TopicPartition(*spot): to for spot, to in offsets.items()}
        self._driver.run(self._consumer.commit(asked))

    def committed(self, spot: Spot) -> int | None:
        found: int | None = self._driver.run(self._consumer.committed(TopicPartition(*spot)))
        return found

    def beginning(self, spot: Spot) -> int:
        partition = TopicPartition(*spot)
        return int(self._driver.run(self._consumer.beginning_offsets([partition]))[partition])

    def end(self, spot: Spot) -> int:
        partition = TopicPartition(*spot)
        return int(self._driver.run(self._consumer.end_offsets([partition]))[partition])

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        partition = TopicPartition(*spot)
        found = self._driver.run(self._consumer.offsets_for_times({partition: timestamp}))[partition]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._driver.run(self._consumer.stop())


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


class AiokafkaDriver(ClientDriver):
    """aiokafka's producer, consumer and admin client."""

    name = "aiokafka"

    def __init__(self, bootstrap: str, patience: float) -> None:
        super().__init__(bootstrap, patience)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._made: AIOKafkaAdminClient | None = None
        self._consumers: list[AiokafkaConsumer] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client in its loop, for at most ``patience`` seconds."""
        with _refusals():
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, self.patience), self._loop).result()

    def call(self, function: Any, *arguments: Any, **more: Any) -> Any:
        """Call a plain function of the client in its loop."""

        async def called() -> Any:
            return function(*arguments, **more)

        return self.run(called())

    @property
    def _admin(self) -> AIOKafkaAdminClient:
        if self._made is None:

            async def start() -> AIOKafkaAdminClient:
                timeout = int(self.patience * 1000)
                admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=timeout)
                await admin.start()
                return admin

            self._made = self.run(start())
        return self._made

    def close(self) -> None:
        try:
            for consumer in self._consumers:
                consumer.close()
            if self._made is not None:
                self.run(self._made.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        options = {"acks": "all", "linger_ms": 5, "enable_idempotence": False, **options}
        if options.get("compression_type") == "none":
            options["compression_type"] = None
        translated = _PRODUCER.translate(options)
        if translated["acks"] != "all":
            translated.pop("enable_idempotence")

        if any(value is None for message in messages for _, value in message.headers):
            raise NotOffered("a header of aiokafka cannot be null")

        async def work() -> list[Delivered | Refused]:
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, max_request_size=50_000_000, **translated)
            await producer.start()
            outcomes: list[Delivered | Refused] = []
            try:
                sent: list[Any] = []
                for message in messages:
                    try:
                        sent.append(
                            await producer.send(
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
                for future in sent:
                    try:
                        found = future if isinstance(future, Refused) else await future
                    except errors.KafkaError as error:
                        outcomes.append(_refused(error))
                    else:
                        outcomes.append(found if isinstance(found, Refused) else _delivered(found))
            finally:
                await producer.stop()
            return outcomes

        return self.run(work())

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        made = AiokafkaConsumer(self, group, options)
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
        if partitions == replication == -1 and assignment is None:
            raise NotOffered("aiokafka insists on a number of partitions and replicas")
        replicas = None
        if assignment is not None:
            partitions = replication = -1
            replicas = dict(enumerate(assignment))
        topics = [NewTopic(name, partitions, replication, replicas, dict(configs or {})) for name in names]
        answer = self.run(self._admin.create_topics(topics, validate_only=validate_only))
        return {topic[0]: topic[1] for topic in answer.topic_errors}

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        answer = self.run(self._admin.delete_topics(list(names)))
        return {topic[0]: topic[1] for topic in answer.topic_error_codes}

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        asked = NewPartitions(count, None if assignment is None else [list(some) for some in assignment])
        self.run(self._admin.create_partitions({topic: asked}, validate_only=validate_only))

    def topics(self) -> set[str]:
        return set(self.run(self._admin.list_topics()))

    def describe_topic(self, name: str) -> Topic:
        (found,) = self.run(self._admin.describe_topics([name]))
        _check(found["error_code"], f"{name} was not described")
        return Topic(
            found["is_internal"],
            {
                p["partition"]: Partition(p["leader"], tuple(p["replicas"]), tuple(p["isr"]))
                for p in found["partitions"]
            },
        )

    def describe_cluster(self) -> Cluster:
        found = self.run(self._admin.describe_cluster())
        nodes = tuple(sorted(node["node_id"] for node in found["brokers"]))
        return Cluster(found.get("cluster_id"), found["controller_id"], nodes)

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        resource = ConfigResource(_KINDS[kind], name)
        (answer,) = self.run(self._admin.describe_configs([resource]))
        ((code, text, _, _, entries),) = answer.resources
        _check(code, text)
        return {
            key: Config(value, int(source), read_only, sensitive)
            for key, value, read_only, source, sensitive, *_ in entries
        }

    def alter_configs(self, kind: str, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        if validate_only or kind == "broker":
            raise NotOffered("aiokafka replaces configurations of topics only, and cannot only validate")
        (answer,) = self.run(self._admin.alter_configs([ConfigResource(_KINDS[kind], name, dict(configs))]))
        ((code, text, *_),) = answer.resources
        _check(code, text)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): RecordsToDelete(at) for partition, at in before.items()}
        found = self.run(self._admin.delete_records(asked))
        return {spot.partition: low for spot, low in found.items()}

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        if states is not None:
            raise NotOffered("aiokafka lists groups in all states only")
        if types is not None:
            raise NotOffered("aiokafka lists groups of all types only")
        return {group for group, *_ in self.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> Group:
        (answer,) = self.run(self._admin.describe_consumer_groups([group]))
        ((code, _, state, _, assignor, members, *_),) = answer.groups
        _check(code)
        return Group(state, assignor, tuple(_member(*member) for member in members))

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        if require_stable:
            raise NotOffered("aiokafka's administrator cannot ask for stable offsets")
        found = self.run(self._admin.list_consumer_group_offsets(group))
        return {(p.topic, p.partition): (at.offset, at.metadata) for p, at in found.items()}


def _delivered(found: Any) -> Delivered:
    if found is None:
        return Delivered(-1, -1, -1)
    return Delivered(found.partition, found.offset, -1 if found.timestamp is None else found.timestamp)


def _member(*fields: Any) -> Member:
    # Newer versions of the response have the instance id as their second field.
    member_id, client_id, host = (fields[0], *fields[-4:-2]) if len(fields) > 5 else fields[:3]
    assigned = fields[-1]
    spots: frozenset[Spot] = frozenset()
    if assigned:
        decoded = ConsumerProtocolMemberAssignment.decode(assigned)
        spots = frozenset((topic, number) for topic, numbers in decoded.assignment for number in numbers)
    return Member(member_id, client_id, host, spots)

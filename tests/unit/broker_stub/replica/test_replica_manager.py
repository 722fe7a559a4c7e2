"""The partitions of a broker; the test plays the followers."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from uuid import UUID

import pytest
import trio

from tests.unit.broker_stub.replica.logs import NODE, NOW_MS, batch
from triokafka import errors
from triokafka.broker_stub.coordinators.replicated_log import ReplicatedCoordinatorLog
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.page_cache import ColdReadError
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.reader import SlicedResult
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from triokafka.broker_stub.purgatory.delayed_operation import Expirer
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.replica.read_result import ReadOutcome
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.replica.replica_reader import FetchParameters
from triokafka.network.fetch_sessions.fetch_session import WantedPartition
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CONSUMER = FetchParameters(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=10**6, read_committed=False)
TIMED_OUT = errors.RequestTimedOutError.code


def topic(
    name: str,
    *,
    replicas: tuple[int, ...] = (NODE,),
    isr: tuple[int, ...] | None = None,
    leader: int = NODE,
    epoch: int = 0,
    topic_id: int = 0,
) -> TopicImage:
    """A topic of one partition."""
    state = PartitionImage(0, replicas, replicas if isr is None else isr, leader, epoch, epoch)
    return TopicImage(name, UUID(int=topic_id or 1 + ord(name[0])), {0: state})


class Bench:
    """A replica manager that gets images from the test."""

    def __init__(self) -> None:
        self.world = RealWorld()
        self.storage = MemoryStorage(crashable=False)
        self.world.storage = self.storage
        self.logs = LogManager(self.world, ["/data"])
        self.logs.start()
        self.rose: list[tuple[TopicPartition, int]] = []
        self.replicas = ReplicaManager(NODE, self.logs, self.world, listener=self)
        self._image = MetadataImage()

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        self.rose.append((topic_partition, offset))

    def reopened(self, change: LeadershipChange) -> None:
        pass

    def become(self, *topics: TopicImage, configs: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
        """Apply an image; return the changes of roles as text."""
        before = self._image
        self._image = MetadataImage(
            offset=before.offset + 1,
            topics={t.name: t for t in topics},
            topics_by_id={t.topic_id: t for t in topics},
            configs={(int(ConfigResourceType.TOPIC), name): values for name, values in (configs or {}).items()},
        )
        delta = MetadataDelta(before)
        delta._image = self._image
        delta._partitions = {t.topic_id: dict(t.partitions) for t in topics}
        delta._deleted = {i: t for i, t in before.topics_by_id.items() if i not in self._image.topics_by_id}
        delta.changed_configs = set(self._image.configs) | set(before.configs)
        changes = self.replicas.apply(delta, self._image)
        return [f"{change.topic_partition} {'leads' if change.leads else 'does not lead'}" for change in changes]

    def append(self, *keys: TopicPartition, acks: int = -1) -> dict[TopicPartition, AppendOutcome]:
        """Append one record to each."""
        return self.replicas.append({key: batch(b"v") for key in keys}, required_acks=acks)

    async def read(
        self, key: TopicPartition, offset: int, parameters: FetchParameters = CONSUMER
    ) -> tuple[ReadOutcome, int, bool]:
        """Read one partition."""
        outcomes, size, urgent = await self.replicas.read([(key, wanted(key, offset))], parameters)
        return outcomes[key], size, urgent

    async def follower_fetches(self, key: TopicPartition, offset: int, replica: int = 2) -> ReadOutcome:
        """A follower asks for an offset."""
        return (await self.read(key, offset, CONSUMER._replace(replica_id=replica)))[0]


def wanted(key: TopicPartition, offset: int) -> WantedPartition:
    """A request for one partition."""
    return WantedPartition(key.topic, key.partition, offset, 10**6)


def replace_wanted(request: WantedPartition, *, last_fetched_epoch: int) -> WantedPartition:
    """The same, for a reader that sends the epoch of its last record."""
    return request._replace(last_fetched_epoch=last_fetched_epoch)


@asynccontextmanager
async def expiring(bench: Bench) -> AsyncIterator[None]:
    """Run the timers of the purgatories."""
    async with trio.open_nursery() as nursery:
        for purgatory in (bench.replicas.produce_purgatory, bench.replicas.fetch_purgatory):
            nursery.start_soon(Expirer(purgatory, bench.world).run)
        yield
        nursery.cancel_scope.cancel()


async def test_acks_all_waits_for_every_in_sync_replica() -> None:
    """A follower that is not in sync is not waited for."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2, 3), isr=(NODE, 2)))
    outcomes = bench.append(A)
    operation = bench.replicas.delay_produce(outcomes, 10_000)
    assert operation is not None and not operation.completed
    await bench.follower_fetches(A, 1, replica=3)
    await bench.follower_fetches(A, 0)
    assert not operation.completed
    await bench.follower_fetches(A, 1)
    assert operation.completed
    assert (outcomes[A].error_code, outcomes[A].base_offset) == (0, 0)
    assert bench.rose == [(A, 1)]
    assert bench.replicas.produce_purgatory.delayed == 0


async def test_broker_0_is_a_follower_and_no_consumer() -> None:
    """It reads above the high watermark, and its fetches raise it."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 0)))
    bench.append(A)
    assert not len((await bench.read(A, 0))[0].records)
    assert len((await bench.follower_fetches(A, 0, replica=0)).records)
    await bench.follower_fetches(A, 1, replica=0)
    assert bench.rose == [(A, 1)]


async def test_follower_whose_fetch_is_refused_has_not_got_anything() -> None:
    """That is a fetch beyond the end of the log, or with another last record than the leader's."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2), epoch=3))
    bench.append(A)
    for offset in (2, 10**9, -1):
        assert (await bench.follower_fetches(A, offset)).error_code == errors.OffsetOutOfRangeError.code
    follower = CONSUMER._replace(replica_id=2)
    other = replace_wanted(wanted(A, 1), last_fetched_epoch=2)
    outcomes, _, _ = await bench.replicas.read([(A, other)], follower)
    assert outcomes[A].diverging_epoch is not None
    unknown = await bench.follower_fetches(A, 1, replica=7)
    assert (unknown.error_code, len(unknown.records)) == (errors.NotLeaderForPartitionError.code, 0)
    assert bench.rose == []
    await bench.follower_fetches(A, 1)
    assert bench.rose == [(A, 1)]


async def test_follower_is_alive_when_its_fetch_arrives_and_not_when_it_is_answered() -> None:
    """A broker may die while its fetch waits: the second read after the wait does not show that it is alive."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2)))
    bench.append(A)
    parameters = CONSUMER._replace(replica_id=2)
    partition = bench.replicas.find("a", 0)
    assert partition is not None
    arrived = partition.followers[2].fetched_at
    for offset in (0, 1):
        outcomes, size, _ = await bench.replicas.read([(A, wanted(A, offset))], parameters, has_waited=True)
        assert (outcomes[A].error_code, bool(size)) == (0, offset == 0)
    assert (partition.followers[2].fetched_at, partition.followers[2].log_end_offset) == (arrived, -1)
    await bench.follower_fetches(A, 1)
    assert partition.followers[2].fetched_at > arrived and bench.rose == [(A, 1)]


async def test_produce_to_this_broker_alone_is_not_parked() -> None:
    """The same holds for a request that failed for all its partitions."""
    bench = Bench()
    bench.become(topic("a"))
    assert bench.replicas.delay_produce(bench.append(A), 10_000) is None
    assert bench.replicas.delay_produce(bench.append(B), 10_000) is None
    assert bench.replicas.produce_purgatory.watched == 0


async def test_timeout_distinguishes_replicated_partitions_from_others(autojump_clock: object) -> None:
    """The result is mixed; the records stay in the log."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2)), topic("b", replicas=(NODE, 2)))
    async with expiring(bench):
        outcomes = bench.append(A, B)
        operation = bench.replicas.delay_produce(outcomes, 1_000)
        assert operation is not None
        await bench.follower_fetches(A, 1)
        await operation.wait()
    assert [outcomes[key].error_code for key in (A, B)] == [0, TIMED_OUT]
    assert len((await bench.follower_fetches(B, 0)).records)


async def test_lost_leadership_answers_a_parked_produce_at_once() -> None:
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2)))
    outcomes = bench.append(A)
    operation = bench.replicas.delay_produce(outcomes, 10_000)
    assert bench.become(topic("a", replicas=(NODE, 2), leader=2, epoch=1)) == ["a-0 does not lead"]
    assert operation is not None and operation.completed
    assert outcomes[A].error_code == errors.NotLeaderForPartitionError.code


async def test_nothing_is_committed_on_fewer_replicas_than_the_topic_requires() -> None:
    """The high watermark waits until enough replicas are in sync again (KIP-966)."""
    bench = Bench()
    config = {"a": {"min.insync.replicas": "2"}}
    bench.become(topic("a", replicas=(NODE, 2)), configs=config)
    outcomes = bench.append(A)
    operation = bench.replicas.delay_produce(outcomes, 10_000)
    bench.become(topic("a", replicas=(NODE, 2), isr=(NODE,)), configs=config)
    assert operation is not None and not operation.completed
    assert bench.replicas.partition(A).high_watermark == 0
    assert bench.append(A)[A].error_code == errors.NotEnoughReplicasError.code
    bench.become(topic("a", replicas=(NODE, 2)), configs=config)
    await bench.follower_fetches(A, 1)
    assert operation.completed and not outcomes[A].error_code


def produce(bench: Bench, sequence: int, *, producer_id: int = 7) -> int:
    """Append one record of an idempotent producer; the error code."""
    data = encode_batch([(NOW_MS, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return bench.replicas.append({A: bytearray(data)}, required_acks=1)[A].error_code


@pytest.mark.parametrize("leader", [None, 2])
async def test_batches_wait_for_one_that_was_refused_before_this_broker_knew_that_it_leads(leader: int | None) -> None:
    """The client had newer metadata. A producer that is new to the partition could begin with any batch."""
    bench = Bench()
    if leader is not None:
        bench.become(topic("a", replicas=(NODE, 2), leader=leader))
    expected = errors.UnknownTopicOrPartitionError if leader is None else errors.NotLeaderForPartitionError
    assert produce(bench, 0) == expected.code
    bench.become(topic("a", epoch=1))
    assert [produce(bench, sequence) for sequence in (1, 2)] == [errors.NotEnoughReplicasError.code] * 2
    assert [produce(bench, sequence) for sequence in (0, 1, 2)] == [0, 0, 0]
    assert produce(bench, 5, producer_id=8) == 0


async def test_batches_do_not_wait_for_a_refused_one_that_another_leader_took() -> None:
    bench = Bench()
    bench.become(topic("a", epoch=1))
    assert produce(bench, 0) == 0
    bench.become(topic("a", replicas=(NODE, 2), leader=2, epoch=2))
    assert produce(bench, 1) == errors.NotLeaderForPartitionError.code
    log = bench.replicas.partition(A).log
    copy = encode_batch([(NOW_MS, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=1, base_offset=1)
    log.append_as_follower(copy)
    bench.become(topic("a", replicas=(NODE, 2), epoch=3))
    assert produce(bench, 2) == 0


async def test_append_answers_a_waiting_follower_and_its_next_fetch_a_waiting_consumer() -> None:
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2)))
    consumer, follower = (
        bench.replicas.delay_fetch([(A, wanted(A, 0))], CONSUMER._replace(replica_id=replica, max_wait_ms=10_000))
        for replica in (-1, 2)
    )
    assert consumer is not None and follower is not None
    bench.append(A)
    assert follower.completed and not consumer.completed
    assert not len((await bench.read(A, 0))[0].records)
    assert len((await bench.follower_fetches(A, 0)).records)
    assert not consumer.completed
    await bench.follower_fetches(A, 1)
    assert consumer.completed
    assert len((await bench.read(A, 0))[0].records)


async def test_failed_partition_completes_a_waiting_fetch() -> None:
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2)), topic("b"))
    operation = bench.replicas.delay_fetch(
        [(A, wanted(A, 0)), (B, wanted(B, 0))], CONSUMER._replace(max_wait_ms=10_000, min_bytes=10**6)
    )
    bench.become(topic("a", replicas=(NODE, 2), leader=2, epoch=1), topic("b"))
    assert operation is not None and operation.completed
    outcome, _, urgent = await bench.read(A, 0)
    assert (outcome.error_code, urgent) == (errors.NotLeaderForPartitionError.code, True)
    assert outcome.leader_hint == (2, 1)


async def test_fetch_does_not_wait_for_more_than_the_segment_has_in_which_it_begins() -> None:
    """An answer has records of one segment of a partition, so waiting would not add any."""
    bench = Bench()
    bench.become(topic("a"))
    bench.append(A)
    parameters = CONSUMER._replace(max_wait_ms=10_000, min_bytes=10**6)
    operation = bench.replicas.delay_fetch([(A, wanted(A, 0))], parameters)
    assert operation is not None
    bench.replicas.partition(A).log.roll(now_ms=NOW_MS)
    at_the_end = bench.replicas.delay_fetch([(A, wanted(A, 1))], parameters)
    bench.append(A)
    assert operation.completed
    assert at_the_end is not None and not at_the_end.completed  # it begins in the new segment


async def test_diverging_log_completes_a_followers_fetch_at_once() -> None:
    """(KIP-595)."""
    bench = Bench()
    bench.become(topic("a", replicas=(NODE, 2), epoch=3))
    bench.append(A)
    at_the_end = replace_wanted(wanted(A, 1), last_fetched_epoch=3)
    follower = CONSUMER._replace(replica_id=2, max_wait_ms=10_000, min_bytes=1)
    operation = bench.replicas.delay_fetch([(A, at_the_end)], follower)
    assert operation is not None and not operation.completed
    ahead = bench.replicas.delay_fetch([(A, replace_wanted(at_the_end, last_fetched_epoch=2))], follower)
    assert ahead is None


async def test_reader_of_the_first_epoch_does_not_wait_behind_its_end() -> None:
    bench = Bench()
    bench.become(topic("a"))
    bench.append(A)
    bench.become(topic("a", epoch=1))
    bench.append(A)
    parameters = CONSUMER._replace(max_wait_ms=10_000)
    assert bench.replicas.delay_fetch([(A, replace_wanted(wanted(A, 2), last_fetched_epoch=0))], parameters) is None
    assert bench.replicas.delay_fetch([(A, replace_wanted(wanted(A, 2), last_fetched_epoch=1))], parameters)


async def test_fetch_that_waits_behind_a_log_that_was_cut_is_answered() -> None:
    """Otherwise it would wait for offsets that are out of range."""
    bench = Bench()
    bench.become(topic("a"))
    for _ in range(3):
        bench.append(A)
    operation = bench.replicas.delay_fetch([(A, wanted(A, 3))], CONSUMER._replace(max_wait_ms=10_000))
    assert operation is not None
    bench.replicas.fetch_purgatory.check_and_complete(A)
    assert not operation.completed
    bench.replicas.partition(A).log.truncate_to(1, now_ms=NOW_MS)
    bench.replicas.fetch_purgatory.check_and_complete(A)
    assert operation.completed
    assert (await bench.read(A, 3))[0].error_code == errors.OffsetOutOfRangeError.code


async def test_waiting_fetch_is_answered_when_the_disk_of_its_partition_fails() -> None:
    bench = Bench()
    bench.become(topic("a"))
    operation = bench.replicas.delay_fetch([(A, wanted(A, 0))], CONSUMER._replace(max_wait_ms=10_000))
    assert operation is not None
    bench.replicas.logs_offline([A], "the disk is broken")
    assert operation.completed
    assert (await bench.read(A, 0))[0].error_code == errors.KafkaStorageError.code


async def test_deleted_records_answer_a_fetch_that_waits_for_them() -> None:
    """Its offset is out of range now."""
    bench = Bench()
    bench.become(topic("a"))
    for _ in range(3):
        bench.append(A)
    operation = bench.replicas.delay_fetch([(A, wanted(A, 1))], CONSUMER._replace(max_wait_ms=10_000, min_bytes=10**6))
    assert operation is not None
    bench.replicas.delete_records_before(A, 1)
    assert not operation.completed
    bench.replicas.delete_records_before(A, 2)
    assert operation.completed


async def test_thread_reads_uncached_index_pages_of_all_partitions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the partitions are read again; if the pages did not stay in memory, the event loop waits for the disk."""
    bench = Bench()
    bench.become(topic("a"), topic("b"))
    bench.append(A)
    bench.append(B)
    warmed: list[TopicPartition] = []
    pages_stay = True

    def read_to_send(log: PartitionLog, offset: int, max_bytes: int, **options: object) -> SlicedResult:
        if not pages_stay or log.topic_partition not in warmed:
            raise ColdReadError(lambda: warmed.append(log.topic_partition))
        return SlicedResult(log.read(offset, max_bytes).records)

    for key in (A, B):
        log = bench.replicas.partition(key).log
        monkeypatch.setattr(log, "read_to_send", partial(read_to_send, log))
    waits: list[int] = []
    outcomes, size, _ = await bench.replicas.read(
        [(A, wanted(A, 0)), (B, wanted(B, 0))],
        CONSUMER._replace(max_bytes=10**7),
        before_waiting=lambda: waits.append(len(warmed)),
    )
    assert (warmed, waits) == ([A, B], [0])
    assert size == sum(len(outcome.records) for outcome in outcomes.values()) > 0
    pages_stay = False
    outcome, _, _ = await bench.read(A, 0)
    assert len(outcome.records)


async def test_fetch_that_waits_twice_for_the_same_time_is_answered_both_times(autojump_clock: object) -> None:
    bench = Bench()
    bench.become(topic("a"))
    async with expiring(bench):
        for _ in range(3):
            start = trio.current_time()
            operation = bench.replicas.delay_fetch([(A, wanted(A, 0))], CONSUMER._replace(max_wait_ms=500))
            assert operation is not None
            await operation.wait()
            assert 0.49 <= trio.current_time() - start <= 0.51


async def test_recreated_topic_starts_empty() -> None:
    """Deletion and creation may come in one change."""
    bench = Bench()
    bench.become(topic("a", topic_id=1))
    bench.append(A)
    changes = bench.become(topic("a", topic_id=2, epoch=0))
    assert changes == ["a-0 does not lead", "a-0 leads"]
    assert bench.replicas.partition(A).log.log_end_offset == 0
    assert bench.append(A)[A].base_offset == 0


@pytest.mark.parametrize("topic_id", [0, 9])
async def test_log_of_a_partition_that_moved_while_the_broker_was_down_is_put_aside(
    topic_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No later change of the metadata would delete it. The same holds for a topic that was recreated elsewhere."""
    bench = Bench()
    bench.become(topic("a"), topic("b", replicas=(NODE, 2)))
    bench.append(A)
    again = ReplicaManager(NODE, bench.logs, bench.world)
    moved = topic("a", replicas=(2, 3), leader=2, topic_id=topic_id)
    image = MetadataImage(offset=9, topics={"a": moved, "b": bench._image.topics["b"]})
    again.apply(MetadataDelta.from_nothing(image), image)
    assert list(bench.logs.all()) == [B]
    (folder,) = [name for name in bench.storage.list_dir("/data") if name.startswith("a-0")]
    assert folder.endswith("-stray")
    assert "/data/a-0 is a partition of the brokers [2, 3] now" in caplog.text


async def test_leader_of_a_coordinators_partition_gives_it_to_another_replica_when_it_cannot_read_it() -> None:
    """At most once a minute, and not while no other replica is in sync."""
    bench, resignations = Bench(), count()
    replicas = ReplicaManager(NODE, bench.logs, bench.world, resign=lambda: next(resignations) >= 0)
    groups = topic("__consumer_offsets", replicas=(NODE, 2))
    follower = BrokerImage(2, 1, UUID(int=2), fenced=True)
    image = MetadataImage(offset=1, topics={groups.name: groups}, topics_by_id={groups.topic_id: groups}, brokers={})
    replicas.apply(MetadataDelta.from_nothing(image), image)
    key = TopicPartition("__consumer_offsets", 0)
    replicas.append_internal(key, batch(b"v"))
    file = f"/data/__consumer_offsets-0/{0:020d}.log"
    last = len(bench.storage.read_file(file)) - 1
    bench.storage.open(file).write_at(last, bytes([bench.storage.read_file(file)[last] ^ 1]))
    log = ReplicatedCoordinatorLog("__consumer_offsets", replicas)
    for fenced, times in ((True, 0), (False, 1), (False, 1)):
        known = image._replace(brokers={2: follower._replace(fenced=fenced)})
        replicas.apply(MetadataDelta.from_nothing(known), known)
        with pytest.raises(errors.CorruptRecordError, match="__consumer_offsets-0 at offset 0"):
            list(log.read_all(0))
        assert repr(resignations) == f"count({times})"


async def test_deleted_partition_is_unknown() -> None:
    bench = Bench()
    bench.become(topic("a"), topic("b"))
    bench.become(topic("b"))
    assert bench.append(A)[A].error_code == errors.UnknownTopicOrPartitionError.code
    assert bench.append(B)[B].error_code == 0
    assert bench.logs.get(A) is None


async def test_log_that_cannot_be_made_takes_only_its_partition_offline(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.storage.inject(DiskFault("open", "/data/a-0/*", errno.EIO))
    bench.become(topic("a"), topic("b"))
    assert bench.append(A)[A].error_code == errors.KafkaStorageError.code
    assert (await bench.read(A, 0))[0].error_code == errors.KafkaStorageError.code
    assert bench.append(B)[B].error_code == 0
    assert "offline" in caplog.text


async def test_full_disk_fails_the_append_and_nothing_else() -> None:
    bench = Bench()
    bench.become(topic("a"))
    bench.append(A)
    bench.storage.capacity = 0
    assert bench.append(A)[A].error_code == errors.KafkaStorageError.code
    assert len((await bench.read(A, 0))[0].records)
    bench.storage.capacity = None
    assert bench.append(A)[A].base_offset == 1


async def test_changed_configuration_reaches_the_log() -> None:
    """Also when a topic loses its own configuration."""
    bench = Bench()
    bench.become(topic("a"), configs={"a": {"retention.ms": "7"}})
    assert bench.replicas.partition(A).log.config.retention_ms == 7
    bench.become(topic("a"))
    assert bench.replicas.partition(A).log.config.retention_ms == bench.logs.defaults.retention_ms


async def test_high_watermark_is_restored_from_its_checkpoint() -> None:
    """The partition has a follower that has not fetched yet."""
    bench = Bench()
    state = topic("a", replicas=(NODE, 2))
    bench.become(state)
    bench.append(A)
    await bench.follower_fetches(A, 1)
    bench.append(A)
    bench.logs.checkpoint_high_watermarks(bench.replicas.high_watermarks())
    again = ReplicaManager(NODE, bench.logs, bench.world)
    delta = MetadataDelta.from_nothing(bench._image)
    again.apply(delta, bench._image)
    assert again.partition(A).high_watermark == 1

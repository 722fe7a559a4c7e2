"""Damage on one node of a cluster of three, in every kind of file, and its consequences for the cluster.

Three simulated nodes store records, transactions and committed offsets; then all of them stop, node 3 cleanly or by a
kill. Each case damages one file of node 3. The other two start before it, or all three start together; in the second
case the damaged replica may lead. The outcome is one of:

- *recovered*: no record, offset or topic is missing, and the replicas have the same bytes;
- *found when read*: clients get all data from the other nodes; a reader of the damaged replica gets an error, because a
  checksum does not match. As in Kafka, a node that was stopped cleanly does not read its segments when it starts;
- *beyond the checksum*: only the offset or the leader epoch of a batch is changed (see `tests.hostile.damage`);
- *refused*: node 3 does not start, and names the file or its folder; the rest of the cluster has all data;
- *lost with a message*: data are missing, and a WARNING or ERROR of a node names the partition or the file;
- *silent*: data are missing without a message, or the cluster does not come back. This is always a failure.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import trio

import triokafka
from tests.hostile.damage import Case, Files, Outcome, _files, _only_offsets_differ, _warnings, _write, apply
from tests.hostile.table import Row
from tests.support.simulated_cluster import DATA, SESSION_SECONDS, SimulatedCluster
from triokafka.errors import CorruptRecordError, KafkaError
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

TOPICS: Final = {"orders": 1, "paid": 1}
GROUP: Final = "readers"
ALL: Final = {**TOPICS, "__consumer_offsets": 1, "__transaction_state": 1}
DAMAGED: Final = 3
KINDS: Final = ("bit flipped in the middle", "removed", "cut in half", "emptied")
_SETTINGS: Final[dict[str, Any]] = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "metadata_log_max_record_bytes_between_snapshots": 2_000,
    "log_index_interval_bytes": 100,
}
_NUMBERS: Final = re.compile(r"\d+")
_WITHIN: Final = 120.0


class Seen(NamedTuple):
    """The data that a client reads: the committed records of the topics, and the offsets of the group."""

    records: dict[str, list[tuple[int, bytes | None]]]
    committed: dict[str, int]


class Before(NamedTuple):
    """The files of each node, and the data that clients read, before the damage."""

    files: dict[str, Files]
    seen: Seen


async def _fill(simulation: Simulation, clean: bool) -> Before:
    cluster = SimulatedCluster(simulation, **_SETTINGS)
    cluster.start()
    await cluster.create_topics(TOPICS, **{"internal.segment.bytes": "2000"})
    where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
    async with triokafka.Producer(world=cluster.client_world(), linger_ms=0, **where) as producer:
        for number in range(60):
            await (await producer.send("orders", b"%d" % number + b"." * 60, partition=0))
    async with triokafka.Producer(
        world=cluster.client_world(), linger_ms=0, transactional_id="payer", **where
    ) as producer:
        for number in range(6):
            with_error = number % 3 == 2
            try:
                async with producer.transaction():
                    for topic in TOPICS:
                        await producer.send(topic, b"paid %d" % number, partition=0)
                    if with_error:
                        raise ValueError
            except ValueError:
                pass
    async with triokafka.Consumer(world=cluster.client_world(), group_id=GROUP, **where) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(17)})
    await cluster.wait_in_sync(ALL)
    seen = await _look(cluster)
    for node in reversed(cluster.nodes):
        if clean or node.number != DAMAGED:
            await node.stop()
        else:
            # After two unclean stops only the last replica of KIP-966 may lead: the other two would not start without
            # it.
            await node.kill()
            await trio.sleep(2 * SESSION_SECONDS)
    return Before({node.name: dict(_files(node.host.disk, DATA)) for node in cluster.nodes}, seen)


async def _look(cluster: SimulatedCluster) -> Seen:
    where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
    records: dict[str, list[tuple[int, bytes | None]]] = {}
    async with triokafka.Consumer(
        world=cluster.client_world(),
        group_id=GROUP,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **where,
    ) as consumer:
        partitions = [TopicPartition(topic, 0) for topic in TOPICS]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {partition: [] for partition in partitions}
        while any([await consumer.position(one) < ends[one] for one in partitions]):
            for partition, polled in (await consumer.poll(timeout_ms=200)).items():
                found[partition] += [(record.offset, record.value) for record in polled]
        records = {partition.topic: entries for partition, entries in found.items()}
        committed = await consumer.committed(TopicPartition("orders", 0))
    return Seen(records, {"orders": -1 if committed is None else _offset_of(committed)})


def _offset_of(found: Any) -> int:
    return found if isinstance(found, int) else int(found.offset)


def prepare(*, clean: bool) -> Before:
    """Fill three nodes; return their files and the data that clients read."""
    return run_simulation(lambda simulation: _fill(simulation, clean), 1)


def cases(before: Before, *, clean: bool, kinds: Iterable[str] = KINDS) -> Iterator[Case]:
    """Yield each kind of damage for each kind of file of the damaged node: for the first and the last file of
    a kind.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for path in sorted(before.files[f"node-{DAMAGED}"]):
        if not path.endswith("/.lock"):
            alike[_NUMBERS.sub("#", path)].append(path)
    for group in alike.values():
        for path in dict.fromkeys((group[0], group[-1])):
            for kind in kinds:
                yield Case(path, kind, clean)


async def _run(simulation: Simulation, case: Case, before: Before, together: bool) -> Outcome | None:
    cluster = SimulatedCluster(simulation, **_SETTINGS)
    for node in cluster.nodes:
        for path, content in before.files[node.name].items():
            _write(node.host.disk, path, content)
    damaged = cluster.nodes[DAMAGED - 1]
    if not apply(case, damaged.host.disk):
        return None
    refusal: list[str] = []

    async def guarded(world: SimulatedWorld) -> None:
        try:
            await damaged._serve(world)
        except* (KafkaError, OSError) as errors:
            refusal.extend(_texts(errors))

    with _warnings() as messages:
        try:
            with trio.fail_after(_WITHIN):
                for node in cluster.nodes[:2]:
                    node.start()
                if not together:
                    await _leaders(cluster)
                damaged.host.start(guarded)
                while not refusal:
                    if damaged.node is not None and await _in_sync(cluster):
                        break
                    await trio.sleep(0.5)
                await _leaders(cluster)
                seen = await _look(cluster)
        except trio.TooSlowError:
            return Outcome("silent", f"not back within {_WITHIN:.0f} s: {refusal or messages[-3:]}")
    if refusal:
        name, folder = case.path.rpartition("/")[2], case.path.rpartition("/")[0]
        if seen != before.seen:
            return Outcome(
                "silent", f"refused ({refusal}), but the others lack something: {_difference(before.seen, seen)}"
            )
        if not any(name in text or folder in text for text in refusal):
            return Outcome("silent", f"no file in {refusal}")
        return Outcome("refused", refusal[0])
    missing = _difference(before.seen, seen)
    if not missing:
        for partition in (TopicPartition(topic, 0) for topic in ALL):
            good = cluster.nodes[0].log_bytes(partition)
            assert cluster.nodes[1].log_bytes(partition) == good, f"the replicas of {partition} differ"
            try:
                if damaged.log_bytes(partition) == good:
                    continue
            except CorruptRecordError as error:
                kind = "lost with a message" if _is_reported(case, messages) else "found when read"
                return Outcome(kind, f"{partition}: {error}")
            if _only_offsets_differ(case, before.files[damaged.name]):
                return Outcome("beyond the checksum", str(partition))
            missing = f"the replica of {partition} differs"
    if not missing:
        return Outcome("recovered", "; ".join(messages[:2]))
    return Outcome("lost with a message" if _is_reported(case, messages) else "silent", missing)


def _is_reported(case: Case, messages: Iterable[str]) -> bool:
    return any(case.path in text or case.path.split("/")[2] in text for text in messages)


def _texts(errors: BaseExceptionGroup[Any]) -> Iterator[str]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _texts(error)
        else:
            yield str(error)


def _difference(before: Seen, after: Seen) -> str:
    parts = []
    for topic, entries in before.records.items():
        now = dict(after.records[topic])
        lost = [offset for offset, value in entries if now.get(offset) != value]
        if lost:
            parts.append(f"{topic}: {len(lost)} records lost, the first at {lost[0]}")
        elif len(now) != len(entries):
            parts.append(f"{topic}: {len(now) - len(entries)} records more")
    if before.committed != after.committed:
        parts.append(f"committed offsets {after.committed}, not {before.committed}")
    return "; ".join(parts)


async def _leaders(cluster: SimulatedCluster) -> None:
    """Wait until every partition has a leader."""
    while not await _partitions(cluster, lambda one: bool(one.leader)):
        await trio.sleep(0.5)


async def _in_sync(cluster: SimulatedCluster) -> bool:
    return await _partitions(cluster, lambda one: bool(one.leader) and set(one.isr) == set(one.replicas))


async def _partitions(cluster: SimulatedCluster, fits: Any) -> bool:
    try:
        async with cluster.admin() as admin:
            found = await admin.describe_topics(list(ALL))
    except KafkaError:
        return False
    return all(fits(one) for name in ALL for one in found[name].partitions)


def run(case: Case, before: Before, *, together: bool, seed: int = 2) -> Outcome | None:
    """Damage the file, start the cluster, and determine the outcome. None if the damage does not fit the file."""
    return run_simulation(lambda simulation: _run(simulation, case, before, together), seed)


def measure(kinds: Iterable[str] = KINDS) -> Iterator[Row]:
    """Run every case: one row for each outcome that is silent or a loss, and one for all of them."""
    logging.getLogger("triokafka").setLevel(logging.WARNING)
    counts: Counter[str] = Counter()
    for clean in (True, False):
        before = prepare(clean=clean)
        for case in cases(before, clean=clean, kinds=kinds):
            for together in (False, True):
                try:
                    outcome = run(case, before, together=together)
                except Exception as error:  # any failure is the outcome of the case
                    outcome = Outcome("silent", f"fails: {error!r}")
                if outcome is None:
                    continue
                counts[outcome.kind] += 1
                if outcome.kind in ("silent", "lost with a message"):
                    name = f"{case.name}, {'all start together' if together else 'the others lead'}"
                    yield Row(
                        "cluster damage",
                        name,
                        f"{outcome.kind}: {outcome.detail}",
                        "a message",
                        outcome.kind != "silent",
                    )
    figure = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    yield Row("cluster damage", "all", figure, "none silent", not counts["silent"])

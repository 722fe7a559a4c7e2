"""Damage in every kind of file of a broker, after a clean stop and after a kill, and its consequences.

A broker fills a data directory: topics with several segments, transactions, deleted records and a configuration, a
compacted topic, one whose name starts with a dot, committed offsets, a snapshot of the metadata. Each case damages one
file of a copy and starts a broker with it. An oracle compares records, topics, configurations and committed offsets
before and after. The outcome of a case is one of:

- *recovered*: no data are missing;
- *refused*: the broker does not start, and names the file, or its folder;
- *lost with a message*: data are missing, and a WARNING or ERROR names the partition or the file; or a reader gets an
  error instead of the records;
- *beyond the checksum*: only the offset of a batch is changed, which no checksum of Kafka's format covers. The broker
  notices it if offsets do not ascend where a read starts, or leave their segment, but not everywhere;
- *silent*: records or metadata are missing without a message. This is always a failure.
"""

from __future__ import annotations

import errno
import logging
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import trio

from tests.hostile.table import Row
from tests.unit.broker_stub.api.node import NOW_MS, Node, batch, marker, memory_world, running_node
from triokafka.errors import CorruptRecordError, KafkaError
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import Storage
from triokafka.world.memory import DiskFault, MemoryStorage

DATA: Final = "/data"
TOPICS: Final = ("plain", "compacted", ".dot")
GROUP: Final = "readers"
COUNT: Final = 40
_OFFSETS: Final = "__consumer_offsets"
_METADATA: Final = "__cluster_metadata-0"
_NOT_ITS: Final = re.compile(r"\d+")

Files = dict[str, bytes]


class State(NamedTuple):
    """The content of a broker as clients read it. ``records`` and ``ends`` are by partition."""

    records: dict[str, dict[int, bytes | None]]
    ends: dict[str, int]
    configs: dict[str, dict[str, str]]
    committed: dict[str, int]


class Outcome(NamedTuple):
    """The outcome of a case: its kind, and the unreported losses if that is ``silent``."""

    kind: str
    detail: str = ""


class Case(NamedTuple):
    """One file, its damage, and how the broker had stopped."""

    path: str
    kind: str
    clean: bool

    @property
    def name(self) -> str:
        """Return a description of the case."""
        return f"{self.kind}: {self.path.removeprefix(DATA + '/')}, {'clean' if self.clean else 'unclean'} stop"


# The damage


def _flip(at: Callable[[bytes], int]) -> Callable[[bytes], bytes | None]:
    def damage(content: bytes) -> bytes | None:
        position = at(content)
        if not 0 <= position < len(content):
            return None
        return content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]

    return damage


def _in_batch(part: float, at: int) -> Callable[[bytes], int]:
    """Return the position of byte ``at`` of the batch in that part of the file."""

    def position(content: bytes) -> int:
        try:
            places = [info.position for info in iter_batches(content)]
        except CorruptRecordError:
            return -1
        return places[min(int(len(places) * part), len(places) - 1)] + at if places else -1

    return position


CONTENT: Final[dict[str, Callable[[bytes], bytes | None]]] = {
    "bit flipped at the head": _flip(lambda content: 0),
    "bit flipped in the middle": _flip(lambda content: len(content) // 2),
    "bit flipped at the end": _flip(lambda content: len(content) - 1),
    "cut in half": lambda content: content[: len(content) // 2] if content else None,
    "cut by one byte": lambda content: content[:-1] if content else None,
    "emptied": lambda content: b"" if content else None,
    "zeros in the middle": lambda content: (
        content[: len(content) // 3] + bytes(len(content) // 3) + content[len(content) // 3 * 2 :] if content else None
    ),
    "all zeros": lambda content: bytes(len(content)) if content else None,
    "garbage at the end": lambda content: content + random.Random(1).randbytes(70),
    "zeros at the end": lambda content: content + bytes(100),
    "content twice": lambda content: content + content if content else None,
    "garbage": lambda content: random.Random(2).randbytes(len(content) or 30),
}
"""Kinds of damage for the bytes of any file."""

IN_BATCHES: Final[dict[str, Callable[[bytes], bytes | None]]] = {
    f"bit flipped in the {field} of the {which} batch": _flip(_in_batch(part, at))
    for field, at in (("offset", 7), ("length", 9), ("length's low byte", 11), ("checksum", 18), ("records", 63))
    for which, part in (("first", 0.0), ("middle", 0.5), ("last", 1.0))
}
"""Kinds of damage for batches of ``.log`` files and metadata snapshots."""

NAMES: Final = (
    "removed",
    "a directory in its place",
    "unreadable",
    "renamed to another offset",
    "copied to another offset",
)


def apply(case: Case, disk: MemoryStorage) -> bool:
    """Damage a file; return False if this damage is impossible for it."""
    path, kind = case.path, case.kind
    content = disk.read_file(path)
    change = CONTENT.get(kind) or IN_BATCHES.get(kind)
    if change is not None:
        changed = change(content)
        if changed is None or changed == content:
            return False
        _write(disk, path, changed)
    elif kind == "removed":
        disk.remove(path)
    elif kind == "a directory in its place":
        disk.remove(path)
        disk.make_dirs(path)
    elif kind == "unreadable":
        for operation in ("open", "read"):
            disk.inject(DiskFault(operation, path, errno.EIO))
    else:
        folder, _, name = path.rpartition("/")
        if not name[:20].isdigit():
            return False
        target = f"{folder}/{int(name[:20]) + 7:020d}{name[20:]}"
        if disk.exists(target):
            return False
        _write(disk, target, content)
        if kind.startswith("renamed"):
            disk.remove(path)
    return True


def _write(disk: Storage, path: str, content: bytes) -> None:
    disk.make_dirs(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def cases(paths: Iterable[str], *, clean: bool) -> Iterator[Case]:
    """Yield every kind of damage to every kind of file: for the first and the last of several alike, such as
    indexes.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        alike[_NOT_ITS.sub("#", path)].append(path)
    chosen = [path for group in alike.values() for path in dict.fromkeys((group[0], group[len(group) // 2], group[-1]))]
    for path in chosen:
        if path.endswith("/.lock"):
            continue
        for kind in (*CONTENT, *(IN_BATCHES if path.endswith((".log", ".checkpoint")) else ()), *NAMES):
            yield Case(path, kind, clean)


# The broker before


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the broker's log lines at WARNING and above."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler, broker = Collector(logging.WARNING), logging.getLogger("triokafka")
    propagate, broker.propagate = broker.propagate, False
    broker.addHandler(handler)
    try:
        yield found
    finally:
        broker.removeHandler(handler)
        broker.propagate = propagate


_OPTIONS: Final[dict[str, Any]] = {
    "offsets_topic_num_partitions": 1,
    "log_cleaner_enable": False,
    "auto_create_topics_enable": False,
    "log_index_interval_bytes": 100,
}


async def prepare(*, clean: bool) -> tuple[Files, State]:
    """Fill a data directory; return its files, and the content as clients read it."""
    world = memory_world()
    async with running_node(world=world, **_OPTIONS) as node:
        await node.create("plain", internal_segment_bytes="900", max_message_bytes="70000")
        await node.create("compacted", internal_segment_bytes="900", cleanup_policy="compact")
        await node.create(".dot", internal_segment_bytes="900")
        for number in range(COUNT):
            for topic in TOPICS:
                answer = await node.produce(topic, _record(b"%s %d" % (topic.encode(), number)))
                assert answer.error_code == 0
            if number % 10 == 3:
                options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number // 10, "transactional": True}
                partition = node.broker.replicas.partition(("plain", 0))
                partition.log.append_as_leader(
                    bytearray(batch(b"t%d" % number, **options)), leader_epoch=0, now_ms=0, from_client=False
                )
                partition.log.append_as_leader(
                    bytearray(marker(5, commit=number != 13)), leader_epoch=0, now_ms=0, from_client=False
                )
                node.broker.replicas.appended(partition)
            if number == COUNT // 2:
                await node.process.controller.take_snapshot()
                await node.broker.logs.flush_sealed()
        await node.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
        await _commit(node)
        logs, replicas = node.broker.logs, node.broker.replicas
        replicas.delete_records_before(TopicPartition("plain", 0), 3)
        logs.checkpoint()
        logs.checkpoint_high_watermarks(replicas.high_watermarks())
        state = await look(node, [])
        if not clean:
            await node.process.kill()
    disk = world.storage
    assert isinstance(disk, MemoryStorage)
    if not clean:
        disk.kill()
    return dict(_files(disk, DATA)), state


def _record(value: bytes) -> bytes:
    return encode_batch([(NOW_MS, b"key", value, ())])


async def _commit(node: Node) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=17, committed_metadata="")]
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic in TOPICS]
    )
    for _ in range(100):
        answer = await node.call(request, 8)
        if not any(partition.error_code for topic in answer.topics for partition in topic.partitions):
            return
        await trio.sleep(0.01)
    raise AssertionError(f"offsets cannot be committed: {answer}")


def _files(disk: Storage, path: str) -> Iterator[tuple[str, bytes]]:
    for name in disk.list_dir(path):
        child = f"{path}/{name}"
        if disk.is_dir(child):
            yield from _files(disk, child)
        else:
            yield child, disk.read_file(child)


async def look(node: Node, failed: list[str]) -> State:
    """Read everything as clients do. Errors are added to ``failed``, starting with the resource."""
    state = State({}, {}, {}, {})
    image = node.broker.image
    for topic in image.topics:
        if topic == _OFFSETS:
            continue
        state.configs[topic] = {key: value or "" for key, value in image.topic_configs(topic).items()}
        tp = f"{topic}-0"
        records, end, error = await _read(node, topic)
        state.records[tp], state.ends[tp] = records, end
        if error:
            failed.append(f"{tp}: {error}")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    for _ in range(100):
        (group,) = (await node.call(request, 8)).groups
        if not group.error_code:
            break
        await trio.sleep(0.01)
    else:
        failed.append(f"{_OFFSETS}-0: error {group.error_code}")
    for topic_offsets in group.topics:
        for partition in topic_offsets.partitions:
            state.committed[topic_offsets.name] = partition.committed_offset
    return state


async def _read(node: Node, topic: str) -> tuple[dict[int, bytes | None], int, str]:
    """Return all records, their end, and the error that ended the read early."""
    found: dict[int, bytes | None] = {}
    (first,) = await node.fetch(topic, 0)
    if first.error_code and first.log_start_offset < 0:
        return found, 0, f"error {first.error_code}"
    offset, end = max(first.log_start_offset, 0), first.high_watermark
    if end < 0:
        (first,) = await node.fetch(topic, offset)
        end = first.high_watermark
    while offset < end:
        (part,) = await node.fetch(topic, offset, partition_max_bytes=400)
        if part.error_code:
            return found, end, f"error {part.error_code} at offset {offset}"
        data = bytes(part.records or b"")
        if not data:
            return found, end, ""
        try:
            batches = list(iter_batches(data, check_crc=True))
            for record in decode_records(data, from_offset=offset):
                found[record.offset] = record.value
        except (KafkaError, ValueError) as error:
            return found, end, f"{error} at offset {offset}"
        if not batches or batches[-1].next_offset <= offset:
            return found, end, ""
        offset = batches[-1].next_offset
    return found, end, ""


# A case


async def run(case: Case, files: Files, before: State) -> Outcome | None:
    """Damage a copy of the files, start a broker with it twice, and determine the outcome.

    Returns None if the damage does not fit the file.
    """
    world = memory_world()
    disk = world.storage
    assert isinstance(disk, MemoryStorage)
    for path, content in files.items():
        _write(disk, path, content)
    if not apply(case, disk):
        return None
    missing: dict[str, str] = {}
    reports: list[str] = []
    for start in range(2):
        failed: list[str] = []
        with _warnings() as messages:
            try:
                with trio.fail_after(60):
                    async with running_node(world=world, **_OPTIONS) as node:
                        await node.broker.logs.checked_for_gaps.wait()
                        after = await look(node, failed)
                        found = differences(before, after)
                        if start:
                            found.update(await _write_more(node, before))
            except KafkaError as error:
                if not missing:
                    return _refusal(case, str(error))
                reports.append(str(error))
                break
        reports += messages + failed
        missing.update(found)
    silent = {resource: why for resource, why in missing.items() if not _is_reported(resource, case.path, reports)}
    if silent and case.path.endswith(".log") and _only_offsets_differ(case, files):
        return Outcome("beyond the checksum")
    if silent:
        return Outcome("silent", "; ".join(f"{resource}: {why}" for resource, why in silent.items()))
    return Outcome("lost with a message" if missing else "recovered")


def _only_offsets_differ(case: Case, files: Files) -> bool:
    """Whether all batches of the damaged file are valid and in order, so that no checksum shows the damage."""
    change = CONTENT.get(case.kind) or IN_BATCHES.get(case.kind)
    content = files[case.path]
    changed = change(content) if change is not None else None
    if changed is None:
        return False
    try:
        after = [
            info._replace(base_offset=0, partition_leader_epoch=0) for info in iter_batches(changed, check_crc=True)
        ]
    except CorruptRecordError:
        return False
    return after == [info._replace(base_offset=0, partition_leader_epoch=0) for info in iter_batches(content)]


def _refusal(case: Case, message: str) -> Outcome:
    name = case.path.rpartition("/")[2]
    folder = case.path.rpartition("/")[0]
    return Outcome("refused") if name in message or folder in message else Outcome("silent", f"no file in: {message}")


def _is_reported(resource: str, path: str, messages: Iterable[str]) -> bool:
    """Whether a message names a partition, or the damaged file."""
    return any(resource in message or path in message for message in messages)


def differences(before: State, after: State) -> dict[str, str]:
    """Return the losses and differences by partition; those of topics and configurations under the metadata log."""
    found: dict[str, str] = {}
    for topic, configs in before.configs.items():
        if topic not in after.configs:
            found[_METADATA] = f"topic {topic} is gone"
        elif after.configs[topic] != configs:
            found[_METADATA] = f"{topic} has the configuration {after.configs[topic]}"
    for tp, records in before.records.items():
        now = after.records.get(tp, {})
        lost = [offset for offset in records if offset not in now]
        changed = [offset for offset, value in now.items() if offset in records and records[offset] != value]
        if lost or changed:
            found[tp] = f"lost {lost[:3]} ({len(lost)} records), changed {changed[:3]}"
        elif after.ends.get(tp, 0) < before.ends[tp]:
            found[tp] = f"ends at {after.ends.get(tp)}, before {before.ends[tp]}"
    if after.committed != before.committed:
        found[f"{_OFFSETS}-0"] = f"committed offsets {after.committed}, not {before.committed}"
    return found


async def _write_more(node: Node, before: State) -> dict[str, str]:
    """Append a record to each partition: it must not get the offset of a record acknowledged before."""
    found = {}
    for tp, end in before.ends.items():
        topic = tp.removesuffix("-0")
        if topic not in node.broker.image.topics:
            continue
        answer = await node.produce(topic, _record(b"more"))
        if not answer.error_code and answer.base_offset < end:
            found[tp] = f"offset {answer.base_offset} is used again, the log had {end}"
    return found


async def run_all(chosen: Callable[[int, Case], bool] = lambda number, case: True) -> dict[Case, Outcome]:
    """Run the cases whose number ``chosen`` accepts."""
    outcomes = {}
    number = 0
    for clean in (True, False):
        files, before = await prepare(clean=clean)
        for case in cases(files, clean=clean):
            number += 1
            if not chosen(number, case):
                continue
            try:
                outcome = await run(case, files, before)
            except Exception as error:  # any failure is the outcome of the case
                outcome = Outcome("silent", f"fails: {error!r}")
            if outcome is not None:
                outcomes[case] = outcome
    return outcomes


def measure() -> Iterator[Row]:
    """Run every case: a row for each kind of damage with the outcomes over all files, and one for each silent loss."""
    outcomes = trio.run(run_all)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for case, outcome in outcomes.items():
        kinds[case.kind][outcome.kind] += 1
    for kind, counts in kinds.items():
        figure = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield Row("damage", kind, figure, "none silent", not counts["silent"])
    for case, outcome in outcomes.items():
        if outcome.kind == "silent":
            yield Row("damage", case.name, outcome.detail, "a message", met=False)
    everything = Counter(outcome.kind for outcome in outcomes.values())
    places = {(case.kind, _NOT_ITS.sub("#", case.path)) for case in outcomes}
    figure = f"{len(outcomes)} cases, {len(places)} kinds of damage and file: " + ", ".join(
        f"{count} {name}" for name, count in sorted(everything.items())
    )
    yield Row("damage", "all", figure, "none silent", not everything["silent"])

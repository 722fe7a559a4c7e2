"""Apache Kafka's dump tool and ours on the same files: those of our broker, compacted ones, and those of Kafka."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import until
from triokafka.broker_stub.log import LogConfig, LogManager, PartitionLog
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition as Partition
from triokafka.world.system import RealWorld

pytestmark = pytest.mark.interop

TIMEOUT = 30
NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
BATCH = re.compile(r"baseOffset: .*")
FIELD = re.compile(r"(\w+): (\S+)")
COMPARED = (
    "baseOffset",
    "lastOffset",
    "count",
    "baseSequence",
    "lastSequence",
    "producerId",
    "producerEpoch",
    "partitionLeaderEpoch",
    "isTransactional",
    "isControl",
    "position",
    "CreateTime",
    "size",
    "magic",
    "compresscodec",
    "crc",
    "isvalid",
)


def kafkas_dump(*arguments: str) -> str:
    """Return the output of Apache Kafka's tool."""
    tool = ["java", *jvm.QUICK_START, "-Xmx512m", "-cp", f"{jvm.jars()}/*", "org.apache.kafka.tools.DumpLogSegments"]
    done = subprocess.run([*tool, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def our_dump(*arguments: str, status: int = 0) -> str:
    """Return the output of our tool."""
    command = [sys.executable, "-m", "triokafka", "log", "dump", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def batches(text: str) -> list[dict[str, str]]:
    """Return the fields of each batch."""
    found = []
    for line in text.splitlines():
        if BATCH.match(line):
            fields = dict(FIELD.findall(line))
            found.append({name: fields[name].lower() for name in COMPARED})
    return found


def records(text: str) -> list[tuple[str, ...]]:
    """Return the fields of each record: offset, time, sizes, sequence, key and value."""
    pattern = re.compile(
        r"\| offset: (\d+) CreateTime: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) "
        r"headerKeys: \[(.*?)\](?: key: (.*?))?(?: payload: (.*))?$"
    )
    found = []
    for line in text.splitlines():
        match = pattern.match(line)
        if match:
            found.append(tuple("null" if group is None else group for group in match.groups()))
    return found


def entries(text: str) -> list[tuple[str, str]]:
    """Return the entries of an index."""
    return re.findall(r"^(?:offset|timestamp): (-?\d+) (?:position|offset): (\d+)$", text, re.MULTILINE)


def segments(directory: Path, kind: str = "log") -> list[str]:
    return sorted(str(path) for path in directory.glob(f"*.{kind}"))


def compare(directory: Path) -> int:
    """Compare both tools on the data files; return the number of batches."""
    arguments = ("--files", ",".join(segments(directory)), "--print-data-log", "--deep-iteration")
    theirs, ours = kafkas_dump(*arguments), our_dump(*arguments)
    assert batches(ours) == batches(theirs)
    assert records(ours) == records(theirs)
    assert all(batch["isvalid"] == "true" for batch in batches(theirs))
    horizons = [re.findall(pattern, text) for pattern, text in ((r"Ms: (\d+)", ours), (r"OptionalLong\[(\d+)", theirs))]
    assert horizons[0] == horizons[1]
    return len(batches(theirs))


def compare_indexes(directory: Path) -> int:
    """Compare both tools on the indexes, which must agree with the log; return the number of entries."""
    arguments = ("--files", ",".join(segments(directory, "index") + segments(directory, "timeindex")))
    theirs, ours = kafkas_dump(*arguments), our_dump(*arguments)
    # Kafka's tool prints a zero entry for an index without entries.
    assert entries(ours) == [entry for entry in entries(theirs) if entry != ("0", "0")]
    assert "Mismatches" not in theirs, theirs
    assert "out of order" not in theirs, theirs
    return len(entries(ours))


def printed(text: str) -> list[str]:
    """Return the fields of files of any kind, without those in which the tools differ by design."""
    found = []
    for line in text.splitlines():
        if line.startswith(("baseOffset", "| ", "offset:", "timestamp:", "producerId", "version", "Dumping")):
            fact = re.sub(r"OptionalLong\[(\d+)\]", r"\1", line).replace("OptionalLong.empty", "none")
            found.append(fact.replace(" deleteHorizonMs: none", "").replace(" payload: null", "").rstrip().lower())
    return found


def documents(text: str) -> list[str]:
    """Return the lines of records whose content is JSON, without the spaces that the tools put into it differently."""
    return [
        re.sub(r'(?<=[:,])\s+(?=["\[{\w-])', "", line).replace("key:null ", "")
        for line in text.splitlines()
        if line.startswith("| ")
    ]


def all_features(root: Path) -> list[Path]:
    """Return the folders of closed logs with committed and aborted transactions, leader epochs, all codecs, and
    timestamps of the producer or the broker; compacted and not.
    """
    base = LogConfig(segment_bytes=3_000, index_interval_bytes=150, retention_ms=-1)
    compacted = base._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)
    configs = {
        "plain": base,
        "stamped": base._replace(message_timestamp_type="LogAppendTime"),
        "packed": base._replace(compression_type="zstd"),
        "compacted": compacted,
        "both": compacted._replace(message_timestamp_type="LogAppendTime"),
    }

    async def make() -> None:
        logs = LogManager(RealWorld(), [str(root)], base)
        logs.start()
        cleaner = LogCleaner(RealWorld(), logs)
        for number, (topic, config) in enumerate(configs.items()):
            fill(logs.create(Partition(topic, 0), UUID(int=number + 1), config))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cleaner.run)
            with trio.fail_after(TIMEOUT):
                while not all(cleaner.cleaned_up_to(Partition(topic, 0)) for topic in ("compacted", "both")):
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await logs.close()

    trio.run(make)
    return [root / f"{topic}-0" for topic in configs]


def fill(log: PartitionLog) -> None:
    """Write records of the transactions of two producers, of an idempotent one, and of one without an id."""
    choices = random.Random(3)
    sequences = {5: 0, 6: 0, 7: 0}

    def end(producer_id: int, *, commit: bool, number: int) -> None:
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 3)
        marker = encode_batch(
            [(NOW + number, key, value, ())],
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        log.append_as_leader(bytearray(marker), leader_epoch=number // 50, now_ms=NOW + number, from_client=False)

    for number in range(180):
        count = choices.choice((1, 2, 4))
        headers = (("h", b"1"), ("none", None)) if number % 4 == 0 else ()
        records = [
            (NOW + number + i, b"k%d" % choices.randrange(12), choices.choice((None, b"v", b"x" * 60)), headers)
            for i in range(count)
        ]
        producer_id = {1: 5, 2: 6, 3: 7}.get(number % 7, -1)
        data = encode_batch(
            records,
            compression=CODECS[number % 5],
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequences.get(producer_id, -1),
            transactional=producer_id in (5, 6),
        )
        if producer_id in sequences:
            sequences[producer_id] += count
        log.append_as_leader(bytearray(data), leader_epoch=number // 50, now_ms=NOW + number)
        if number % 13 == 12:
            end(5, commit=number % 2 == 0, number=number)
        if number % 17 == 16:
            end(6, commit=False, number=number)
    log.advance_log_start_offset(7)


def test_both_tools_print_the_same_for_files_with_all_features(tmp_path: Path) -> None:
    """This compares batches and records, indexes by offset and time, aborted transactions, producers."""
    jvm.require("mvn", "java")
    folders = all_features(tmp_path)
    seen: set[str] = set()
    for kind in ("log", "index", "timeindex", "txnindex", "snapshot"):
        files = [file for folder in folders for file in segments(folder, kind)]
        arguments = ["--files", ",".join(files), *(["--print-data-log", "--deep-iteration"] if kind == "log" else ())]
        theirs = kafkas_dump(*arguments)
        assert len(printed(theirs)) > len(files) > len(folders)
        assert printed(our_dump(*arguments)) == printed(theirs)
        assert "isvalid: false" not in theirs
        seen |= {word for word in ("ABORT", "COMMIT", "LogAppendTime", "OptionalLong[") if word in theirs}
    assert len(seen) == 4, seen


def produce(bootstrap: str, topic: str, codec: str, count: int, *, key: str = "key-{}") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 5})
    for number in range(count):
        value = None if number % 11 == 0 else f"{codec}-{number}"
        producer.produce(
            topic, value, key.format(number % 40), headers=[("h", b"x")], timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(TIMEOUT) == 0


def create(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT)


def commit(bootstrap: str, topic: str) -> None:
    options = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        assert consumer.consume(1, TIMEOUT)
        consumer.commit(offsets=[TopicPartition(topic, 0, 17, metadata="where")], asynchronous=False)
    finally:
        consumer.close()


def read(bootstrap: str, topic: str) -> list[tuple[str, str, str]]:
    """Return offset, key and value of every record."""
    options = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True})
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(TIMEOUT)
            assert message is not None
            if message.error() is not None:
                return found
            value = message.value()
            found.append((str(message.offset()), message.key().decode(), "null" if value is None else value.decode()))
    finally:
        consumer.close()


def test_both_tools_print_the_same_for_a_compacted_log_and_apache_kafka_serves_it(tmp_path: Path) -> None:
    """Kafka reads the segments of our cleaner, including their indexes and the cleaner's checkpoint."""
    jvm.require("mvn", "java")
    config = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "6000",
        "min.cleanable.dirty.ratio": "0.01",
        "index.interval.bytes": "200",
    }
    broker = BrokerProcess(tmp_path / "data", settings={"log.cleaner.backoff.ms": "50"})
    directory = tmp_path / "data" / "compacted-0"
    try:
        bootstrap = broker.start()
        create(bootstrap, "compacted", config)
        for codec in CODECS:
            produce(bootstrap, "compacted", codec, 200)
        # Behind the last tombstones, so that these are cleaned.
        produce(bootstrap, "compacted", "none", 400, key="last-{}")
        checkpoint = tmp_path / "data" / "cleaner-offset-checkpoint"
        cleaned = re.compile(r"compacted 0 1\d\d\d$", re.MULTILINE)
        until(
            lambda: checkpoint.exists() and bool(cleaned.search(checkpoint.read_text())), "the topic was not compacted"
        )
        assert broker.stop() == 0
    finally:
        broker.close()
    assert 10 < compare(directory) < 200
    assert compare_indexes(directory) > 5
    assert "deleteHorizonMs: 1" in our_dump(*segments(directory)), "no tombstone has its horizon"
    stored = [(r[0], r[6], r[7]) for r in records(our_dump("--print-data-log", *segments(directory)))]
    # Its own cleaner is off: it would continue the work of ours.
    with jvm.apache_kafka(tmp_path, log_cleaner_enable="false") as bootstrap:
        assert read(bootstrap, "compacted") == stored


def test_both_tools_print_the_same_for_files_of_apache_kafka(tmp_path: Path) -> None:
    """This compares data, indexes, producer snapshots, committed offsets and metadata records."""
    jvm.require("mvn", "java")
    with jvm.apache_kafka(tmp_path, log_index_interval_bytes="200") as bootstrap:
        create(bootstrap, "theirs", {})
        for codec in CODECS:
            produce(bootstrap, "theirs", codec, 60)
        commit(bootstrap, "theirs")
    directory = tmp_path / "data" / "theirs-0"
    assert compare(directory) > 50
    assert compare_indexes(directory) > 5

    offsets = [file for number in range(4) for file in segments(tmp_path / "data" / f"__consumer_offsets-{number}")]
    ours = our_dump("--offsets-decoder", *offsets)
    assert "cannot be decoded" not in ours
    (line,) = [line for line in ours.splitlines() if '"metadata": "where' in line]
    assert '"group": "readers"' in line
    assert '"topic": "theirs"' in line
    assert '"offset": 17' in line

    metadata = segments(tmp_path / "data" / "__cluster_metadata-0")
    for file in (*metadata, str(tmp_path / "data" / BOOTSTRAP_FILE)):
        ours = our_dump("--cluster-metadata-decoder", file)
        theirs = kafkas_dump("--cluster-metadata-decoder", "--files", file)
        assert documents(ours) == documents(theirs)
    shown = our_dump("--cluster-metadata-decoder", *metadata)
    assert {"TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD"} <= set(re.findall(r"[A-Z_]+_RECORD", shown))
    assert "LeaderChange: {" in shown

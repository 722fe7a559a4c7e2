"""Produce requests of every kind that a broker refuses or, perhaps surprisingly, accepts, with the responses.

The same table is used for our broker and for Apache Kafka: both must respond alike.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import trio
from crc32c import crc32c

from tests.unit.records.test_legacy import message
from triokafka import errors
from triokafka.protocol.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request
from triokafka.records import encode_batch
from triokafka.world import Stream
from triokafka.world.system import RealWorld

OK: Final = 0
UNKNOWN: Final = errors.UnknownError.code
CORRUPT: Final = errors.CorruptRecordError.code
INVALID_RECORD: Final = errors.InvalidRecordError.code
INVALID_TIMESTAMP: Final = errors.InvalidTimestampError.code
TOO_LARGE: Final = errors.MessageSizeTooLargeError.code
LIST_TOO_LARGE: Final = errors.RecordListTooLargeError.code
OUT_OF_ORDER: Final = errors.OutOfOrderSequenceNumberError.code
OLD_EPOCH: Final = errors.InvalidProducerEpochError.code
UNKNOWN_PARTITION: Final = errors.UnknownTopicOrPartitionError.code
INVALID_TOPIC: Final = errors.InvalidTopicError.code
INVALID_ACKS: Final = errors.InvalidRequiredAcksError.code
CODEC: Final = errors.UnsupportedCompressionTypeError.code
TRANSACTIONAL_ID: Final = errors.TransactionalIdAuthorizationFailedError.code

_NOT_YET: Final = (UNKNOWN_PARTITION, errors.NotLeaderForPartitionError.code, errors.LeaderNotAvailableError.code)
_PATIENCE: Final = 30


@dataclass(frozen=True)
class Step:
    """One request, and its response: error code, base offset, and the numbers of the refused records.

    ``kafka`` is Apache Kafka's response, code and base offset, where ours differs for a reason.
    """

    records: bytes | None
    code: int
    offset: int = -1
    blamed: list[int] = field(default_factory=list)
    partition: int = 0
    acks: int = -1
    version: int = 11
    kafka: tuple[int, int] | None = None


@dataclass(frozen=True)
class Case:
    """Steps with their own topic, whose configuration has underscores for dots."""

    name: str
    steps: list[Step]
    configs: dict[str, str] = field(default_factory=dict)
    topic: str | None = None


def batch(now_ms: int, *values: bytes, key: bytes | None = b"k", **options: Any) -> bytearray:
    """Return a batch of records with the given timestamp."""
    return bytearray(encode_batch([(now_ms, key, value, ()) for value in values], **options))


def sealed(data: bytearray) -> bytes:
    """Return a batch with a valid checksum."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def changed(data: bytearray, position: int, code: str, value: int) -> bytes:
    """Return a batch with one changed number and a valid checksum."""
    struct.pack_into(code, data, position, value)
    return sealed(data)


def compressed_garbage(now: int) -> bytes:
    """Return a gzip batch with an invalid payload."""
    data = batch(now, b"a" * 50, compression="gzip")
    data[65:] = b"\0" * (len(data) - 65)
    return sealed(data)


def cases(now: int) -> list[Case]:
    """Return all cases; ``now`` is the wall clock in milliseconds."""
    a = batch(now, b"a")
    wrong_sum = batch(now, b"a")
    wrong_sum[-1] ^= 1
    two_records = batch(now, b"a", b"b")
    too_long = batch(now, b"a", b"b")
    too_long[61] += 40  # the first record's length
    attributes = 21
    swapped = batch(now, b"a", b"b")
    swapped[61 + 3] = 4  # the first record's offset delta, a zigzag varint
    out_of_order = sealed(swapped)

    def produced(*values: bytes, sequence: int, epoch: int = 0, producer: int = 4711) -> bytes:
        return bytes(batch(now, *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))

    def many(make: Callable[[int], bytes], count: int) -> list[Step]:
        return [Step(make(i), OK, i) for i in range(count)]

    return [
        Case("a batch", [Step(bytes(a), OK, 0), Step(bytes(two_records), OK, 1), Step(bytes(a), OK, 3, acks=1)]),
        Case("a wrong checksum", [Step(bytes(wrong_sum), CORRUPT)]),
        Case("a base offset", [Step(bytes(batch(now, b"a", base_offset=1)), INVALID_RECORD)]),
        Case("a control batch", [Step(bytes(batch(now, b"a", control=True)), INVALID_RECORD)]),
        Case("a count that is too small", [Step(changed(batch(now, b"a", b"b"), 57, ">i", 1), INVALID_RECORD)]),
        Case("a count that is too large", [Step(changed(batch(now, b"a", b"b"), 57, ">i", 3), INVALID_RECORD)]),
        Case("no records", [Step(changed(batch(now, b"a"), 57, ">i", 0), INVALID_RECORD)]),
        Case("a negative count", [Step(changed(batch(now, b"a"), 57, ">i", -1), INVALID_RECORD)]),
        Case("a malformed record", [Step(sealed(too_long), INVALID_RECORD)]),
        # Kafka does not expect these two: it logs an internal error.
        Case("compressed garbage", [Step(compressed_garbage(now), INVALID_RECORD, kafka=(UNKNOWN, -1))]),
        Case("no such codec", [Step(changed(batch(now, b"a"), attributes, ">h", 5), CODEC, kafka=(UNKNOWN, -1))]),
        # Kafka checks these in compressed batches only; otherwise it stores records that no reader can pass.
        Case("offsets out of order", [Step(out_of_order, INVALID_RECORD, kafka=(OK, 0))]),
        Case("garbage behind the batch", [Step(bytes(a) + b"\xff" * 100, CORRUPT)]),
        Case("an old format", [Step(bytes(message(0, b"k", b"v", timestamp=now)), INVALID_RECORD)]),
        Case("no batch", [Step(b"", INVALID_RECORD), Step(bytes(a[:30]), INVALID_RECORD)]),
        Case("two batches", [Step(bytes(a + a), INVALID_RECORD)]),
        Case("a batch and the beginning of another", [Step(bytes(a + a[:-1]), OK, 0), Step(bytes(a) + b"123", OK, 1)]),
        Case("too large a batch", [Step(bytes(batch(now, b"x" * 2000)), TOO_LARGE)], {"max_message_bytes": "2000"}),
        Case(
            "more than a segment",
            [Step(bytes(batch(now, b"x" * 1_100_000)), LIST_TOO_LARGE)],
            {"max_message_bytes": "2000000", "segment_bytes": "1048576"},
        ),
        Case(
            "records without key on a compacted topic",
            [Step(bytes(batch(now, b"a", b"b", key=None)), INVALID_RECORD, blamed=[0, 1]), Step(bytes(a), OK, 0)],
            {"cleanup_policy": "compact"},
        ),
        Case(
            "records from the past and the future",
            [
                Step(bytes(batch(now - 10_000_000, b"a", b"b")), INVALID_TIMESTAMP, blamed=[0, 1]),
                Step(bytes(batch(now + 10_000_000, b"a")), INVALID_TIMESTAMP, blamed=[0]),
                Step(bytes(batch(-1, b"a")), OK, 0),
            ],
            {"message_timestamp_before_max_ms": "1000000", "message_timestamp_after_max_ms": "1000000"},
        ),
        Case(
            "one record of the past, one without key",
            [
                Step(
                    bytes(encode_batch([(now, None, b"a", ()), (5, b"k", b"b", ()), (now, b"k", b"c", ())])),
                    INVALID_TIMESTAMP,
                    blamed=[0, 1],
                )
            ],
            {"message_timestamp_before_max_ms": "1000000", "cleanup_policy": "compact"},
        ),
        Case(
            "a producer that stamps for the broker",
            [Step(bytes(batch(now, b"a", timestamp_type=1)), INVALID_TIMESTAMP, blamed=[0])],
            {"message_timestamp_type": "LogAppendTime"},
        ),
        Case("zstd of an old version", [Step(bytes(batch(now, b"a" * 99, compression="zstd")), CODEC, version=6)]),
        Case("other acks", [Step(bytes(a), INVALID_ACKS, acks=2)]),
        Case(
            "a partition that does not exist",
            [Step(bytes(a), UNKNOWN_PARTITION, partition=3), Step(b"", UNKNOWN_PARTITION, partition=3)],
        ),
        Case("a topic that does not exist", [Step(bytes(a), UNKNOWN_PARTITION)], topic="absent"),
        Case(
            "a sequence",
            [
                Step(produced(b"a", b"b", sequence=0), OK, 0),
                Step(produced(b"c", sequence=2), OK, 2),
                Step(produced(b"a", b"b", sequence=0), OK, 0),
                Step(produced(b"e", sequence=4), OUT_OF_ORDER),
                Step(produced(b"a", sequence=0), OUT_OF_ORDER),
                Step(produced(b"d", sequence=3), OK, 3),
            ],
        ),
        Case(
            "more than five batches ago",
            [
                *many(lambda i: produced(b"a", sequence=i), 7),
                Step(produced(b"a", sequence=2), OK, 2),
                Step(produced(b"a", sequence=1), OUT_OF_ORDER),
            ],
        ),
        Case("a producer that is not known", [Step(produced(b"a", sequence=7), OK, 0)]),
        Case(
            "epochs",
            [
                Step(produced(b"a", sequence=0, epoch=3), OK, 0),
                Step(produced(b"b", sequence=1, epoch=2), OLD_EPOCH),
                Step(produced(b"b", sequence=1, epoch=4), OUT_OF_ORDER),
                Step(produced(b"b", sequence=0, epoch=4), OK, 1),
                Step(produced(b"c", sequence=1, epoch=3), OLD_EPOCH),
            ],
        ),
        Case(
            "a sequence that wraps",
            [
                Step(produced(b"a", b"b", sequence=2**31 - 2), OK, 0),
                Step(produced(b"c", sequence=0), OK, 2),
                Step(produced(b"a", b"b", sequence=2**31 - 2), OK, 0),
            ],
        ),
        Case("no sequence", [Step(produced(b"a", sequence=-1), INVALID_RECORD)]),
        Case(
            "a transaction without an id",
            [
                Step(
                    bytes(
                        batch(now, b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
                    ),
                    TRANSACTIONAL_ID,
                )
            ],
        ),
        Case(
            "compression",
            [
                *(Step(bytes(batch(now, b"a" * 99, compression=codec)), OK, i)
                  for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))),
            ],
        ),
        Case(
            "a topic with a codec of its own",
            [
                *(Step(bytes(batch(now, b"a" * 99, compression=codec)), OK, i)
                  for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))),
            ],
            {"compression_type": "gzip"},
        ),
        Case(
            "a header that is wrong about the newest timestamp",
            [Step(changed(batch(now, b"a"), 35, ">q", now + 10**12), OK, 0)],
        ),
        Case(
            "unused bits",
            [Step(changed(batch(now, b"a"), attributes, ">h", 1 << 7), OK, 0)],
        ),
    ]  # fmt: skip


class Asker:
    """A connection to a broker."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def call(self, request: Request[Any], version: int) -> Any:
        """Send a request and wait for the response."""
        await self._stream.send(*encode_request(request, version=version, correlation_id=1, client_id="cases"))
        size = int.from_bytes(await self._exactly(4), "big")
        return decode_response(request.response_type, await self._exactly(size), version=version)[1]

    async def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        got = 0
        while got < size:
            received = await self._stream.receive_into(memoryview(data)[got:])
            assert received, "the broker closed the connection"
            got += received
        return bytes(data)


async def answers(bootstrap: str) -> dict[str, list[tuple[int, int, list[int]]]]:
    """Return the broker's responses to every step of every case."""
    world = RealWorld()
    host, _, port = bootstrap.partition(":")
    found: dict[str, list[tuple[int, int, list[int]]]] = {}
    stream = await world.connect(host, int(port))
    try:
        asker = Asker(stream)
        for number, case in enumerate(cases(world.wall_ms())):
            topic = case.topic
            if topic is None:
                topic = f"case-{number}"
                await _create(asker, topic, case.configs)
            found[case.name] = [await _ask(asker, topic, step, exists=case.topic is None) for step in case.steps]
    finally:
        stream.close()
    return found


def expected(*, of_kafka: bool = False) -> dict[str, list[tuple[int, int, list[int]]]]:
    """Return the expected responses, of our broker or Apache Kafka."""
    return {
        case.name: [
            (*(step.kafka if of_kafka and step.kafka is not None else (step.code, step.offset)), step.blamed)
            for step in case.steps
        ]
        for case in cases(10**12)
    }


async def _create(asker: Asker, topic: str, configs: dict[str, str]) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = await asker.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)
    assert [made.error_code for made in response.topics] == [0], response


async def _ask(asker: Asker, topic: str, step: Step, *, exists: bool) -> tuple[int, int, list[int]]:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=step.partition, records=step.records)]
    )
    request = ProduceRequest(transactional_id=None, acks=step.acks, timeout_ms=10_000, topic_data=[data])
    with trio.fail_after(_PATIENCE):
        while True:
            response = await asker.call(request, step.version)
            answer = response.responses[0].partition_responses[0]
            # Kafka's brokers learn of a new topic a while after its creation.
            if not (exists and step.partition == 0 and answer.error_code in _NOT_YET):
                break
            await trio.sleep(0.05)
    return answer.error_code, answer.base_offset, [blamed.batch_index for blamed in answer.record_errors]

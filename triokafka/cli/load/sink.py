"""A broker that checks and acknowledges records and stores nothing, for measuring producers alone.

Run as ``python -m triokafka.cli.load.sink``; prints ``ready HOST:PORT``. Every requested topic exists,
with one partition led by this broker.

It rejects what a real broker would reject: every batch must be complete, have format 2, a matching checksum, a record
count that matches the header's offsets, and with idempotence the expected sequence number. It also decodes every 32nd
batch of a topic; with ``--check`` every batch, with a checksum over all values. For a topic name on standard input it
prints its counts as JSON, which the parent compares with the records it sent.
"""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import asdict, dataclass, field
from typing import Final

import trio

from triokafka.checksum import crc32c
from triokafka.cli.load.serving import HOST, run
from triokafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    OutOfOrderSequenceNumberError,
    UnsupportedForMessageFormatError,
)
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from triokafka.protocol.frames import decode_request, encode_response
from triokafka.protocol.message import Response
from triokafka.records import BatchInfo, decode_records, iter_batches
from triokafka.structs import Buffer
from triokafka.world import Stream

_VERSIONS: Final = {0: (0, 12), 1: (0, 12), 3: (0, 12), 10: (0, 4), 18: (0, 4), 22: (0, 4)}
"""librdkafka treats a broker without Fetch and the old versions of Produce as a very old one: it sends messages of
format 0, uncompressed. Fetch and FindCoordinator (10) are listed only for librdkafka; no producer sends them."""
_FIRST_BUFFER: Final = 8 << 20
_LARGEST_REQUEST: Final = 128 << 20
_DECODE_EVERY: Final = 32


@dataclass
class Seen:
    """Counts of one topic."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    """Bytes of batches, as received (compressed)."""
    codecs: dict[str, int] = field(default_factory=dict)
    """Records by the codec of their batch."""
    decoded: int = 0
    """Batches that were decoded to their last record."""
    refused: int = 0
    """Batches that were not acknowledged."""
    reason: str = ""
    """Why the first of those was rejected."""
    values_crc: int = 0
    """CRC-32C over all values in order; only with ``--check``."""


class Sink:
    """The broker's state: counts per topic, and the next sequence number of each producer and partition."""

    def __init__(self, *, check_everything: bool = False) -> None:
        self.port = 0
        self.seen: dict[str, Seen] = {}
        self._check_everything = check_everything
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._next_sequences: dict[tuple[int, str, int], int] = {}
        self._next_producer_id = 1

    def report(self, question: str) -> str:
        """Return the counts of a topic as JSON."""
        return json.dumps(asdict(self.seen.get(question, Seen())))

    async def serve(self, stream: Stream) -> None:
        """Serve one connection until it closes."""
        buffer = bytearray(_FIRST_BUFFER)
        view = memoryview(buffer)
        start = end = 0
        while True:
            while end - start < 4 or end - start < (need := 4 + int.from_bytes(view[start : start + 4], "big")):
                if end - start >= 4 and need > len(buffer):
                    if need > _LARGEST_REQUEST:
                        return
                    grown = bytearray(need)
                    grown[: end - start] = view[start:end]
                    buffer, view = grown, memoryview(grown)
                    start, end = 0, end - start
                elif start:
                    view[: end - start] = bytes(view[start:end])
                    start, end = 0, end - start
                got = await stream.receive_into(view[end:])
                if not got:
                    return
                end += got
            header, request = decode_request(view[start + 4 : start + need])
            response = self.answer(request)
            start += need
            if start == end:
                start = end = 0
            if response is not None:
                version = header.api_version
                if isinstance(response, ApiVersionsResponse) and version > _VERSIONS[18][1]:
                    version = 0
                await stream.send(*encode_response(response, version=version, correlation_id=header.correlation_id))

    def answer(self, request: object) -> Response | None:
        """Return the response to one request, None for no response."""
        if isinstance(request, ProduceRequest):
            response = self.produce(request)
            return response if request.acks else None
        if isinstance(request, ApiVersionsRequest):
            keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in _VERSIONS.items()]
            return ApiVersionsResponse(api_keys=keys)
        if isinstance(request, InitProducerIdRequest):
            self._next_producer_id += 1
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        if isinstance(request, MetadataRequest):
            partition = MetadataResponsePartition(
                partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host=HOST, port=self.port)],
                cluster_id="sink",
                controller_id=1,
                topics=[
                    MetadataResponseTopic(name=topic.name, topic_id=uuid.UUID(int=1), partitions=[partition])
                    for topic in request.topics or []
                ],
            )
        raise ValueError(f"the sink does not know {type(request).__name__}")

    def produce(self, request: ProduceRequest) -> ProduceResponse:
        """Check every batch, count its records, and discard it."""
        topics = []
        for topic in request.topic_data:
            partitions = [
                self._append(topic.name, p.index, p.records if p.records is not None else b"")
                for p in topic.partition_data
            ]
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)

    def _append(self, topic: str, partition: int, records: Buffer) -> PartitionProduceResponse:
        seen = self.seen.setdefault(topic, Seen())
        base = self._next_offsets.get((topic, partition), 0)
        end = base
        try:
            view = memoryview(records)
            position = 0
            for batch in iter_batches(view, check_crc=True):
                self._check(seen, view, batch, topic, partition)
                position = batch.end
                end += batch.record_count
            if position != len(view) or end == base:
                raise CorruptRecordError(f"{len(view) - position} of {len(view)} bytes are an incomplete batch")
        except BrokerResponseError as error:
            seen.refused += 1
            seen.reason = seen.reason or str(error)
            return PartitionProduceResponse(index=partition, error_code=error.code, base_offset=-1)
        seen.records += end - base
        seen.bytes += len(view)
        self._next_offsets[topic, partition] = end
        return PartitionProduceResponse(index=partition, base_offset=base)

    def _check(self, seen: Seen, view: memoryview, batch: BatchInfo, topic: str, partition: int) -> None:
        """Raise the error of a broker that rejects the batch."""
        if batch.magic != 2:
            raise UnsupportedForMessageFormatError(f"format {batch.magic}")
        if batch.record_count != batch.last_offset_delta + 1:
            raise CorruptRecordError(f"{batch.record_count} records, but offsets up to {batch.last_offset_delta}")
        if batch.producer_id >= 0:
            key = (batch.producer_id, topic, partition)
            expected = self._next_sequences.get(key, 0)
            if batch.base_sequence != expected:
                raise OutOfOrderSequenceNumberError(f"sequence {batch.base_sequence}, but {expected} is next")
            self._next_sequences[key] = expected + batch.record_count
        if self._check_everything or seen.batches % _DECODE_EVERY == 0:
            found = decode_records(view[batch.position : batch.end], check_crc=False)  # raises for a wrong count
            seen.decoded += 1
            if self._check_everything:
                for record in found:
                    seen.values_crc = crc32c(record.value or b"", seen.values_crc)
        seen.batches += 1
        seen.codecs[batch.compression] = seen.codecs.get(batch.compression, 0) + batch.record_count


if __name__ == "__main__":
    sink = Sink(check_everything="--check" in sys.argv[1:])
    trio.run(run, sink, sink.report)

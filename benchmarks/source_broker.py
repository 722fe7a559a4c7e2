"""A broker that only serves a prebuilt log, so that a benchmark shows the consumer's limit and not the broker's.

Run as ``python -m benchmarks.source_broker SIZE COMPRESSION RECORDS``; prints ``ready HOST:PORT``. Every requested
topic exists, with one partition of so many records of that size, in batches of about 56 KB.
"""

from __future__ import annotations

import bisect
import sys
import uuid

import trio

from triokafka.cli.load.payloads import json_values
from triokafka.cli.load.serving import HOST, run
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.protocol.frames import decode_request, encode_response
from triokafka.protocol.message import Response
from triokafka.records import encode_batch, patch_batch
from triokafka.world import Stream

_VERSIONS = {0: (3, 7), 1: (4, 12), 2: (1, 7), 3: (0, 8), 8: (2, 5), 9: (1, 5), 10: (0, 2), 18: (0, 3)}
"""Produce and the group requests are listed but not answered: librdkafka takes a broker without them for a very old
one."""
_BATCH_BYTES = 56_000
_DISTINCT_BATCHES = 16


class Log:
    """The bytes of one partition, and where each batch starts."""

    def __init__(self, size: int, compression: str, records: int) -> None:
        per_batch = max(1, _BATCH_BYTES // size)
        data = json_values(size)
        made = []
        for number in range(_DISTINCT_BATCHES):
            rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
                (1_790_000_000_000 + i, None, data[(number * per_batch + i) % len(data)], []) for i in range(per_batch)
            ]
            made.append(encode_batch(rows, compression=compression))
        self.offsets: list[int] = []
        self.positions: list[int] = []
        content = bytearray()
        self.end = 0
        while self.end < records:
            batch = bytearray(made[len(self.offsets) % _DISTINCT_BATCHES])
            patch_batch(batch, 0, base_offset=self.end, leader_epoch=0)
            self.offsets.append(self.end)
            self.positions.append(len(content))
            content += batch
            self.end += per_batch
        self.positions.append(len(content))
        self.view = memoryview(bytes(content))

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Return whole batches from the one with ``offset``, at least one."""
        if offset >= self.end:
            return self.view[:0]
        first = bisect.bisect_right(self.offsets, offset) - 1
        start = self.positions[first]
        last = max(first + 1, bisect.bisect_right(self.positions, start + max_bytes) - 1)
        return self.view[start : self.positions[last]]


class Source:
    """The broker's state: one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.port = 0

    async def serve(self, stream: Stream) -> None:
        """Serve one connection until it ends."""
        buffer = bytearray(1 << 20)
        view = memoryview(buffer)
        end = 0
        while True:
            while end < 4 or end < 4 + int.from_bytes(buffer[:4], "big"):
                got = await stream.receive_into(view[end:])
                if not got:
                    return
                end += got
            size = int.from_bytes(buffer[:4], "big")
            header, request = decode_request(bytes(view[4 : 4 + size]))
            buffer[: end - 4 - size] = buffer[4 + size : end]
            end -= 4 + size
            response = await self.answer(request)
            version = header.api_version
            if isinstance(response, ApiVersionsResponse) and version > _VERSIONS[18][1]:
                response.error_code, version = 35, 0
            await stream.send(*encode_response(response, version=version, correlation_id=header.correlation_id))

    async def answer(self, request: object) -> Response:
        """Return the response to one request."""
        if isinstance(request, FetchRequest):
            return await self.fetch(request)
        if isinstance(request, ApiVersionsRequest):
            keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in _VERSIONS.items()]
            return ApiVersionsResponse(api_keys=keys)
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(error_code=15, node_id=-1)
        if isinstance(request, ListOffsetsRequest):
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=p.partition_index, offset=self.log.end if p.timestamp == -1 else 0
                            )
                            for p in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        if isinstance(request, MetadataRequest):
            partition = MetadataResponsePartition(
                partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host=HOST, port=self.port)],
                cluster_id="source",
                controller_id=1,
                topics=[
                    MetadataResponseTopic(name=topic.name, topic_id=uuid.UUID(int=1), partitions=[partition])
                    for topic in request.topics or []
                ],
            )
        raise ValueError(f"the source does not know {type(request).__name__}")

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Return a slice of the log; at its end, wait for the client's maximum and return nothing."""
        topics = []
        empty = True
        for topic in request.topics:
            partitions = []
            for p in topic.partitions:
                records = self.log.read(p.fetch_offset, min(p.partition_max_bytes, request.max_bytes))
                empty = empty and not records
                partitions.append(
                    PartitionData(
                        partition_index=p.partition,
                        high_watermark=self.log.end,
                        last_stable_offset=self.log.end,
                        log_start_offset=0,
                        records=records,
                    )
                )
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        if empty:
            await trio.sleep(request.max_wait_ms / 1000)
        return FetchResponse(responses=topics)


if __name__ == "__main__":
    trio.run(run, Source(Log(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))

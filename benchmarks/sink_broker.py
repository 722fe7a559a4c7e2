"""A broker that only acknowledges: it parses requests and keeps nothing, to show what a producer can do.

Run as ``python -m benchmarks.sink_broker``; prints ``ready HOST:PORT``. Every topic that is asked for exists, with one
partition, led by this one broker.
"""

from __future__ import annotations

import uuid

import trio

from benchmarks.stand_in import HOST, run
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
from triokafka.records import iter_batches
from triokafka.world import Stream

_VERSIONS = {0: (3, 12), 3: (0, 12), 18: (0, 4), 22: (0, 4)}


class Sink:
    """The broker's state: the next offset of each partition."""

    def __init__(self) -> None:
        self.port = 0
        self.next_offsets: dict[tuple[str, int], int] = {}

    async def serve(self, stream: Stream) -> None:
        """Answer one connection until it ends."""
        buffer = bytearray(8 << 20)
        view = memoryview(buffer)
        start = end = 0
        while True:
            while end - start < 4 or end - start < 4 + int.from_bytes(buffer[start : start + 4], "big"):
                if start:
                    buffer[: end - start] = buffer[start:end]
                    start, end = 0, end - start
                got = await stream.receive_into(view[end:])
                if not got:
                    return
                end += got
            size = int.from_bytes(buffer[start : start + 4], "big")
            header, request = decode_request(view[start + 4 : start + 4 + size])
            response = self.answer(request)
            start += 4 + size
            if response is not None:
                version = header.api_version
                if isinstance(response, ApiVersionsResponse) and version > _VERSIONS[18][1]:
                    version = 0
                await stream.send(*encode_response(response, version=version, correlation_id=header.correlation_id))

    def answer(self, request: object) -> ApiVersionsResponse | MetadataResponse | ProduceResponse | None:
        """The response to one request, None for none."""
        if isinstance(request, ProduceRequest):
            return self.acknowledge(request) if request.acks else None
        if isinstance(request, ApiVersionsRequest):
            keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in _VERSIONS.items()]
            return ApiVersionsResponse(api_keys=keys)
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)  # type: ignore[return-value]
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

    def acknowledge(self, request: ProduceRequest) -> ProduceResponse:
        """Count the records and forget them."""
        topics = []
        for topic in request.topic_data:
            partitions = []
            for p in topic.partition_data:
                base = self.next_offsets.get((topic.name, p.index), 0)
                count = sum(batch.record_count for batch in iter_batches(p.records or b""))
                self.next_offsets[topic.name, p.index] = base + count
                partitions.append(PartitionProduceResponse(index=p.index, base_offset=base))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)


if __name__ == "__main__":
    trio.run(run, Sink())

"""A broker whose responses a test scripts, over the streams of any World; without a script it behaves normally.

`ScriptedCluster` holds topics, leaders and logs; each `ScriptedBroker` of it serves one address. ``script`` queues
responses for the next requests of a kind: a response, a function (plain or async) from the request to one, or `CLOSE`,
`SILENCE`, `CLOSE_AFTER`.
"""

from __future__ import annotations

import inspect
import struct
import uuid
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from triokafka.protocol.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
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
from triokafka.protocol.frames import RequestHeader, decode_request, encode_response
from triokafka.records import decode_records, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import Stream, World

if TYPE_CHECKING:
    from tests.support.scripted_coordinator import ScriptedCoordinator

CLOSE = object()
"""Close the connection instead of responding; the request has no effect."""
CLOSE_AFTER = object()
"""Execute the request, then close the connection instead of responding."""
SILENCE = object()
"""Neither execute nor respond; later requests of the connection get no response either."""


class Raw(bytes):
    """Bytes to send as the whole response, size prefix included."""


Answer = Any


class ScriptedCluster:
    """Topics with their leaders and logs, shared by the brokers."""

    def __init__(self, **topics: int) -> None:
        self.brokers: dict[int, ScriptedBroker] = {}
        self.topics = dict(topics)
        self.topic_ids = {name: uuid.UUID(int=100 + i) for i, name in enumerate(topics)}
        self.leaders: dict[TopicPartition, int] = defaultdict(lambda: min(self.brokers, default=-1))
        self.leader_epochs: dict[TopicPartition, int] = defaultdict(int)
        self.topic_errors: dict[str, int] = {}
        self.log: dict[TopicPartition, list[Any]] = defaultdict(list)
        self.sequences: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self.next_producer_id = 7000
        self.controller_id = 1
        self.racks: dict[int, str] = {}
        self.coordinator: ScriptedCoordinator | None = None

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Make another broker the leader of a partition."""
        tp = TopicPartition(topic, partition)
        self.leaders[tp] = leader
        self.leader_epochs[tp] += 1

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values in a partition's log."""
        return [record.value for record in self.log[TopicPartition(topic, partition)]]

    async def start(self, nursery: trio.Nursery, world: World, *, nodes: int = 1) -> str:
        """Start brokers 1 to ``nodes``; return the address of the first."""
        for node_id in range(1, nodes + 1):
            await ScriptedBroker(self, node_id, world).start(nursery)
        return self.brokers[1].address

    def append(self, tp: TopicPartition, records: Any) -> tuple[int, int]:
        """Append as Kafka does, with a check of sequences; return error code and base offset."""
        log = self.log[tp]
        base = len(log)
        for batch in iter_batches(records, check_crc=True):
            if batch.producer_id >= 0:
                epoch, last = self.sequences.get((tp, batch.producer_id), (-1, -1))
                if batch.producer_epoch < epoch:
                    return 47, -1
                if batch.producer_epoch > epoch:
                    last = -1
                    if batch.base_sequence != 0:
                        return 45, -1
                if batch.last_sequence <= last and last >= 0:
                    return 46, -1
                if batch.base_sequence != last + 1:
                    return 45, -1
                self.sequences[tp, batch.producer_id] = (batch.producer_epoch, batch.last_sequence)
        log.extend(decode_records(records, topic=tp.topic, partition=tp.partition))
        return 0, base


class ScriptedBroker:
    """One broker of a cluster."""

    def __init__(self, cluster: ScriptedCluster, node_id: int, world: World) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.requests: list[Any] = []
        self.headers: list[RequestHeader] = []
        self.connections: list[Stream] = []
        self.connection_count = 0
        self.api_versions: dict[int, tuple[int, int]] = {
            0: (3, 13),
            3: (0, 13),
            10: (0, 6),
            18: (0, 4),
            22: (0, 5),
        }
        self.finalized_features: dict[str, int] = {}
        self.throttle_time_ms = 0
        self._world = world
        self._scripts: dict[type[Any], deque[Answer]] = defaultdict(deque)
        self._waiting: list[tuple[Callable[[], bool], trio.Event]] = []
        self._listener: Any = None
        self._scope = trio.CancelScope()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        host, port = self._listener.address
        return f"{host}:{port}"

    async def start(self, nursery: trio.Nursery, port: int = 0) -> None:
        """Listen, and serve in the background."""
        self._listener = await self._world.listen("127.0.0.1", port)
        self.cluster.brokers[self.node_id] = self
        self._scope = trio.CancelScope()
        nursery.start_soon(self._serve)

    def stop(self) -> int:
        """Stop listening and cut every connection; return the port."""
        port: int = self._listener.address[1]
        self._listener.close()
        self._scope.cancel()
        for stream in self.connections:
            stream.close()
        self.connections.clear()
        return port

    def cut(self) -> None:
        """Cut every connection; accept new ones."""
        for stream in self.connections:
            stream.close()
        self.connections.clear()

    def script(self, request_type: type[Any], *answers: Answer) -> None:
        """Script the responses to the next requests of this kind; later requests get normal ones."""
        self._scripts[request_type].extend(answers)

    def seen(self, request_type: type[Any]) -> list[Any]:
        """Return the requests of one kind, in the order of arrival."""
        return [request for request in self.requests if isinstance(request, request_type)]

    async def wait_for(self, request_type: type[Any], count: int = 1) -> list[Any]:
        """Wait until ``count`` requests of a kind have arrived."""
        event = trio.Event()
        self._waiting.append((lambda: len(self.seen(request_type)) >= count, event))
        self._notify()
        await event.wait()
        return self.seen(request_type)

    def _notify(self) -> None:
        for condition, event in self._waiting:
            if condition():
                event.set()

    async def _serve(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        stream = await self._listener.accept()
                    except (OSError, trio.ClosedResourceError):
                        return
                    self.connections.append(stream)
                    self.connection_count += 1
                    nursery.start_soon(self._converse, stream)

    async def _converse(self, stream: Stream) -> None:
        try:
            await self._answer_all(stream)
        except (OSError, trio.ClosedResourceError):
            pass
        finally:
            stream.close()

    async def _answer_all(self, stream: Stream) -> None:
        buffer = bytearray()
        chunk = memoryview(bytearray(65536))
        while True:
            while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from(">i", buffer)[0]:
                got = await stream.receive_into(chunk)
                if not got:
                    return
                buffer += chunk[:got]
            (size,) = struct.unpack_from(">i", buffer)
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            header, request = self._decode(frame)
            self.headers.append(header)
            self.requests.append(request)
            self._notify()
            answer = self._answer(request, header)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is CLOSE or answer is CLOSE_AFTER:
                return
            if answer is SILENCE:
                await trio.sleep_forever()
            if isinstance(answer, Raw):
                await stream.send(answer)
            elif answer is not None:
                version = header.api_version
                if isinstance(answer, ApiVersionsResponse) and answer.error_code == 35:
                    version = 0
                await stream.send(*encode_response(answer, version=version, correlation_id=header.correlation_id))

    def _decode(self, frame: bytes) -> tuple[RequestHeader, Any]:
        header, request = decode_request(frame)
        return header, request

    def _answer(self, request: Any, header: RequestHeader) -> Answer:
        scripted = self._scripts[type(request)]
        if scripted:
            answer = scripted.popleft()
            if answer is CLOSE_AFTER:
                self._behave(request, header)
                return CLOSE_AFTER
            return answer(request) if callable(answer) else answer
        return self._behave(request, header)

    def _behave(self, request: Any, header: RequestHeader) -> Answer:
        if isinstance(request, ApiVersionsRequest):
            low, high = self.api_versions[18]
            known = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.api_versions.items()]
            if not low <= header.api_version <= high:
                return ApiVersionsResponse(error_code=35, api_keys=known)
            return ApiVersionsResponse(
                api_keys=known,
                finalized_features_epoch=1 if self.finalized_features else -1,
                finalized_features=[
                    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                    for name, level in self.finalized_features.items()
                ],
            )
        if isinstance(request, MetadataRequest):
            return self.metadata(request)
        coordinator = self.cluster.coordinator
        if coordinator is not None and type(request).api_key in (22, 24, 25, 26, 28):
            return coordinator.answer(request, header.api_version)
        if isinstance(request, InitProducerIdRequest):
            self.cluster.next_producer_id += 1
            return InitProducerIdResponse(producer_id=self.cluster.next_producer_id, producer_epoch=0)
        if isinstance(request, FindCoordinatorRequest):
            keys = request.coordinator_keys or [request.key]
            host, port = self._listener.address
            if header.api_version >= 4:
                return FindCoordinatorResponse(
                    coordinators=[Coordinator(key=key, node_id=self.node_id, host=host, port=port) for key in keys]
                )
            return FindCoordinatorResponse(node_id=self.node_id, host=host, port=port)
        if isinstance(request, ProduceRequest):
            return self.produce(request, version=header.api_version)
        raise AssertionError(f"no answer for {request!r}")

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return the default response to a Metadata request."""
        cluster = self.cluster
        names = list(cluster.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        topics = []
        for name in names:
            error = cluster.topic_errors.get(name, 0 if name in cluster.topics else 3)
            partitions = []
            for number in range(0 if error else cluster.topics[name]):
                tp = TopicPartition(name, number)
                leader = cluster.leaders[tp]
                partitions.append(
                    MetadataResponsePartition(
                        error_code=0 if leader >= 0 else 5,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=cluster.leader_epochs[tp],
                        replica_nodes=sorted(cluster.brokers),
                        isr_nodes=sorted(cluster.brokers),
                        offline_replicas=[],
                    )
                )
            topics.append(
                MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=cluster.topic_ids.get(name, uuid.UUID(int=0)),
                    partitions=partitions,
                )
            )
        brokers = []
        for broker in cluster.brokers.values():
            host, port = broker._listener.address
            rack = cluster.racks.get(broker.node_id)
            brokers.append(MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=rack))
        return MetadataResponse(
            brokers=brokers, cluster_id="scripted", controller_id=cluster.controller_id, topics=topics
        )

    def produce(
        self, request: ProduceRequest, errors: dict[int, int] | None = None, *, version: int = 0
    ) -> ProduceResponse | None:
        """Append and acknowledge; refuse partitions in ``errors`` with that code."""
        cluster = self.cluster
        names = {topic_id: name for name, topic_id in cluster.topic_ids.items()}
        topics = []
        for topic in request.topic_data:
            name = topic.name or names.get(topic.topic_id, "")
            partitions = []
            for p in topic.partition_data:
                tp = TopicPartition(name, p.index)
                if errors and p.index in errors:
                    code, base = errors[p.index], -1
                elif cluster.leaders[tp] != self.node_id:
                    code, base = 6, -1
                elif cluster.coordinator is not None and (
                    refused := cluster.coordinator.check_append(tp, p.records, version)
                ):
                    code, base = refused, -1
                else:
                    code, base = cluster.append(tp, p.records)
                partitions.append(PartitionProduceResponse(index=p.index, error_code=code, base_offset=base))
            topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        if request.acks == 0:
            return None
        return ProduceResponse(responses=topics, throttle_time_ms=self.throttle_time_ms)

    def refuse(self, code: int, *partitions: int) -> Callable[[ProduceRequest], ProduceResponse | None]:
        """Return a scripted response to Produce: these partitions (by default all) fail with ``code``."""

        def answer(request: ProduceRequest) -> ProduceResponse | None:
            refused = partitions or [p.index for topic in request.topic_data for p in topic.partition_data]
            return self.produce(request, dict.fromkeys(refused, code))

        return answer

"""A scripted cluster that behaves as Kafka when leaders move and nodes die, with random faults.

All nodes share the logs, as if replication were perfect: the next leader has everything that the previous one appended.
Each node's knowledge of leaders is as old as its last update.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any, NamedTuple

import trio

from tests.support.scripted_broker import CLOSE, CLOSE_AFTER, SILENCE, ScriptedBroker, ScriptedCluster
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.api.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceRequest, ProduceResponse
from triokafka.records import decode_records, iter_batches
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation

_WINDOW = 5  # batches of a producer that a broker remembers
_SEQUENCES = 2**31
_NOT_LEADER, _TOO_LARGE, _DENIED, _OUT_OF_ORDER, _OLD_EPOCH = 6, 10, 29, 45, 47


class _Known(NamedTuple):
    first: int
    last: int
    base_offset: int


class ReplicatedCluster(ScriptedCluster):
    """Three nodes. ``max_batch_bytes`` is the size above which a batch is refused as too large.

    ``checks_sequences`` can be switched off, to see a test notice it.
    """

    def __init__(self, *, max_batch_bytes: int = 1 << 20, **topics: int) -> None:
        super().__init__(**topics)
        self.max_batch_bytes = max_batch_bytes
        self.checks_sequences = True
        self.producers: dict[tuple[TopicPartition, int], tuple[int, deque[_Known]]] = {}
        self.refused_sequences = 0
        self.dropped_repeats = 0
        self.known_leaders: dict[int, dict[TopicPartition, int]] = defaultdict(dict)

    async def start_on(self, simulation: Simulation) -> str:
        """Start three nodes, each on its own host; return their addresses."""
        for node_id in (1, 2, 3):
            world = simulation.host(f"node-{node_id}").world
            await ReplicatedBroker(self, node_id, world).start(simulation.nursery)
        partitions = [TopicPartition(name, p) for name, count in self.topics.items() for p in range(count)]
        for position, tp in enumerate(partitions):
            self.leaders[tp] = 1 + position % 3
        self.update_all()
        return ",".join(broker.address for broker in self.brokers.values())

    def update_all(self) -> None:
        """Update the leaders that every node knows."""
        for node_id in self.brokers:
            self.known_leaders[node_id] = dict(self.leaders)

    def append(self, tp: TopicPartition, records: Any) -> tuple[int, int]:
        """Append as Kafka does: remember a producer's last five batches, so that repetitions get the offset of the
        first.
        """
        log = self.log[tp]
        if len(records) > self.max_batch_bytes:
            return _TOO_LARGE, -1
        (batch,) = iter_batches(records, check_crc=True)
        if batch.producer_id >= 0 and self.checks_sequences:
            epoch, known = self.producers.get((tp, batch.producer_id), (-1, deque[_Known](maxlen=_WINDOW)))
            if batch.producer_epoch < epoch:
                return _OLD_EPOCH, -1
            if batch.producer_epoch == epoch:
                for one in known:
                    if (one.first, one.last) == (batch.base_sequence, batch.last_sequence):
                        self.dropped_repeats += 1
                        return 0, one.base_offset
                due = (known[-1].last + 1) % _SEQUENCES
            else:
                due, known = 0, deque(maxlen=_WINDOW)
            if batch.base_sequence != due and epoch >= 0:
                self.refused_sequences += 1
                return _OUT_OF_ORDER, -1
            known.append(_Known(batch.base_sequence, batch.last_sequence, len(log)))
            self.producers[tp, batch.producer_id] = batch.producer_epoch, known
        base = len(log)
        log.extend(decode_records(records, topic=tp.topic, partition=tp.partition))
        return 0, base

    def entries(self) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
        """Return all logs: offsets and values."""
        return {tp: [(offset, r.value) for offset, r in enumerate(log)] for tp, log in self.log.items()}


class ReplicatedBroker(ScriptedBroker):
    """One node: its knowledge of leaders may be old, and the response to a refused batch may name the new leader."""

    cluster: ReplicatedCluster
    names_leaders = False
    stopped = True

    async def start(self, nursery: trio.Nursery, port: int = 0) -> None:
        await super().start(nursery, port)
        self.stopped = False

    def stop(self) -> int:
        self.stopped = True
        return super().stop()

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = super().metadata(request)
        known_leaders = self.cluster.known_leaders[self.node_id]
        for topic in response.topics:
            for partition in topic.partitions:
                leader = known_leaders.get(TopicPartition(topic.name or "", partition.partition_index), -1)
                if leader != partition.leader_id:
                    partition.leader_epoch = max(0, partition.leader_epoch - 1)
                partition.leader_id = leader
                partition.error_code = 0 if leader >= 0 else 5
        return response

    def produce(
        self, request: ProduceRequest, errors: dict[int, int] | None = None, *, version: int = 0
    ) -> ProduceResponse | None:
        response = super().produce(request, errors, version=version)
        if response is None or not self.names_leaders:
            return response
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        named = set()
        for topic in response.responses:
            for answer in topic.partition_responses:
                tp = TopicPartition(topic.name or names[topic.topic_id], answer.index)
                leader = self.cluster.leaders[tp]
                if answer.error_code == _NOT_LEADER and leader not in (-1, self.node_id):
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=leader, leader_epoch=self.cluster.leader_epochs[tp]
                    )
                    named.add(leader)
        for node_id in sorted(named):
            host, _, port = self.cluster.brokers[node_id].address.rpartition(":")
            response.node_endpoints.append(NodeEndpoint(node_id=node_id, host=host, port=int(port)))
        return response


class ClusterFaults:
    """Inject ``count`` random faults, on average ``pause`` seconds apart; then the cluster works again.

    ``stale`` allows a request to be executed after its client has given it up and sent it again elsewhere: only
    sequence numbers protect from that. ``denials`` are final refusals. ``request_timeout`` is the client's, in seconds.
    """

    def __init__(
        self,
        simulation: Simulation,
        cluster: ReplicatedCluster,
        chance: random.Random,
        *,
        count: int,
        pause: float = 0.05,
        stale: bool,
        denials: bool = False,
        request_timeout: float = 2.0,
    ) -> None:
        self._simulation = simulation
        self._cluster = cluster
        self._chance = chance
        self._count = count
        self._pause = pause
        self._request_timeout = request_timeout
        self._kinds = [
            self._refuse,
            self._refuse,
            self._refuse_one_partition,
            self._error_after_append,
            self._error_after_append,
            self._close,
            self._close_after,
            self._close_after,
            self._cut,
            self._move,
            self._move,
            self._restart,
            self._leaderless,
            self._slow_answer,
            self._throttle,
            self._garbled,
            *([self._late_append, self._silence, self._partition_network] if stale else []),
            *([self._deny] if denials else []),
        ]

    async def run(self) -> None:
        """Inject the faults."""
        conditions = self._simulation.network.conditions
        conditions.max_delay = self._chance.choice([0.001, 0.002, 0.03])
        conditions.loss = self._chance.choice([0, 0, 0.02])
        conditions.cut = self._chance.choice([0, 0.002, 0.01])
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for _ in range(self._count):
                await trio.sleep(self._chance.uniform(0, 2 * self._pause))
                await self._chance.choice(self._kinds)()
        conditions.loss = conditions.cut = 0
        self._simulation.network.heal()
        self._cluster.update_all()

    def _broker(self) -> ReplicatedBroker:
        broker = self._cluster.brokers[self._chance.choice(list(self._cluster.brokers))]
        assert isinstance(broker, ReplicatedBroker)
        return broker

    def _partition(self) -> TopicPartition:
        return self._chance.choice(list(self._cluster.leaders))

    def _later(self, seconds: float, action: Any, *args: Any) -> None:
        async def act() -> None:
            await trio.sleep(seconds)
            result = action(*args)
            if result is not None:
                await result

        self._nursery.start_soon(act)

    async def _refuse(self) -> None:
        broker = self._broker()
        for _ in range(self._chance.choice([1, 1, 2, 4])):
            broker.script(ProduceRequest, broker.refuse(self._chance.choice([2, 3, 5, 6, 7, 9, 19, 56])))

    async def _refuse_one_partition(self) -> None:
        broker = self._broker()
        broker.script(ProduceRequest, broker.refuse(7, self._partition().partition))

    async def _deny(self) -> None:
        broker = self._broker()
        broker.script(ProduceRequest, broker.refuse(_DENIED, self._partition().partition))

    async def _error_after_append(self) -> None:
        broker, code = self._broker(), self._chance.choice([6, 7, 20])

        def answer(request: ProduceRequest) -> ProduceResponse | None:
            response = broker.produce(request)
            if response is not None:
                for topic in response.responses:
                    for partition in topic.partition_responses:
                        partition.error_code = partition.error_code or code
                        partition.base_offset = -1
            return response

        broker.script(ProduceRequest, answer)

    async def _close(self) -> None:
        self._broker().script(ProduceRequest, CLOSE)

    async def _close_after(self) -> None:
        self._broker().script(ProduceRequest, CLOSE_AFTER)

    async def _garbled(self) -> None:
        """A response without the requested partitions: it is unknown whether the records were appended."""
        broker = self._broker()

        def answer(request: ProduceRequest) -> ProduceResponse | None:
            response = broker.produce(request)
            if response is not None:
                response.responses = []
            return response

        broker.script(ProduceRequest, answer)

    async def _cut(self) -> None:
        if self._chance.random() < 0.5:
            self._broker().cut()
        else:
            self._simulation.network.cut("client", f"node-{self._broker().node_id}")

    async def _move(self) -> None:
        tp, leader = self._partition(), self._chance.choice(list(self._cluster.brokers))
        self._cluster.move(*tp, leader)
        self._broker().names_leaders = self._chance.random() < 0.5
        self._later(self._chance.uniform(0, 0.3), self._cluster.update_all)

    async def _leaderless(self) -> None:
        tp = self._partition()
        self._cluster.move(*tp, -1)
        self._cluster.update_all()
        self._later(self._chance.uniform(0, 0.5), self._cluster.move, *tp, self._chance.choice([1, 2, 3]))

    async def _restart(self) -> None:
        broker = self._broker()
        if broker.stopped:
            return
        others = [node for node, other in self._cluster.brokers.items() if other is not broker]
        port = broker.stop()
        for tp in [tp for tp, leader in self._cluster.leaders.items() if leader == broker.node_id]:
            if self._chance.random() < 0.7:
                self._cluster.move(*tp, self._chance.choice(others))
        self._later(self._chance.uniform(0, 0.3), self._cluster.update_all)
        self._later(self._chance.uniform(0, 0.6), broker.start, self._simulation.nursery, port)

    async def _slow_answer(self) -> None:
        """Execute at once, respond late: sometimes after the client's request timeout."""
        broker = self._broker()
        wait = self._chance.choice([0.05, 0.3, self._request_timeout * 1.2])

        async def answer(request: ProduceRequest) -> ProduceResponse | None:
            response = broker.produce(request)
            await trio.sleep(wait)
            return response

        broker.script(ProduceRequest, answer)

    async def _late_append(self) -> None:
        broker = self._broker()
        wait = self._chance.choice([0.05, 0.3, self._request_timeout * 1.2, self._request_timeout * 3])

        async def answer(request: ProduceRequest) -> ProduceResponse | None:
            await trio.sleep(wait)
            return broker.produce(request)

        broker.script(ProduceRequest, answer)

    async def _silence(self) -> None:
        self._broker().script(ProduceRequest, SILENCE)

    async def _throttle(self) -> None:
        broker = self._broker()
        broker.throttle_time_ms = self._chance.choice([10, 200])
        self._later(self._chance.uniform(0, 0.5), setattr, broker, "throttle_time_ms", 0)

    async def _partition_network(self) -> None:
        network = self._simulation.network
        node = f"node-{self._broker().node_id}"
        network.partition("client", node, one_way=self._chance.random() < 0.3)
        self._later(self._chance.uniform(0, self._request_timeout * 1.5), network.heal)

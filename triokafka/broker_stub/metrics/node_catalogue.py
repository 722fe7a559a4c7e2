"""The metrics that every node has, of its process, its metadata and its part in the quorum; with Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metrics.controller_catalogue import AppliedRecord, controller_samples
from triokafka.broker_stub.metrics.process_catalogue import ProcessMetrics
from triokafka.broker_stub.metrics.recent_share import RecentShare
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.world import World

if TYPE_CHECKING:  # imported when the quorum has other nodes
    from triokafka.network.traffic import ChannelTotals


class NodeMetrics:
    """Reads the metrics of one node.

    Args:
        controller: the node's controller role; None without it.
        traffic: the node's traffic with the other nodes of the quorum; None without others.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        metadata: NodeMetadata,
        controller: Controller | None,
        traffic: ChannelTotals | None,
    ) -> None:
        self._world = world
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._traffic = traffic
        self._process = ProcessMetrics(world)
        self._controller_busy = RecentShare(world.now())

    def samples(self) -> Iterator[Sample]:
        """Yield the current value of every metric."""
        now, controller = self._world.now(), self._controller
        yield from self._process.samples("KafkaServer" if self._config.is_broker else "ControllerServer")
        yield from raft_samples(self._metadata.raft, now)
        yield from self._of_channels()
        lag = applied(self._metadata, self._world.wall_ms(), is_active=controller is not None and controller.is_active)
        yield from self._of_metadata(lag, now)
        if controller is not None:
            yield from controller_samples(controller, self._metadata, lag)
            busy = self._controller_busy.measure(controller.queue.metrics.processed.total, now)
            yield Sample("kafka.controller:type=ControllerEventManager,name=AvgIdleRatio", {}, 1 - busy)
        for feature, (low, high) in sorted(features.SUPPORTED.items()):
            tags = {"feature-name": feature}
            yield Sample("kafka.server:type=node-metrics,name=maximum-supported-level", tags, high)
            yield Sample("kafka.server:type=node-metrics,name=minimum-supported-level", tags, low)

    def _of_channels(self) -> Iterator[Sample]:
        traffic = self._traffic
        if traffic is None:
            return
        traffic.sum_up()
        for name, value in (
            ("request-total", traffic.requests),
            ("outgoing-byte-total", traffic.request_bytes),
            ("response-total", traffic.responses),
            ("incoming-byte-total", traffic.response_bytes),
            ("connection-creation-total", traffic.connections_opened),
            ("connection-close-total", traffic.connections_closed),
            ("connection-count", max(0, traffic.connections_opened - traffic.connections_closed)),
            ("failed-authentication-total", traffic.connections_refused),
        ):
            yield Sample(f"kafka.server:type=raft-channel-metrics,name={name}", {}, value)

    def _of_metadata(self, lag: AppliedRecord, now: float) -> Iterator[Sample]:
        metadata = self._metadata
        for name, value in (
            ("last-applied-record-offset", metadata.image.offset),
            ("last-applied-record-timestamp", lag.timestamp_ms),
            ("last-applied-record-lag-ms", lag.lag_ms),
            ("metadata-apply-error-count", metadata.publisher.failures),
            ("ignored-static-voters", int(metadata.ignores_static_voters)),
        ):
            yield Sample(f"kafka.server:type=broker-metadata-metrics,name={name}", {}, value)
        loader = "kafka.server:type=MetadataLoader,name="
        for feature, level in sorted(metadata.image.features.items()):
            yield Sample(f"{loader}FinalizedLevel", {"featureName": feature}, level)
        yield Sample(f"{loader}CurrentMetadataVersion", {}, metadata.image.features.get(features.METADATA_VERSION, 0))
        yield Sample(f"{loader}HandleLoadSnapshotCount", {}, metadata.loader.snapshots)
        snapshots = metadata.snapshots
        emitter = "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGenerated"
        yield Sample(f"{emitter}Bytes", {}, snapshots.newest_bytes)
        yield Sample(f"{emitter}AgeMs", {}, (now - snapshots.newest_at) * 1000)


def applied(metadata: NodeMetadata, now_ms: int, *, is_active: bool) -> AppliedRecord:
    """Return when the last applied record was written, and how long ago that was."""
    if is_active:
        return AppliedRecord(metadata.files.last_append_ms, 0)
    at_ms = metadata.loader.applied_ms
    return AppliedRecord(at_ms, max(0, now_ms - at_ms) if at_ms >= 0 else 0)


def raft_samples(raft: RaftClient, now: float) -> Iterator[Sample]:
    """Yield the state of a node of the metadata quorum; -1 stands for an unknown leader, vote or high watermark.

    Times and rates without a value in the last minute are 0.
    """
    leader = -1 if raft.leader.leader_id is None else raft.leader.leader_id
    metrics = raft.metrics
    values: list[tuple[str, float]] = [
        ("current-leader", leader),
        ("current-vote", raft.voted_for),
        ("current-epoch", raft.leader.epoch),
        ("high-watermark", raft.high_watermark),
        ("log-end-offset", raft.end_offset),
        ("log-end-epoch", raft.end_epoch),
        ("number-of-voters", len(raft.voters)),
        ("uncommitted-voter-change", int(raft.is_changing_voters)),
        ("append-records-rate", metrics.appended.per_second(now)),
        ("fetch-records-rate", metrics.fetched.per_second(now)),
        ("commit-latency-avg", _ms(metrics.commits.average(now))),
        ("commit-latency-max", _ms(metrics.commits.most(now))),
        ("election-latency-avg", _ms(metrics.elections.average(now))),
        ("election-latency-max", _ms(metrics.elections.most(now))),
        ("poll-idle-ratio-avg", metrics.idle_share(now)),
    ]
    if (observers := raft.observer_count) is not None:
        values.append(("number-of-observers", observers))
    for name, value in values:
        yield Sample(f"kafka.server:type=raft-metrics,name={name}", {}, value)
    state = raft.state_name
    yield Sample("kafka.server:type=raft-metrics,name=current-state", {"current_state": state, "state": state}, 1)
    yield Sample("kafka.server:type=MetadataLoader,name=CurrentControllerId", {}, leader)


def _ms(seconds: float) -> float:
    return seconds * 1000 if seconds == seconds else 0.0  # NaN is not a number for most readers

"""A broker's metrics with Kafka's names.

A sample has the name and tags of Kafka's MBean, for example ``kafka.network:type=RequestMetrics,name=TotalTimeMs`` with
the tag ``request``. Counters start with the broker; readers compute rates.

The metrics are computed while an iterator is read. Between two samples other tasks may run: an iterator goes over
copies, never over what such a task can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio

from triokafka.broker_stub.gateway.directory_assignments import DirectoryAssignments
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.metrics.partition_catalogue import (
    client_samples,
    group_lag_samples,
    partition_samples,
    topic_samples,
)
from triokafka.broker_stub.metrics.recent_share import RecentShare
from triokafka.broker_stub.metrics.sample import Sample, duration_samples
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.broker_stub.request.client_quotas import ClientQuotas, QuotaKind
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.request_metrics import ApiMetrics
from triokafka.broker_stub.request.services import BrokerServices
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.errors import ERRORS

_QUOTAS: Final = {
    QuotaKind.PRODUCE: ("kafka.server:type=Produce", "byte-rate"),
    QuotaKind.FETCH: ("kafka.server:type=Fetch", "byte-rate"),
    QuotaKind.REQUEST: ("kafka.server:type=Request", "request-time"),
}


def request_samples(dispatcher: Dispatcher) -> Iterator[Sample]:
    """Yield the metrics of the requests of every API that a dispatcher serves."""
    for key in list(dispatcher.handlers):
        dispatcher.load(key)  # also of APIs without a request so far
        yield from _api_samples(name := dispatcher.handlers[key].name, dispatcher.metrics.api(name))
    served = {handler.name for handler in dispatcher.handlers.values()}
    for name, metrics in dispatcher.metrics:
        if name not in served:  # the fetches of consumers and of followers
            yield from _api_samples(name, metrics)


def _api_samples(api: str, metrics: ApiMetrics) -> Iterator[Sample]:
    for version, count in sorted(metrics.by_version.items()):
        tags = {"request": api, "version": str(version)}
        yield Sample("kafka.network:type=RequestMetrics,name=RequestsPerSec", tags, count, "Count")
    for code, count in sorted(metrics.errors.items()):
        tags = {"request": api, "error": _error_name(code)}
        yield Sample("kafka.network:type=RequestMetrics,name=ErrorsPerSec", tags, count, "Count")
    for name, summary in metrics.summaries().items():
        full, tags = f"kafka.network:type=RequestMetrics,name={name}", {"request": api}
        yield Sample(full, tags, summary.requests, "Count")
        yield Sample(full, tags, summary.total, "Sum")
        yield Sample(full, tags, summary.most, "Max")
        for quantile, value in summary.quantiles.items():
            yield Sample(full, tags, value, str(quantile))


def network_samples(sockets: SocketServer) -> Iterator[Sample]:
    """Yield the metrics of a node's listeners."""
    yield Sample("kafka.network:type=RequestChannel,name=RequestQueueSize", {}, sockets.slots.queued)
    yield Sample("kafka.network:type=SocketServer,name=MemoryPoolUsed", {}, sockets.memory.used)
    yield Sample("kafka.network:type=SocketServer,name=MemoryPoolDepletedWaiting", {}, sockets.memory.waiting)
    for listener in sockets.listeners:
        name = "kafka.server:type=socket-server-metrics,name=connection-count"
        yield Sample(name, {"listener": listener}, sockets.limits.count(listener))


def quota_samples(quotas: ClientQuotas, now: float) -> Iterator[Sample]:
    """Yield the rates and throttle times of the quotas that clients have used."""
    for found in quotas.usages(now):
        mbean, rate = _QUOTAS[found.kind]
        tags = {"user": found.user, "client-id": found.client_id}
        yield Sample(f"{mbean},name={rate}", tags, found.rate)
        yield Sample(f"{mbean},name=throttle-time", tags, found.throttle_seconds * 1000)


class BrokerMetrics:
    """Reads the metrics of one broker from its parts.

    Args:
        started_at: time of the broker's creation in seconds on the world's clock.
        broker_state: returns Kafka's number of the lifecycle's state, 3 for running.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        services: BrokerServices,
        sockets: SocketServer,
        cleaner: LogCleaner,
        assignments: DirectoryAssignments,
        *,
        started_at: float,
        broker_state: Callable[[], int],
    ) -> None:
        self._dispatcher = dispatcher
        self._services = services
        self._sockets = sockets
        self._cleaner = cleaner
        self._assignments = assignments
        self._handlers = RecentShare(started_at)
        self._broker_state = broker_state

    def samples(self) -> Iterator[Sample]:
        """Yield the current value of every metric."""
        yield from request_samples(self._dispatcher)
        yield from self._of_network()
        yield from self._of_delayed_operations()
        yield from self._of_replicas()
        yield from self._of_traffic()
        yield from self._of_cleaner()
        yield from self._of_logs()
        yield from self._of_groups()
        yield from self._of_transactions()
        yield from self._of_state()
        yield from partition_samples(self._services)
        yield from topic_samples(self._services)
        yield from group_lag_samples(self._services)
        yield from client_samples(self._services)
        yield from quota_samples(self._services.quotas, self._services.world.now())

    def _of_state(self) -> Iterator[Sample]:
        yield Sample("kafka.server:type=KafkaServer,name=BrokerState", {}, self._broker_state())
        offline = self._services.logs.offline_directories()
        yield Sample("kafka.log:type=LogManager,name=OfflineLogDirectoryCount", {}, len(offline))
        cordoned = self._services.logs.cordoned
        yield Sample("kafka.log:type=LogManager,name=CordonedLogDirectoryCount", {}, len(cordoned))
        for directory in self._services.config.current.data_directories:
            tags = {"logDirectory": directory}
            yield Sample("kafka.log:type=LogManager,name=LogDirectoryOffline", tags, int(directory in offline))
            yield Sample("kafka.log:type=LogManager,name=LogDirectoryCordoned", tags, int(directory in cordoned))
        name = "kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments"
        yield Sample(name, {}, len(self._assignments))

    def _of_network(self) -> Iterator[Sample]:
        yield from network_samples(self._sockets)
        name = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
        yield Sample(name, {}, self._idle_share())
        yield Sample("triokafka:type=Tasks", {}, trio.lowlevel.current_statistics().tasks_living)

    def _of_delayed_operations(self) -> Iterator[Sample]:
        replicas = self._services.replicas
        for kind, purgatory in (
            ("Produce", replicas.produce_purgatory),
            ("Fetch", replicas.fetch_purgatory),
            ("DeleteRecords", replicas.delete_purgatory),
        ):
            tags = {"delayedOperation": kind}
            yield Sample("kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize", tags, purgatory.watched)
            yield Sample(
                "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations", tags, purgatory.delayed
            )
            yield Sample(
                f"kafka.server:type=Delayed{kind}Metrics,name=ExpiresPerSec", {}, purgatory.expirations, "Count"
            )
        sessions = self._services.fetch_sessions()
        yield Sample("kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions", {}, len(sessions))
        name = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached"
        yield Sample(name, {}, sessions.cached_partitions)
        name = "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec"
        yield Sample(name, {}, sessions.evictions, "Count")

    def _of_replicas(self) -> Iterator[Sample]:
        replicas = self._services.replicas
        proposals, lags = replicas.proposals, list(replicas.fetchers.lags_by_fetcher())
        yield Sample("kafka.server:type=ReplicaManager,name=PartitionCount", {}, len(replicas))
        yield Sample("kafka.server:type=ReplicaManager,name=OfflineReplicaCount", {}, replicas.offline)
        for name, count in (
            ("IsrShrinksPerSec", proposals.shrinks),
            ("IsrExpandsPerSec", proposals.expansions),
            ("FailedIsrUpdatesPerSec", proposals.failed_updates),
        ):
            yield Sample(f"kafka.server:type=ReplicaManager,name={name}", {}, count, "Count")
        now, fetchers = self._services.world.now(), replicas.fetchers
        prefix, manager = "kafka.server:type=ReplicaFetcherManager,name=", {"clientId": "Replica"}
        yield Sample(f"{prefix}MaxLag", manager, max((lag for _, found in lags for lag in found.values()), default=0))
        yield Sample(f"{prefix}MinFetchRate", manager, fetchers.least_requests_per_second(now))
        yield Sample(f"{prefix}FailedPartitionsCount", manager, fetchers.delayed(now))
        for client_id, of_partitions in lags:
            for (topic, number), lag in of_partitions.items():
                tags = {"clientId": client_id, "topic": topic, "partition": str(number)}
                yield Sample("kafka.server:type=FetcherLagMetrics,name=ConsumerLag", tags, lag)

    def _of_cleaner(self) -> Iterator[Sample]:
        metrics = self._cleaner.metrics
        for name, value in (
            ("LogCleaner,name=max-buffer-utilization-percent", metrics.max_buffer_utilization_percent),
            ("LogCleaner,name=cleaner-recopy-percent", metrics.cleaner_recopy_percent),
            ("LogCleaner,name=max-clean-time-secs", metrics.max_clean_time_secs),
            ("LogCleaner,name=max-compaction-delay-secs", metrics.max_compaction_delay_ms // 1000),
            ("LogCleanerManager,name=max-dirty-percent", metrics.max_dirty_percent),
            ("LogCleanerManager,name=time-since-last-run-ms", metrics.time_since_last_run_ms),
        ):
            yield Sample(f"kafka.log:type={name}", {}, value)
        uncleanable = self._cleaner.uncleanable()
        for directory in self._services.config.current.data_directories:
            sizes = [log.size for log in uncleanable if log.directory == directory]
            tags = {"logDirectory": directory}
            yield Sample("kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count", tags, len(sizes))
            yield Sample("kafka.log:type=LogCleanerManager,name=uncleanable-bytes", tags, sum(sizes))

    def _of_logs(self) -> Iterator[Sample]:
        name = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
        yield from duration_samples(name, self._services.logs.flush_times)
        for directory, count in self._services.logs.strays().items():
            yield Sample("triokafka:type=LogManager,name=StrayLogs", {"logDirectory": directory}, count)
        for directory, (logs, offsets) in self._services.logs.lost_offsets().items():
            yield Sample("triokafka:type=LogManager,name=DamagedLogs", {"logDirectory": directory}, logs)
            yield Sample("triokafka:type=LogManager,name=LostOffsets", {"logDirectory": directory}, offsets)

    def _of_traffic(self) -> Iterator[Sample]:
        traffic = self._services.replicas.traffic
        for name, count in (
            ("BytesInPerSec", traffic.bytes_in),
            ("MessagesInPerSec", traffic.records_in),
            ("BytesOutPerSec", traffic.bytes_out),
            ("ReplicationBytesOutPerSec", traffic.replication_bytes_out),
            ("ReplicationBytesInPerSec", traffic.replication_bytes_in),
            ("ReassignmentBytesInPerSec", traffic.reassignment_bytes_in),
            ("TotalProduceRequestsPerSec", traffic.produces),
            ("FailedProduceRequestsPerSec", traffic.failed_produces),
            ("TotalFetchRequestsPerSec", traffic.fetches),
            ("FailedFetchRequestsPerSec", traffic.failed_fetches),
            ("BytesRejectedPerSec", traffic.rejected_bytes),
            ("InvalidMessageCrcRecordsPerSec", traffic.corrupt_batches),
        ):
            yield Sample(f"kafka.server:type=BrokerTopicMetrics,name={name}", {}, count, "Count")

    def _of_groups(self) -> Iterator[Sample]:
        coordinator, manager = (
            self._services.groups.coordinator,
            "kafka.coordinator.group:type=GroupMetadataManager,name=",
        )
        found = coordinator.count_groups()
        yield Sample(f"{manager}NumOffsets", {}, found.offsets)
        yield Sample(f"{manager}NumGroups", {}, sum(found.classic.values()))
        for state, count in found.classic.items():
            yield Sample(f"{manager}NumGroups{state.value}", {}, count)

        prefix = "kafka.server:type=group-coordinator-metrics,name="
        for protocol, total in (("classic", sum(found.classic.values())), ("consumer", sum(found.consumer.values()))):
            yield Sample(f"{prefix}group-count", {"protocol": protocol}, total)
        for consumer_state, count in found.consumer.items():
            yield Sample(f"{prefix}consumer-group-count", {"state": consumer_state.value.lower()}, count)
        counters = coordinator.counters
        for name, counted in (
            ("offset-commit", counters.offset_commits),
            ("offset-expiration", counters.offset_expirations),
            ("offset-deletion", counters.offset_deletions),
            ("group-completed-rebalance", counters.completed_rebalances),
            ("consumer-group-rebalance", counters.consumer_group_rebalances),
        ):
            yield Sample(f"{prefix}{name}-count", {}, counted)

        runtime = coordinator.runtime
        for shard_state in ShardState:
            yield Sample(f"{prefix}num-partitions", {"state": shard_state.value}, runtime.count(shard_state))
        loads = runtime.load_times.recent(self._services.world.now()) or [0.0]
        yield Sample(f"{prefix}partition-load-time-max", {}, max(loads) * 1000)
        yield Sample(f"{prefix}partition-load-time-avg", {}, sum(loads) / len(loads) * 1000)
        yield Sample("triokafka:type=GroupCoordinator,name=HeldOperations", {}, runtime.held_answers())

    def _of_transactions(self) -> Iterator[Sample]:
        verifier = self._services.transaction_verifier
        prefix = "kafka.server:type=AddPartitionsToTxnManager,name="
        yield from duration_samples(f"{prefix}VerificationTimeMs", verifier.durations)
        yield Sample(f"{prefix}VerificationFailureRate", {}, verifier.failures, "Count")
        coordinator = self._services.transactions.existing
        now = self._services.world.now()
        loads = (coordinator.runtime.load_times.recent(now) if coordinator is not None else []) or [0.0]
        prefix = "kafka.server:type=transaction-coordinator-metrics,name="
        yield Sample(f"{prefix}partition-load-time-max", {}, max(loads) * 1000)
        yield Sample(f"{prefix}partition-load-time-avg", {}, sum(loads) / len(loads) * 1000)
        name = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize"
        yield Sample(name, {}, 0 if coordinator is None else coordinator.markers_without_leader)

    def _idle_share(self) -> float:
        """Return the share of time in which handler slots were free in the last minute, between 0 and 1."""
        now, slots = self._services.world.now(), self._sockets.slots.slots
        return 1 - self._handlers.measure(self._dispatcher.busy_seconds, now, of=slots)


def _error_name(code: int) -> str:
    """Return the tag of an error: the name of its class, ``NONE``, or the code of an error without a class."""
    if not code:
        return "NONE"
    found = ERRORS.get(code)
    return str(code) if found is None else found.__name__

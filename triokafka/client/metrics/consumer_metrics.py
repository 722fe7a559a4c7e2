"""A consumer's metrics under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from triokafka.client.consumer.fetcher import Fetcher
from triokafka.client.consumer.membership.group_membership import GroupMembership
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.client.metrics.catalogue import (
    CONNECTIONS,
    CONSUMER,
    COORDINATOR,
    FETCH_MANAGER,
    FETCH_MANAGER_PARTITION,
    FETCH_MANAGER_TOPIC,
)
from triokafka.client.metrics.client_metrics import ClientMetrics, MetricGroup, feed
from triokafka.metrics import Avg, CumulativeCount, Max, Min, Rate, Stat, TimeUnit, Value, WindowedCount
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

_MS: Final = 1000.0
_NS: Final = 1e9


class _Fetched:
    def __init__(self, group: MetricGroup) -> None:
        self.size = group.spread("fetch-size", group.meter("bytes-consumed"))
        self.per_request = group.sensor("per-request", {"records-per-request-avg": Avg()})
        self.records = group.sensor("records", None, group.meter("records-consumed"))


class _PartitionSensors:
    def __init__(self, group: MetricGroup) -> None:
        self.group = group
        lags: dict[str, Stat] = {"records-lag": Value(), "records-lag-avg": Avg(), "records-lag-max": Max()}
        self.lag = group.sensor("lag", lags)
        leads: dict[str, Stat] = {"records-lead": Value(), "records-lead-avg": Avg(), "records-lead-min": Min()}
        self.lead = group.sensor("lead", leads)


class ConsumerMetrics:
    """Adds the metrics of one consumer to those of its ``client``, which keeps this object."""

    def __init__(
        self,
        client: ClientMetrics,
        network: NetworkClient,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        *,
        position: Callable[[TopicPartition], int | None],
        membership: Callable[[], GroupMembership | None],
        committed_only: bool,
        call_times: Mapping[str, float],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._fetcher = fetcher
        self._position = position
        self._membership = membership
        self._committed_only = committed_only
        self._log = fetcher.fetch_log
        self._topics: dict[str, _Fetched] = {}
        self._partitions: dict[TopicPartition, _PartitionSensors] = {}
        client.watch(network)
        main = client.group("metrics", {**CONNECTIONS, **CONSUMER})
        main.gauge("last-poll-seconds-ago", self._age(lambda membership: membership.poll_interval.last_poll))
        main.gauge("commit-sync-time-ns-total", lambda: call_times["commit"] * _NS)
        main.gauge("committed-time-ns-total", lambda: call_times["committed"] * _NS)
        fetch = client.group("fetch-manager-metrics", FETCH_MANAGER)
        self._all = _Fetched(fetch)
        self._fetch_latency = fetch.spread("fetch-latency", fetch.meter("fetch", counts=True))
        self._fetch_throttle = fetch.spread("fetch-throttle-time")
        self._lag = fetch.sensor("lag", {"records-lag-max": Max()})
        self._lead = fetch.sensor("lead", {"records-lead-min": Min()})
        group = client.group("coordinator-metrics", COORDINATOR)
        self._commit = group.spread("commit-latency", group.meter("commit", counts=True))
        self._heartbeat = group.sensor(
            "heartbeat", {"heartbeat-response-time-max": Max()}, group.meter("heartbeat", counts=True)
        )
        self._join = group.spread("join-time", group.meter("join", counts=True))
        self._sync = group.spread("sync-time", group.meter("sync", counts=True))
        self._rebalance = group.spread("rebalance-latency")
        group.total("rebalance-latency-total", self._rebalance)
        per_hour = Rate(WindowedCount(), TimeUnit.HOURS)
        self._rebalance.add(group.name("rebalance-rate-per-hour"), per_hour)
        self._rebalance.add(group.name("rebalance-total"), CumulativeCount())
        group.gauge("assigned-partitions", lambda: float(len(subscription.assignment)))
        group.gauge("last-heartbeat-seconds-ago", self._age(lambda membership: membership.clock.last_answer))
        group.gauge("last-rebalance-seconds-ago", self._age(lambda membership: membership.status.timing.ended_at))
        client.add_part(self._drain)

    # ---------------------------------------------------------------- gauges

    def _age(self, time_of: Callable[[GroupMembership], float | None]) -> Callable[[], float]:
        """Return the gauge of the seconds since a time of the membership; -1 before the first."""

        def age() -> float:
            membership = self._membership()
            at = None if membership is None else time_of(membership)
            return -1.0 if at is None or at == -float("inf") else self._client.registry.clock() - at

        return age

    # ---------------------------------------------------------------- collected values

    def _drain(self, seconds: dict[str, list[float]], throttled: dict[str, list[float]]) -> None:
        now, log = self._client.at, self._log
        fetches = seconds.get("Fetch", [])
        feed(self._fetch_latency, fetches, now, scale=_MS)
        if fetches:
            throttles = throttled.get("Fetch", [])
            most = max(throttles, default=0.0)
            self._fetch_throttle.update(len(fetches), sum(throttles) * _MS, 0.0, most * _MS, now)
        feed(self._commit, seconds.get("OffsetCommit", []), now, scale=_MS)
        feed(self._heartbeat, seconds.get("Heartbeat", []), now, scale=_MS)
        feed(self._heartbeat, seconds.get("ConsumerGroupHeartbeat", []), now, scale=_MS)
        feed(self._join, seconds.get("JoinGroup", []), now, scale=_MS)
        feed(self._sync, seconds.get("SyncGroup", []), now, scale=_MS)
        self._drain_fetched(now)
        self._drain_rebalances(now)
        self._sample_partitions(now)
        log.clear()

    def _drain_fetched(self, now: float) -> None:
        log = self._log
        if not log.sizes and not log.records and not log.topic_sizes:
            return
        feed(self._all.size, log.sizes, now)
        with_records = sum(size > 0 for size in log.sizes)
        counts = [count for _, count in log.records]
        feed(self._all.records, counts, now)
        self._all.per_request.update(with_records, sum(counts), 0.0, max(counts, default=0), now)
        sizes: dict[str, list[float]] = {}
        for topic, size in log.topic_sizes:
            sizes.setdefault(topic, []).append(size)
        records: dict[str, list[float]] = {}
        for topic, count in log.records:
            records.setdefault(topic, []).append(count)
        for topic in sizes | records:
            sensors = self._topic(topic)
            fetched, returned = sizes.get(topic, []), records.get(topic, [])
            feed(sensors.size, fetched, now)
            feed(sensors.records, returned, now)
            sensors.per_request.update(len(fetched), sum(returned), 0.0, max(returned, default=0), now)

    def _drain_rebalances(self, now: float) -> None:
        membership = self._membership()
        timing = None if membership is None else membership.status.timing
        if timing is not None and timing.durations:
            feed(self._rebalance, timing.durations, now, scale=_MS)
            timing.durations.clear()

    def _sample_partitions(self, now: float) -> None:
        assignment = self._subscription.assignment
        for partition in self._partitions.keys() - assignment:
            self._partitions.pop(partition).group.remove()
        for partition in assignment:
            state = self._subscription.state(partition)
            position = self._position(partition)
            if position is None:
                continue
            sensors = self._partition(partition)
            end = state.last_stable_offset if self._committed_only else state.high_watermark
            if end >= 0:
                lag = float(max(0, end - position))
                for sensor in (sensors.lag, self._lag):
                    sensor.update(1, lag, lag, lag, now)
            if state.log_start_offset >= 0:
                lead = float(max(0, position - state.log_start_offset))
                for sensor in (sensors.lead, self._lead):
                    sensor.update(1, lead, lead, lead, now)

    def _topic(self, topic: str) -> _Fetched:
        found = self._topics.get(topic)
        if found is None:
            group = self._client.group("fetch-manager-metrics", FETCH_MANAGER_TOPIC, topic=topic)
            found = self._topics[topic] = _Fetched(group)
        return found

    def _partition(self, partition: TopicPartition) -> _PartitionSensors:
        found = self._partitions.get(partition)
        if found is None:
            topic, number = partition.topic, str(partition.partition)
            group = self._client.group("fetch-manager-metrics", FETCH_MANAGER_PARTITION, topic=topic, partition=number)
            preferred = self._fetcher.preferred_replica
            group.gauge("preferred-read-replica", lambda: float(preferred(partition)))
            found = self._partitions[partition] = _PartitionSensors(group)
        return found

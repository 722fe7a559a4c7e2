"""The results of `Consumer.health` and `Consumer.metrics`, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.client.consumer.engine import Engine

_NEVER: Final = -float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One assigned partition; None stands for an unknown value.

    ``lag`` is the number of offsets between position and end, under ``read_committed`` the last stable offset; ``lead``
    is the number between the log start offset and the position: at 0, retention is about to delete unread records.
    """

    position: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    log_start_offset: int | None
    lag: int | None
    lead: int | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHealth:
    """A consumer at one moment. Ages are seconds; None means never.

    ``state`` is the state of the group member in words, or the kind of subscription without a group. ``generation`` is
    the member epoch under the consumer protocol. ``metadata_age`` counts from the last Metadata response. ``troubles``
    are sentences about ongoing failures, the longest first, and then, if no broker can be reached, the reason;
    ``failure`` is the error that made the consumer unusable.
    """

    state: str
    member_id: str
    generation: int
    metadata_age: float | None
    last_heartbeat_age: float | None
    last_fetch_age: float | None
    last_poll_age: float | None
    assignment_age: float | None
    partitions: Mapping[TopicPartition, PartitionHealth]
    troubles: tuple[str, ...]
    failure: Exception | None

    @property
    def healthy(self) -> bool:
        """Whether nothing fails."""
        return self.failure is None and not self.troubles


def take_health(engine: Engine) -> ConsumerHealth:
    """Collect the present state of a consumer's parts."""
    # Before the consumer is entered there may be no clock.
    now = engine.world.now() if engine.state != "new" else 0.0
    membership = engine.membership

    def age(at: float | None) -> float | None:
        return None if at is None or at == _NEVER else now - at

    return ConsumerHealth(
        state=engine.state,
        member_id=membership.identity.member_id if membership is not None else "",
        generation=membership.identity.generation if membership is not None else -1,
        metadata_age=age(engine.network.metadata.last_success),
        last_heartbeat_age=age(membership.clock.last_answer if membership is not None else None),
        last_fetch_age=age(engine.fetcher.counters.last_fetch_at),
        last_poll_age=age(membership.poll_interval.last_poll if membership is not None else None),
        assignment_age=age(membership.status.joined_at if membership is not None else None),
        partitions={partition: _partition(engine, partition) for partition in engine.subscription.assignment},
        troubles=tuple(
            f"{failing.what} has failed for {now - failing.since:.1f} s: {failing.error}"
            for failing in engine.failure_tracker.current
        )
        + _no_broker(engine),
        failure=engine.failure,
    )


def _no_broker(engine: Engine) -> tuple[str, ...]:
    """Return why no broker can be reached; empty while one is connected. Failing requests report the other brokers."""
    if engine.state == "new" or any(broker.connected for broker in engine.network.broker_statuses()):
        return ()
    return tuple(engine.network.broker_troubles())


def _partition(engine: Engine, partition: TopicPartition) -> PartitionHealth:
    state = engine.subscription.state(partition)
    position = engine.collector.position(partition)
    high_watermark, stable, start = map(
        _known, (state.high_watermark, state.last_stable_offset, state.log_start_offset)
    )
    end = stable if engine.options.isolation_level == "read_committed" else high_watermark
    return PartitionHealth(
        position=position,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=start,
        lag=None if position is None or end is None else max(0, end - position),
        lead=None if position is None or start is None else max(0, position - start),
        paused=state.paused,
    )


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def take_metrics(engine: Engine) -> dict[str, float]:
    """Return counters and gauges by name. Unknown values and ages are -1."""
    health = take_health(engine)
    lags = [partition.lag for partition in health.partitions.values() if partition.lag is not None]
    leads = [partition.lead for partition in health.partitions.values() if partition.lead is not None]
    timing = engine.membership.status.timing if engine.membership is not None else None
    return {
        "fetch_total": engine.fetcher.counters.fetches,
        "bytes_consumed_total": engine.fetcher.counters.bytes,
        "records_consumed_total": engine.collector.delivered,
        "records_skipped_total": engine.collector.skipped,
        "batches_skipped_total": engine.collector.batches_skipped,
        "fetch_buffer_bytes": engine.fetcher.buffer.total_bytes,
        "records_lag": sum(lags),
        "records_lag_max": max(lags, default=0),
        "records_lead_min": min(leads, default=-1),
        "assigned_partitions": len(health.partitions),
        "generation": health.generation,
        "rebalance_total": engine.membership.status.rebalances if engine.membership is not None else 0,
        "rebalance_latency_max": timing.seconds_max if timing is not None else 0,
        "rebalance_latency_total": timing.seconds_total if timing is not None else 0,
        "rebalance_latency_last": timing.seconds_last if timing is not None else 0,
        "lost_partitions_total": timing.lost if timing is not None else 0,
        "last_heartbeat_seconds_ago": -1 if health.last_heartbeat_age is None else health.last_heartbeat_age,
        "last_fetch_seconds_ago": -1 if health.last_fetch_age is None else health.last_fetch_age,
        "last_poll_seconds_ago": -1 if health.last_poll_age is None else health.last_poll_age,
        "assignment_age_seconds": -1 if health.assignment_age is None else health.assignment_age,
        "troubles": len(health.troubles),
    }

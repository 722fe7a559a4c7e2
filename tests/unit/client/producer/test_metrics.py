"""The metrics, health and deliveries of a producer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_producing import scripted
from tests.support.simulated import simulated
from triokafka.client.producer.metrics import METRICS
from triokafka.errors import KafkaTimeoutError, RecordListTooLargeError
from triokafka.protocol.api.produce import ProduceRequest

PAGE = Path(__file__).parents[4] / "docs" / "producer.md"


@simulated
async def test_metrics_are_those_that_are_documented() -> None:
    async with scripted() as s, s.producer() as producer:
        assert list(producer.metrics()) == list(METRICS)
    assert all(text.endswith(".") or text.endswith("(DUPLICATE_SEQUENCE).") for text in METRICS.values())
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Metrics\n")
    documented = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    assert documented == list(METRICS.items())


@simulated
async def test_metrics_of_a_new_producer_are_zero() -> None:
    async with scripted() as s:
        producer = s.producer(buffer_memory=100_000)
        metrics = dict(producer.metrics())
        assert (metrics.pop("buffer_total_bytes"), metrics.pop("buffer_available_bytes")) == (100_000, 100_000)
        assert metrics.pop("metadata_age") == -1
        assert set(metrics.values()) == {0}


@simulated
async def test_records_batches_and_times_are_measured() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=100, compression_type="gzip") as producer:
        await producer.partitions_for("orders")
        s.broker.throttle_time_ms = 500
        for number in range(10):
            await producer.send("orders", b"x" * 1000, partition=number % 2)
        await producer.flush()
        s.broker.throttle_time_ms = 0
        s.broker.script(ProduceRequest, s.broker.refuse(7), s.broker.refuse(18))
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send("orders", b"y", partition=0))
        m = producer.metrics()
        assert (m["record_send_total"], m["record_error_total"], m["record_retry_total"]) == (10, 1, 1)
        assert (m["batch_total"], m["batch_retry_total"], m["batch_error_total"]) == (3, 1, 1)
        assert (m["request_total"], m["requests_in_flight"], m["connection_count"]) == (3, 0, 1)
        assert m["batch_size_avg"] == m["compressed_byte_total"] / 3
        assert 0 < m["compression_rate_avg"] < 0.5
        assert m["produce_throttle_time_max"] == 500
        assert m["produce_throttle_time_avg"] == pytest.approx(500 / 3)
        assert 0 < m["record_queue_time_avg"] <= m["record_queue_time_max"] == pytest.approx(600, abs=110)
        assert 0 < m["request_latency_avg"] <= m["request_latency_max"] < 100
        assert 0 < m["metadata_age"] < 5_000
        assert m["batches_unacknowledged"] == 0


@simulated
async def test_waiting_for_memory_is_measured() -> None:
    async with scripted() as s, s.producer(buffer_memory=1000, batch_size=1000, linger_ms=0) as producer:
        await producer.partitions_for("orders")

        async def answer_late(request: ProduceRequest) -> Any:
            await trio.sleep(2)
            return s.broker.produce(request)

        s.broker.script(ProduceRequest, answer_late)
        await producer.send("orders", b"x" * 900)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, "orders", b"x" * 900)
            await trio.sleep(1)
            assert producer.metrics()["waiting_threads"] == producer.health().waiting_senders == 1
        m = producer.metrics()
        assert m["bufferpool_wait_time_max"] == m["bufferpool_wait_time_total"] == pytest.approx(2000, abs=50)


@simulated
async def test_delivery_report_has_the_position_of_the_record_and_its_attempts() -> None:
    async with scripted(orders=3) as s, s.producer(linger_ms=50, retry_backoff_ms=1000) as producer:
        await producer.partitions_for("orders")
        s.broker.script(ProduceRequest, s.broker.refuse(7))
        metadata = await (await producer.send("orders", b"value", key=b"key", partition=2, timestamp_ms=77))
        assert metadata[:7] == ("orders", 2, 0, 77, 3, 5, 2)
        assert metadata.topic_partition == ("orders", 2)
        assert 850 < metadata.latency_ms < 2_000
        metadata = await (await producer.send("orders", None, partition=2))
        assert metadata.serialized_key_size == metadata.serialized_value_size == -1
        assert metadata.timestamp == pytest.approx(s.world.wall_ms(), abs=1000)
        assert (metadata.offset, metadata.attempts) == (1, 1)
        assert 50 <= metadata.latency_ms < 100


@simulated
async def test_delivery_has_the_timestamp_set_by_the_broker() -> None:
    async with scripted() as s, s.producer() as producer:

        def stamped(request: ProduceRequest) -> Any:
            answer = s.broker.produce(request)
            assert answer is not None
            answer.responses[0].partition_responses[0].log_append_time_ms = 4_711
            return answer

        s.broker.script(ProduceRequest, stamped)
        assert (await (await producer.send("orders", b"v", timestamp_ms=77))).timestamp == 4_711
        assert (await (await producer.send("orders", b"v", timestamp_ms=77))).timestamp == 77


# ---------------------------------------------------------------- health


@simulated
async def test_health_of_a_producer_from_new_to_closed() -> None:
    async with scripted() as s:
        producer = s.producer(linger_ms=1000)
        assert (producer.health().state, producer.health().healthy, producer.health().brokers) == ("new", True, ())
        async with producer:
            await producer.send("orders", b"v")
            await trio.sleep(0.5)
            health = producer.health()
            assert (health.state, health.healthy, health.connected) == ("open", True, (1,))
            assert (health.unacknowledged_records, health.waiting_senders) == (1, 0)
            assert health.unacknowledged_age == pytest.approx(0.5, abs=0.01)
            assert health.metadata_age == pytest.approx(0.5, abs=0.1)
            await producer.flush()
            health = producer.health()
            assert (health.unacknowledged_records, health.unacknowledged_age) == (0, None)
            [broker] = [broker for broker in health.brokers if broker.connected]
            assert (broker.node.node_id, broker.error, broker.requests_in_flight, broker.throttled_for) == (
                1,
                None,
                0,
                0,
            )
            assert broker.bytes_sent
            assert broker.bytes_received
            assert broker.unused_for == pytest.approx(0, abs=0.1)
        assert producer.health().state == "closed"


@simulated
async def test_health_names_the_broker_that_cannot_be_reached() -> None:
    async with scripted() as s:
        s.broker.stop()
        async with s.producer(max_block_ms=1000) as producer:
            with pytest.raises(KafkaTimeoutError):
                await producer.send("orders", b"v")
            health = producer.health()
            assert (health.healthy, health.connected, health.metadata_age) == (False, (), None)
            assert s.address in health.troubles[0]
            assert "refused" in health.troubles[0]


@simulated
async def test_health_names_the_failing_partition_and_recovers() -> None:
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"v"))
        s.broker.script(ProduceRequest, *[s.broker.refuse(19)] * 3)
        delivery = await producer.send("orders", b"v")
        await s.broker.wait_for(ProduceRequest, 3)
        await trio.sleep(0.01)
        [problem] = producer.health().troubles
        assert re.match(
            r"orders-0: a batch has failed 2 times in 0\.\d s, the last time with NotEnoughReplicas", problem
        )
        await delivery
        assert producer.health().healthy


@simulated
async def test_health_names_the_partition_without_a_leader() -> None:
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"v"))
        s.cluster.move("orders", 0, -1)
        await producer._client.refresh_metadata()
        await producer.send("orders", b"v")
        assert producer.health().troubles == ("orders-0 has no leader; records wait for 0.0 s",)
        s.cluster.move("orders", 0, 1)


@simulated
async def test_closed_connection_is_no_problem() -> None:
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"v"))
        s.broker.cut()
        await trio.sleep(0.02)  # shorter than the reconnect back-off
        health = producer.health()
        assert [broker.error is not None for broker in health.brokers if broker.node.node_id == 1] == [True]
        assert health.healthy
        assert health.connected == ()


class Watch(triokafka.Hooks):
    """Records the names of the events."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_batch_sealed(self, *args: Any) -> None:
        self.seen.append("sealed")

    def on_batch_retried(self, *args: Any) -> None:
        self.seen.append("retried")

    def on_batch_acknowledged(self, *args: Any) -> None:
        self.seen.append("acknowledged")

    def on_batch_failed(self, *args: Any) -> None:
        self.seen.append("failed")
        raise RuntimeError("a bad hook")

    def on_client_failed(self, error: Exception) -> None:
        self.seen.append("client failed")


@simulated
async def test_hooks_receive_the_events_of_each_batch_and_cannot_disturb_it() -> None:
    watch = Watch()
    async with scripted() as s:
        s.broker.script(ProduceRequest, s.broker.refuse(7))
        async with s.producer(linger_ms=0, hooks=watch) as producer:
            await (await producer.send("orders", b"v"))
            s.broker.script(ProduceRequest, s.broker.refuse(18))
            with pytest.raises(RecordListTooLargeError):
                await (await producer.send("orders", b"v"))
            producer._fail(RuntimeError("a bug"))
    assert watch.seen == ["sealed", "retried", "acknowledged", "sealed", "failed", "client failed"]


@pytest.mark.parametrize("fault", [SILENCE, CLOSE])
@simulated
async def test_lost_requests_are_counted(fault: object) -> None:
    async with scripted() as s, s.producer(linger_ms=0, request_timeout_ms=1000) as producer:
        s.broker.script(ProduceRequest, fault)
        metadata = await (await producer.send("orders", b"v"))
        m = producer.metrics()
        assert (m["request_total"], m["request_error_total"], metadata.attempts) == (2, 1, 2)

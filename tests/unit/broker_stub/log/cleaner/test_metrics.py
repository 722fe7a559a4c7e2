"""The cleaner's figures as the broker shows them."""

from __future__ import annotations

import trio

from tests.unit.broker_stub.api.node import running_node
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition


async def test_broker_exports_cleaning_progress_and_uncleanable_logs() -> None:
    """Under Kafka's names."""
    async with running_node(log_cleaner_backoff_ms=60_000) as node:
        await node.create("orders", cleanup_policy="compact", internal_segment_bytes="200")
        for number in range(20):
            await node.produce("orders", encode_batch([(1, b"k", b"%d" % number, ())]))
        log = node.broker.logs.get(TopicPartition("orders", 0))
        assert log is not None
        file = node.broker.world.storage.open(log.segments[0].file.path(".log"))
        file.write_at(70, b"\xff")
        cleaner = node.broker.cleaner

        async def until_given_up() -> None:
            while not cleaner.uncleanable():
                await trio.sleep(0)

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cleaner.run)
                await until_given_up()
                nursery.cancel_scope.cancel()
        text = as_prometheus_text(node.broker.metrics()).splitlines()
    for line in (
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="/data"} 1',
        f'kafka_log_logcleanermanager_uncleanable_bytes{{logDirectory="/data"}} {log.size}',
        "kafka_log_logcleaner_cleaner_recopy_percent 0",
        "kafka_log_logcleaner_max_buffer_utilization_percent 0",
        "kafka_log_logcleaner_max_clean_time_secs 0",
        "kafka_log_logcleaner_max_compaction_delay_secs 0",
    ):
        assert line in text
    assert any(line.startswith("kafka_log_logcleanermanager_time_since_last_run_ms ") for line in text)

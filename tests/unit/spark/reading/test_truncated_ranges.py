"""A log truncated during a task by a leader that had not followed (KIP-320), or replaced by another topic with brokers
that fetch by name, with loss as an error and with loss allowed. In virtual time.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from tests.support.scripted_reading import ReadableCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.client.range_session import RangeSession
from triokafka.client.reader import RangeReader
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.reading.task_reader import _batches
from triokafka.structs import TopicPartition

T0 = TopicPartition("t", 0)
CASES = {
    # the truncation point, the new end, and the name of the loss
    "rewritten beyond the range": (40, 120, "PARTITION_OFFSET_CHANGED"),
    "rewritten to the range's end": (40, 100, "PARTITION_OFFSET_CHANGED"),
    "shorter than what was read": (20, 30, "COULD_NOT_READ_OFFSET_RANGE"),
}


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(("cut", "end", "kind"), CASES.values(), ids=CASES)
@simulated
async def test_records_that_were_read_and_are_others_now(
    cut: int, end: int, kind: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The result is never a silent mixture, and no offset is read twice."""
    simulation = current_simulation()
    cluster = ReadableCluster(t=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=2)

    def write(start: int, end: int, add: int) -> None:
        for batch in range(start, end, 10):
            cluster.write("t", 0, [b"%d" % (number + add) for number in range(batch, batch + 10)])

    write(0, 100, 0)
    given = {"kafka.bootstrap.servers": address, "subscribe": "t", "failOnDataLoss": fails}
    options = ReadOptions.parse({**given, "kafkaConsumer.pollTimeoutMs": "20000"})
    little: dict[str, Any] = {"max_partition_fetch_bytes": 200, "prefetch_max_bytes": 400, "batch_rows": 10}
    found: list[tuple[int, int]] = []

    async def read() -> None:
        async with RangeReader(
            {T0: (0, 100)}, bootstrap_servers=address, world=simulation.host("client").world, **little
        ) as reader:
            async for batch in _batches(reader, options, {T0: (0, 100)}):
                found.extend(zip(batch["offset"].to_pylist(), map(int, batch["value"].to_pylist()), strict=True))
                if len(found) == 50:
                    cluster.epoch_ends[T0, 0] = (0, cut)
                    cluster.move("t", 0, 2)
                    del cluster.batches[T0][cut // 10 :]
                    cluster.ends[T0] = cut
                    write(cut, end, 1_000)

    if fails == "true":
        with pytest.raises(KafkaDataLossError, match=rf"KAFKA_DATA_LOSS\.{kind}.*t-0"):
            await read()
    else:
        with caplog.at_level(logging.WARNING):
            await read()
        assert f"KAFKA_DATA_LOSS.{kind}" in caplog.text
    old = next((at for at, (_, value) in enumerate(found) if value >= 1_000), len(found))
    assert found[:old] == [(number, number) for number in range(old)]
    assert 50 <= old <= 70, "prefetched records are returned anyway"
    if fails == "true":
        assert found[old:] == []
    else:
        assert found[old:] == [(number, number + 1_000) for number in range(old, min(end, 100))]


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("end", [60, 30])
@simulated
async def test_topic_recreated_after_a_complete_read_is_detected_by_its_id(
    end: int, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker's session with a broker before Kafka 3.1; the new topic has as many records, or less by the time."""
    simulation = current_simulation()
    cluster = ReadableCluster(t=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    cluster.brokers[1].api_versions[1] = (4, 12)
    cluster.write("t", 0, [b"%d" % number for number in range(50)])
    before = cluster.topic_ids["t"]
    options = ReadOptions.parse({"kafka.bootstrap.servers": address, "subscribe": "t", "failOnDataLoss": fails})
    rows = 0
    async with RangeSession(bootstrap_servers=address, world=simulation.host("client").world) as session:
        async with RangeReader({T0: (0, 50)}, session=session, topic_ids={"t": before}) as reader:
            async for batch in _batches(reader, options, {T0: (0, 50)}):
                rows += batch.num_rows
        cluster.topic_ids["t"] = UUID(int=200)
        async with RangeReader({T0: (0, 50)}, session=session, topic_ids={"t": before}) as reader:
            batches = _batches(reader, options, {T0: (0, 50)})
            rows += (await anext(batches)).num_rows
            cluster.ends[T0] = end
            if fails == "true":
                with pytest.raises(KafkaDataLossError, match="KAFKA_DATA_LOSS"):
                    await anext(batches)
            else:
                with caplog.at_level(logging.WARNING), pytest.raises(StopAsyncIteration):
                    await anext(batches)
                assert "KAFKA_DATA_LOSS" in caplog.text
    assert rows == 100

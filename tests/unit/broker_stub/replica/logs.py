"""Logs and batches for tests of the code that uses them."""

from __future__ import annotations

from uuid import UUID

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.replica.partition import Partition
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage

NOW_MS = 1_700_000_000_000
NODE = 1


def batch(*values: bytes, timestamp: int = NOW_MS) -> bytearray:
    """A batch with these values, each a millisecond after the one before."""
    return bytearray(encode_batch([(timestamp + i, None, value, ()) for i, value in enumerate(values)]))


def open_log(name: str = "t", number: int = 0, config: LogConfig | None = None) -> PartitionLog:
    """An empty log in memory."""
    storage = MemoryStorage(crashable=False)
    directory = f"/data/{name}-{number}"
    return PartitionLog.open(storage, directory, TopicPartition(name, number), config or LogConfig(), now_ms=NOW_MS)


def leader(
    *, replicas: tuple[int, ...] = (NODE,), isr: tuple[int, ...] | None = None, epoch: int = 3, min_isr: int = 1
) -> Partition:
    """A partition that this broker leads."""
    log = open_log(config=LogConfig(min_insync_replicas=min_isr))
    partition = Partition(log.topic_partition, UUID(int=1), node_id=NODE, log=log)
    partition.make_leader(
        leader_epoch=epoch, partition_epoch=0, replicas=replicas, in_sync_replicas=replicas if isr is None else isr
    )
    return partition


def append(partition: Partition, *values: bytes, acks: int = -1) -> bool:
    """Append one batch; True when the high watermark rose."""
    partition.append(batch(*values), required_acks=acks, now_ms=NOW_MS)
    return partition.advance_high_watermark()

"""Record batches on disk: the log of a partition, and the logs of a broker."""

from __future__ import annotations

from triokafka.broker_stub.log.appender import AppendInfo
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.reader import ReadResult

__all__ = ["AppendInfo", "LogConfig", "LogManager", "PartitionLog", "ReadResult"]

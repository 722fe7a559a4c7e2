"""The options of logs, cleaner and fetchers, taken from the broker's configuration."""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.log.cleaner.log_cleaner import CleanerConfig
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig

_MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


def move_rate(image: MetadataImage, node_id: int) -> float:
    """Return the limit of bytes per second for moves between data directories, a dynamic option only."""
    for broker_id in (node_id, None):
        value = image.broker_configs(broker_id).get(_MOVE_RATE, "")
        if value.isdecimal():
            return float(value)
    return float("inf")


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """Return the configuration of the cleaner."""
    return CleanerConfig(
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def log_manager_config(config: BrokerConfig) -> LogManagerConfig:
    """Return the configuration of the logs' background work."""
    return LogManagerConfig(
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
        recovery_point_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        moves_at_once=config.num_replica_alter_log_dirs_threads,
    )


def fetcher_config(config: BrokerConfig) -> FetcherConfig:
    """Return the configuration of the replica fetchers."""
    return FetcherConfig(
        fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        fetch_min_bytes=config.replica_fetch_min_bytes,
        fetch_max_bytes=config.replica_fetch_max_bytes,
        fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
        fetch_backoff_ms=config.replica_fetch_backoff_ms,
        socket_timeout_ms=config.replica_socket_timeout_ms,
        num_fetchers=config.num_replica_fetchers,
    )

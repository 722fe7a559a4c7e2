"""Configuration of a broker's logs."""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.log.open_files import DEFAULT_LIMIT
from triokafka.named_tuple import NamedTuple

FLUSH_TICK_MS: Final = 5_000
"""The longest interval between two checks of ``flush.ms``. With Kafka's default (never), ``flush.ms`` of a topic would
have no effect.
"""


class LogManagerConfig(NamedTuple):
    """Limits, and the intervals of the background work in milliseconds, with Kafka's defaults.

    ``max_open_files`` limits the open files of all logs. ``recovery_threads_per_data_dir`` limits the logs that are
    opened in parallel per data directory at the start. ``moves_at_once`` limits the logs that are moved to another data
    directory in parallel (None: the number of directories).
    """

    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = FLUSH_TICK_MS
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    max_open_files: int = DEFAULT_LIMIT
    recovery_threads_per_data_dir: int = 2
    moves_at_once: int | None = None

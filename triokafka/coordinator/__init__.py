"""The group coordinator: consumer groups and committed offsets, stored in a log that the broker provides.

Durable state lives in records of ``__consumer_offsets``. An operation produces records and an answer; durable state
changes only when records are replayed; the runtime holds the answer until the records are committed. This package does
no network I/O and does not know how the log is stored.
"""

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.log import CoordinatorLog
from triokafka.coordinator.partitioning import coordinator_partition
from triokafka.coordinator.service import GroupCoordinator
from triokafka.coordinator.topics import TopicsView
from triokafka.coordinator.turn import CoordinatorRecord

__all__ = [
    "CoordinatorLog",
    "CoordinatorRecord",
    "GroupCoordinator",
    "GroupCoordinatorConfig",
    "TopicsView",
    "coordinator_partition",
]

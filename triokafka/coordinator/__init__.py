"""The group coordinator: consumer groups and committed offsets, stored in a log that the broker provides.

Durable state lives in records of ``__consumer_offsets``. An operation produces records and an answer; durable state
changes only when records are replayed; the runtime holds the answer until the records are committed. This package does
no network I/O and does not know how the log is stored.
"""

from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog, CoordinatorRecord
from triokafka.coordinator.runtime.partitioning import coordinator_partition

__all__ = [
    "CoordinatorLog",
    "CoordinatorRecord",
    "GroupCoordinator",
    "GroupCoordinatorConfig",
    "TopicsView",
    "coordinator_partition",
]

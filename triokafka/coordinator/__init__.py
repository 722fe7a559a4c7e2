"""The coordinator of consumer groups, over a log that it is given.

State that must survive is records in ``__consumer_offsets``: an operation yields records and an answer, durable state
changes only by replaying records, and the answer is held until they are committed. Nothing here knows of sockets
or of how the log is kept.
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

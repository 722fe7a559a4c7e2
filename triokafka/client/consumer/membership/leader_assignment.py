"""The leader's part of a classic rebalance: running the assignor over the existing partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from triokafka.assignors import Assignment
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.membership.classic_member import ClassicMember
from triokafka.client.consumer.membership.topic_layout import TopicLayout, TopicLayoutCache
from triokafka.errors import KafkaError
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient
from triokafka.structs import first_names

logger = logging.getLogger(__name__)

_THREAD_SIZE: Final = 1_000
"""Number of members and partitions together from which on the assignor runs in a thread. With 1,000 members, 10,000
partitions and different subscriptions it takes seconds, which would block the event loop for too long."""


class LeaderAssignment:
    """Computes the assignment of the whole group, while this member leads it.

    ``assigned_layout`` is the layout of the topics for which this member, as the leader, last computed an assignment.
    """

    def __init__(
        self, member: ClassicMember, network: NetworkClient, tasks: BackgroundTasks, failures: FailureTracker
    ) -> None:
        self.assigned_layout: TopicLayout | None = None
        self._member = member
        self._network = network
        self._tasks = tasks
        self._failures = failures
        self._layouts = TopicLayoutCache()
        self._thread_done = trio.Event()
        self._thread_done.set()
        self._activity = f"assigning the partitions of group {member.config.group_id!r}"

    def layout(self) -> TopicLayout:
        """The topics of the group in the present metadata; with racks if any member names its rack (KIP-881)."""
        member = self._member
        return self._layouts.of(self._network.cluster, member.group_topics, in_racks=member.is_in_racks)

    async def compute(self) -> Mapping[str, Assignment]:
        """Look up the partition counts, and run the assignor."""
        group_id, topics = self._member.config.group_id, self._member.group_topics
        self._network.metadata.set_topics(topics)
        if any(topic not in self._network.cluster.topics for topic in topics):
            await self._network.refresh_metadata()
        layout = self.layout()
        missing = [topic for topic in topics if topic not in layout.counts]
        if missing:
            logger.warning("group %r subscribes to topics that do not exist (yet): %s", group_id, first_names(missing))
        self.assigned_layout = layout
        assign = self._member.assignment_function(layout.counts, layout.racks)
        if self._member.group_size + sum(layout.counts.values()) < _THREAD_SIZE:
            return assign()
        # In a task of its own: if the membership ends meanwhile, neither result nor error belongs to the next one.
        await trio.lowlevel.checkpoint_if_cancelled()
        outcome: list[dict[str, Assignment] | Exception] = []
        self._thread_done = trio.Event()
        self._tasks.start(self._run_in_thread, assign, outcome, name=f"kafka assignment of group {group_id}")
        await self.wait_for_thread()
        result = outcome[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def wait_for_thread(self) -> None:
        """Wait until no assignor runs in a thread. One that never returns is listed among the consumer's failures."""
        if not self._thread_done.is_set():
            names = [assignor.name for assignor in self._member.assignors]
            self._failures.failed(self._activity, KafkaError(f"{names} has not returned"), self._network.world.now())
        await self._thread_done.wait()
        self._failures.succeeded(self._activity)

    async def _run_in_thread(
        self, assign: Callable[[], dict[str, Assignment]], outcome: list[dict[str, Assignment] | Exception]
    ) -> None:
        # Closing the consumer cancels this task and abandons the thread: no join waits for it then.
        try:
            outcome.append(await self._network.world.run_in_abandonable_thread(assign))
        except Exception as error:
            outcome.append(error)
        self._thread_done.set()

    def abandon(self) -> None:
        """Note the end of the membership: an assignor that has not returned is not a failure of the next one."""
        self._failures.succeeded(self._activity)

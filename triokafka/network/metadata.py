"""The client's cluster metadata, and the rules for its refresh. Pure: no I/O, time is an argument."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from triokafka.backoff import Backoff
from triokafka.errors import BrokerResponseError, for_code, in_words
from triokafka.network.cluster import Cluster, PartitionMetadata, TopicMetadata, can_be_reached
from triokafka.protocol.api.metadata import MetadataResponse, MetadataResponseTopic
from triokafka.structs import Node, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NEVER: Final = float("inf")
_LEADER_NOT_AVAILABLE: Final = 5
_FIRST_RELIABLE_EPOCHS: Final = 9
_STEP: Final = 200
"""Partitions to take from a response in one step, which is about two milliseconds of work."""
_MOST_LISTED: Final = 20
"""Partitions and brokers that a log line lists."""


class Metadata:
    """The current `cluster` snapshot, the topics of interest, and when the next refresh is due.

    Topics unused for ``max_idle`` seconds are dropped. A request for new topics names only those, so that the broker
    need not describe all others again (KIP-526). Two attempts are at least a back-off apart, which grows with
    consecutive failures. ``version`` grows with every successful update and only then. An older leader epoch never
    replaces a newer one. Durations are seconds; ``now`` is the world's monotonic clock; ``chance`` returns uniform
    random numbers in [0, 1); ``on_due`` is called when a caller requests a refresh.
    """

    def __init__(
        self,
        *,
        max_age: float,
        max_idle: float,
        backoff: Backoff,
        chance: Callable[[], float],
        on_due: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = Cluster()
        self.version = 0
        self.all_topics = False
        self.last_success: float | None = None
        self.last_error: Exception | None = None
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._chance = chance
        self._on_due = on_due
        self._interest: dict[str, float] = {}
        self._pinned: dict[str, None] = {}
        self._need_update = False
        self._new_topics: dict[str, None] = {}
        self._asked_for: list[str] | None = []
        self._only_new = False  # in the last request
        self._refreshed_at: float | None = None  # when all topics of interest were last refreshed
        self._next_attempt_at = -_NEVER
        self._failures = 0
        self._listeners: list[Callable[[Cluster], None]] = []
        self._moved: set[str] = set()

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        """The known topics."""
        return self.cluster.topics

    @property
    def update_requested(self) -> bool:
        """Whether a requested refresh has not succeeded yet."""
        return self._need_update or bool(self._new_topics)

    def add_listener(self, listener: Callable[[Cluster], None]) -> None:
        """Call ``listener`` with every new snapshot, before waiting tasks wake."""
        self._listeners.append(listener)

    def use_topic(self, topic: str, now: float) -> bool:
        """Record a use of the topic. Return True when it is new; then a refresh is due."""
        known = topic in self._interest
        self._interest[topic] = now
        if not known and topic not in self._pinned:
            if not self._failures:
                self._next_attempt_at = -_NEVER  # a caller waits, and the cluster works
            self.request_topics([topic])
            return True
        return False

    def request_topics(self, topics: Iterable[str]) -> None:
        """Request metadata of new topics, without the others, as soon as the back-off allows."""
        self._new_topics.update(dict.fromkeys(topics))
        self._on_due()

    def forget_errors(self, topics: Iterable[str]) -> None:
        """Drop earlier errors of these topics, which do not concern a new caller."""
        errors = self.cluster.topic_errors
        old = [topic for topic in topics if topic in errors]
        if old:
            kept = {topic: code for topic, code in errors.items() if topic not in old}
            self.cluster = replace(self.cluster, topic_errors=kept)

    def set_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics that never expire (a consumer's). Request a refresh if one of them is new."""
        before, self._pinned = self._pinned, dict.fromkeys(topics)
        missing = [topic for topic in self._pinned if topic not in self.cluster.topics]
        if missing:
            if not self._failures and any(topic not in before and topic not in self._interest for topic in missing):
                self._next_attempt_at = -_NEVER  # as in `use_topic`
            self.request_update()

    def set_all_topics(self, wanted: bool) -> None:
        """Request all topics of the cluster (pattern subscriptions), or only the topics of interest."""
        asked, self.all_topics = self.all_topics, wanted
        if wanted and not asked:
            self.request_update()

    def forget_topic(self, topic: str) -> None:
        """Drop a topic from the topics of interest and from the snapshot."""
        self._interest.pop(topic, None)
        self._new_topics.pop(topic, None)
        if topic in self.cluster.topics:
            topics = {name: known for name, known in self.cluster.topics.items() if name != topic}
            self.cluster = replace(self.cluster, topics=topics)

    def request_update(self) -> int:
        """Request a refresh as soon as the back-off allows. Return the current version; a later one is the result."""
        self._need_update = True
        self._on_due()
        return self.version

    def begin_update(self, now: float) -> list[str] | None:
        """Begin a refresh. Return the topic names for the request, or None for all topics. Drop unused topics.

        A refresh that is requested from now on is a later one.
        """
        new = [topic for topic in self._new_topics if topic in self._interest or topic in self._pinned]
        self._only_new = bool(new) and not (self._need_update or self.all_topics or self._is_old(now))
        self._new_topics.clear()
        if self._only_new:
            self._asked_for = new
            return new
        self._need_update = False
        if self.all_topics:
            self._asked_for = None
            return None
        for topic, used_at in list(self._interest.items()):
            if now - used_at > self._max_idle and topic not in self._pinned:
                self.forget_topic(topic)
        self._asked_for = list(dict.fromkeys((*self._pinned, *self._interest)))
        return self._asked_for

    def is_requested(self, topic: str) -> bool:
        """Whether the last request includes the topic."""
        return self._asked_for is None or topic in self._asked_for

    def time_to_next_update(self, now: float) -> float:
        """Return the seconds until a refresh should start; 0 if due, infinity if there is nothing to refresh."""
        if self.update_requested:
            due = now
        elif self._refreshed_at is not None:
            due = self._refreshed_at + self._max_age
        else:
            return _NEVER
        return max(0.0, max(due, self._next_attempt_at) - now)

    def _is_old(self, now: float) -> bool:
        return self._refreshed_at is None or now >= self._refreshed_at + self._max_age

    def failed_update(self, now: float, error: Exception | None = None) -> None:
        """Record a failed refresh: the next one waits longer; the snapshot stays."""
        self.last_error = error
        self._need_update = True
        self._back_off(now, failed=True)

    def _back_off(self, now: float, *, failed: bool, answered: bool = False) -> None:
        self._failures = self._failures + 1 if failed else 0
        # Without jitter, of two clients that ask for a new topic the first one learns its leader first: a consumer that
        # begins at the end of the log, and then a producer.
        chance = 0.5 if answered and self._failures == 1 else self._chance()
        self._next_attempt_at = now + self._backoff.delay(self._failures, chance)

    def update(self, response: MetadataResponse, requested: list[str] | None, now: float, *, version: int = 13) -> bool:
        """Apply a response to a request for ``requested``, in ``version`` of the protocol.

        Return False, and count a failure, if the response contains no reachable broker.
        """
        before = self.version
        for _ in self.update_in_steps(response, requested, now, version=version):
            pass
        return self.version > before

    def update_in_steps(
        self, response: MetadataResponse, requested: list[str] | None, now: float, *, version: int = 13
    ) -> Generator[None, None, None]:
        """`update`, one portion of the topics for each step. The last step changes the snapshot, if anything does.

        Other methods may be called between the steps, but no other update may begin.
        """
        nodes = _nodes_of(response)
        if not nodes:
            self.failed_update(now, for_code(_LEADER_NOT_AVAILABLE)("the broker's response lists no broker"))
            return
        topics, errors, incomplete = yield from self._described_topics(response, nodes, version)
        incomplete = incomplete or any(name not in topics and name not in errors for name in requested or ())
        only_new = self._only_new and requested is not None
        changed = None
        if only_new:
            # Iterating over all unchanged topics as well would make the first uses of many topics slow.
            changed = frozenset((*topics, *errors))
            gone = errors.keys() - topics.keys()
            topics = {**self.cluster.topics, **topics}
            for name in gone:
                topics.pop(name, None)
        elif requested is not None:
            # The response lacks topics that were added after the request, and may omit requested ones: keep their
            # present metadata.
            for name, known in self.cluster.topics.items():
                if name not in topics and name not in errors and (name in self._interest or name in self._pinned):
                    topics[name] = known
        if requested is not None:
            asked = set(requested)
            errors.update(
                (name, code) for name, code in self.cluster.topic_errors.items() if self._is_kept(name, asked)
            )
        cluster_id = response.cluster_id or self.cluster.cluster_id
        cluster = Cluster(nodes, topics, errors, response.controller_id, cluster_id, changed)
        if only_new:
            if incomplete:
                self._new_topics.update(dict.fromkeys(requested or ()))
        else:
            self._need_update |= incomplete
            self._refreshed_at = now
            if requested is not None:
                wanted = (*self._pinned, *self._interest)
                self._new_topics.update((topic, None) for topic in wanted if topic not in asked)
        self.last_success = now
        self.last_error = None
        self.version += 1
        self._back_off(now, failed=incomplete, answered=True)
        self._install(cluster)

    def _described_topics(
        self, response: MetadataResponse, nodes: Mapping[int, Node], version: int
    ) -> Generator[None, None, tuple[dict[str, TopicMetadata], dict[str, int], bool]]:
        """Return the topics and the errors of topics in a response, and whether it should be requested again soon."""
        topics: dict[str, TopicMetadata] = {}
        errors: dict[str, int] = {}
        incomplete = False
        reliable_epochs = version >= _FIRST_RELIABLE_EPOCHS
        self._moved.clear()
        size = 0
        for described in response.topics:
            size += 1 + len(described.partitions)
            if size >= _STEP:
                size = 0
                yield
            name = described.name
            if name is None:
                continue
            if described.error_code:
                errors[name] = described.error_code
                incomplete = incomplete or for_code(described.error_code).retriable
                if described.error_code != _LEADER_NOT_AVAILABLE or not described.partitions:
                    continue
            topic = yield from self._topic_of(described, reliable_epochs=reliable_epochs)
            if topic is None:
                incomplete = True
                continue
            topics[name] = topic
            incomplete = incomplete or any(p.leader not in nodes for p in topic.partitions.values())
        if self._moved:
            # Leaders that became known between the steps are newer than the response, or it confirms them.
            for described in response.topics:
                if described.name in self._moved and described.name in topics:
                    newer = _at_once(self._topic_of(described, reliable_epochs=reliable_epochs))
                    topics[described.name] = newer or topics[described.name]
        return topics, errors, incomplete

    def _is_kept(self, topic: str, asked: set[str]) -> bool:
        """Whether an earlier error of a topic remains valid after a response for the topics in ``asked``."""
        return topic not in asked and (topic in self._interest or topic in self._pinned)

    def _topic_of(
        self, described: MetadataResponseTopic, *, reliable_epochs: bool
    ) -> Generator[None, None, TopicMetadata | None]:
        """Return the new metadata of the topic, in steps; None if the description is inconsistent."""
        name = described.name or ""
        in_order = sorted(described.partitions, key=lambda p: p.partition_index)
        numbers = [p.partition_index for p in in_order]
        if not numbers or numbers != list(range(len(numbers))):
            listed = f"{numbers[:_MOST_LISTED]}" + (" and more" if len(numbers) > _MOST_LISTED else "")
            logger.warning("Metadata: topic %r has inconsistent partitions %s; requesting it again", name, listed)
            return None
        before = self.cluster.topics.get(name)
        if before is not None and before.topic_id.int and described.topic_id.int not in (0, before.topic_id.int):
            before = None  # deleted and recreated: its old epochs are meaningless
        partitions: dict[int, PartitionMetadata] = {}
        for p in in_order:
            if p.partition_index % _STEP == _STEP - 1:
                yield
            epoch = p.leader_epoch if reliable_epochs else -1
            old = before.partitions.get(p.partition_index) if before is not None else None
            if old is not None and 0 <= epoch < old.leader_epoch:
                partitions[p.partition_index] = old
                continue
            partitions[p.partition_index] = PartitionMetadata(
                p.partition_index,
                p.leader_id if p.error_code != _LEADER_NOT_AVAILABLE else -1,
                epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas or ()),
                p.error_code,
            )
        return TopicMetadata(name, described.topic_id, described.is_internal, partitions)

    def _install(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for listener in list(self._listeners):
            listener(cluster)

    def update_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> bool:
        """Apply a new leader from an error response (KIP-951). Return True when it changed the snapshot."""
        partition = self.cluster.partition(topic_partition)
        if partition is None or leader_epoch <= partition.leader_epoch or leader < 0:
            return False
        nodes = dict(self.cluster.nodes)
        if node is not None and can_be_reached(node):
            nodes[leader] = node
        if leader not in nodes:
            return False
        topic = self.cluster.topics[topic_partition[0]]
        changed = replace(partition, leader=leader, leader_epoch=leader_epoch)
        partitions = {**topic.partitions, topic_partition[1]: changed}
        topics = {**self.cluster.topics, topic.name: replace(topic, partitions=partitions)}
        self._moved.add(topic.name)
        self._install(replace(self.cluster, nodes=nodes, topics=topics, changed=frozenset((topic.name,))))
        return True

    def error_for(self, topic: str) -> BrokerResponseError | None:
        """Return the error of a topic in the last metadata response; None without one."""
        code = self.cluster.topic_errors.get(topic, 0)
        if not code:
            return None
        kind = for_code(code)
        return kind(f"topic {topic!r}: {in_words(kind)}")


def _at_once(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _nodes_of(response: MetadataResponse) -> dict[int, Node]:
    nodes: dict[int, Node] = {}
    impossible: list[Node] = []
    for broker in response.brokers:
        node = Node(broker.node_id, broker.host, broker.port, broker.rack)
        if can_be_reached(node):
            nodes[node.node_id] = node
        else:
            impossible.append(node)
    if impossible:
        named = ", ".join(map(str, impossible[:_MOST_LISTED])) + (" …" if len(impossible) > _MOST_LISTED else "")
        logger.warning(
            "Metadata: ignored %d brokers whose address is invalid (advertised.listeners): %s", len(impossible), named
        )
    return nodes

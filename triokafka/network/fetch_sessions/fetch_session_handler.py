"""Incremental fetch sessions with one broker (KIP-227). A plain object: no I/O, no clock.

The broker stores the partitions of the last fetch; a request names only the changed ones. After any doubt a full
request lists all partitions again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Final, NamedTuple

from triokafka.protocol.api.fetch import FetchPartition, FetchTopic, ForgottenTopic
from triokafka.structs import TopicPartition

_FETCH_SESSION_ID_NOT_FOUND: Final = 70
_MAX_EPOCH: Final = 2**31 - 1
_FIRST_VERSION_WITH_SESSIONS: Final = 7
NO_TOPIC_ID: Final = uuid.UUID(int=0)


class FetchTarget(NamedTuple):
    """The fetch position of one partition.

    As in Kafka's consumer, ``last_fetched_epoch`` (KIP-595) is not sent; it is for followers. The epoch of a position
    from ListOffsets is the leader's own: other logs may lack it without being truncated.
    """

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    topic_id: uuid.UUID = NO_TOPIC_ID
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchPlan(NamedTuple):
    """The partition part of one fetch request."""

    session_id: int
    epoch: int
    send: Mapping[TopicPartition, FetchTarget]
    forget: Sequence[tuple[TopicPartition, uuid.UUID]]
    targets: Mapping[TopicPartition, FetchTarget]
    """All partitions that may be in the response; valid until the next plan of the session."""

    def topics(self, version: int) -> list[FetchTopic]:
        """Return the partitions to send in a request of this version; without sessions, all of them."""
        topics: dict[str, FetchTopic] = {}
        partitions = self.send if version >= _FIRST_VERSION_WITH_SESSIONS else self.targets
        for partition, target in partitions.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = FetchTopic(topic=partition.topic, topic_id=target.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=target.current_leader_epoch,
                    fetch_offset=target.fetch_offset,
                    partition_max_bytes=target.max_bytes,
                    last_fetched_epoch=target.last_fetched_epoch,
                    log_start_offset=target.log_start_offset,
                )
            )
        return list(topics.values())

    def forgotten_topics(self, version: int) -> list[ForgottenTopic]:
        """Return the partitions to remove from the session."""
        forgotten: dict[tuple[str, uuid.UUID], ForgottenTopic] = {}
        for partition, topic_id in self.forget if version >= _FIRST_VERSION_WITH_SESSIONS else ():
            key = (partition.topic, topic_id)
            if key not in forgotten:
                forgotten[key] = ForgottenTopic(topic=partition.topic, topic_id=topic_id)
            forgotten[key].partitions.append(partition.partition)
        return list(forgotten.values())


class FetchSessionHandler:
    """The client's half of the session with one broker; one request is outstanding at a time."""

    def __init__(self) -> None:
        self.session_id = 0
        """The session id; 0 without a session."""
        self._epoch = 0
        self._known: dict[TopicPartition, FetchTarget] = {}

    def plan(self, targets: Mapping[TopicPartition, FetchTarget]) -> FetchPlan:
        """Return the request for ``targets``, in their order."""
        if self._epoch == 0:
            self._known = dict(targets)
            return FetchPlan(self.session_id, 0, self._known, (), self._known)
        known = self._known
        if (
            len(targets) == len(known)
            and all(map(is_, targets.values(), known.values()))
            and list(targets) == list(known)
        ):
            # The caller repeats all targets: with thousands of partitions at rest, this is most of the work.
            return FetchPlan(self.session_id, self._epoch, {}, (), dict(known))
        send: dict[TopicPartition, FetchTarget] = {}
        forget: list[tuple[TopicPartition, uuid.UUID]] = []
        for partition, before in list(self._known.items()):
            now = targets.get(partition)
            if now is None or now.topic_id != before.topic_id:
                # A recreated topic is another topic: remove the old one and add the new one.
                forget.append((partition, before.topic_id))
                del self._known[partition]
        for partition, target in targets.items():
            # Re-inserted, so that the broker's rotation follows the order of this request.
            if self._known.pop(partition, None) != target:
                send[partition] = target
            self._known[partition] = target
        return FetchPlan(self.session_id, self._epoch, send, forget, dict(self._known))

    @property
    def is_new(self) -> bool:
        """Whether the next request lists all partitions, because it begins a session."""
        return self._epoch == 0

    def size_after(self, changes: Mapping[TopicPartition, FetchTarget | None]) -> int:
        """Return how many partitions the session would have after `plan_changes`."""
        known = self._known
        return len(known) + sum((target is not None) - (partition in known) for partition, target in changes.items())

    def plan_changes(self, changes: Mapping[TopicPartition, FetchTarget | None]) -> FetchPlan:
        """Return the request that changes some partitions of the session, in their order; None removes one.

        The same as `plan` with all targets, at a cost that does not depend on their number. Not for a new session.
        """
        known = self._known
        send: dict[TopicPartition, FetchTarget] = {}
        forget: list[tuple[TopicPartition, uuid.UUID]] = []
        for partition, target in changes.items():
            before = known.get(partition)
            if before is not None and (target is None or target.topic_id != before.topic_id):
                forget.append((partition, before.topic_id))
                del known[partition]
            if target is not None and target != before:
                send[partition] = known[partition] = target
        return FetchPlan(self.session_id, self._epoch, send, forget, known)

    def answered(self, session_id: int, error_code: int) -> bool:
        """Process the top of a response. Return whether its partitions can be used."""
        if error_code:
            # With an unknown id there is nothing to close; otherwise a full request under the id replaces the session.
            if error_code == _FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            self._epoch = 0
            return False
        if session_id == 0:
            self.session_id = self._epoch = 0
        elif self._epoch == 0:
            self.session_id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1
        return True

    def failed(self) -> None:
        """Start over, because the request may or may not have reached the broker."""
        self._epoch = 0

"""Incremental fetch sessions with one broker (KIP-227). A plain object: no I/O, no clock.

The broker remembers the partitions of the last fetch; a request names only those that changed. Any doubt ends in a full
request, which lists everything anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from triokafka.protocol.api.fetch import FetchPartition, FetchTopic, ForgottenTopic
from triokafka.structs import TopicPartition

_FETCH_SESSION_ID_NOT_FOUND: Final = 70
_MAX_EPOCH: Final = 2**31 - 1
_FIRST_VERSION_WITH_SESSIONS: Final = 7
NO_TOPIC_ID: Final = uuid.UUID(int=0)


class FetchTarget(NamedTuple):
    """What to fetch of one partition.

    As from Kafka's consumer, there goes no ``last_fetched_epoch`` with it (KIP-595), which is for followers: the epoch
    of a position that ListOffsets gave is the leader's own, which other logs need not have though nothing was cut off.
    """

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    topic_id: uuid.UUID = NO_TOPIC_ID


class FetchPlan(NamedTuple):
    """The partition part of one fetch request."""

    session_id: int
    epoch: int
    send: Mapping[TopicPartition, FetchTarget]
    forget: Sequence[tuple[TopicPartition, uuid.UUID]]
    targets: Mapping[TopicPartition, FetchTarget]
    """All partitions that the broker may answer for."""

    def topics(self, version: int) -> list[FetchTopic]:
        """The partitions to send in a request of this version: without sessions all of them."""
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
                )
            )
        return list(topics.values())

    def forgotten_topics(self, version: int) -> list[ForgottenTopic]:
        """The partitions that the session is to forget."""
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
        self._id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, FetchTarget] = {}

    @property
    def session_id(self) -> int:
        """The broker's number for this session, 0 while there is none."""
        return self._id

    def plan(self, targets: Mapping[TopicPartition, FetchTarget]) -> FetchPlan:
        """What to send in order to fetch ``targets``, in their order."""
        if self._epoch == 0:
            self._known = dict(targets)
            return FetchPlan(self._id, 0, self._known, (), self._known)
        send: dict[TopicPartition, FetchTarget] = {}
        forget: list[tuple[TopicPartition, uuid.UUID]] = []
        for partition, before in list(self._known.items()):
            now = targets.get(partition)
            if now is None or now.topic_id != before.topic_id:
                # A topic deleted and made again is another one: the old is forgotten, the new one added.
                forget.append((partition, before.topic_id))
                del self._known[partition]
        for partition, target in targets.items():
            # Re-inserted, so that the broker's rotation follows the order of this request.
            if self._known.pop(partition, None) != target:
                send[partition] = target
            self._known[partition] = target
        return FetchPlan(self._id, self._epoch, send, forget, dict(self._known))

    def answered(self, session_id: int, error_code: int) -> bool:
        """Take in the top of a response. Returns whether its partitions can be used."""
        if error_code:
            # With an unknown id there is nothing to close; otherwise a full request under the id replaces the session.
            if error_code == _FETCH_SESSION_ID_NOT_FOUND:
                self._id = 0
            self._epoch = 0
            return False
        if session_id == 0:
            self._id = self._epoch = 0
        elif self._epoch == 0:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1
        return True

    def failed(self) -> None:
        """The request may or may not have reached the broker: start over."""
        self._epoch = 0

"""Incremental fetch sessions with one broker (KIP-227). A plain object: no I/O, no clock.

The broker remembers the partitions of the last fetch; a request names only those that changed. Any doubt ends in a full
request, which lists everything anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from triokafka.structs import TopicPartition

_FETCH_SESSION_ID_NOT_FOUND: Final = 70
_MAX_EPOCH: Final = 2**31 - 1
NO_TOPIC_ID: Final = uuid.UUID(int=0)


class FetchTarget(NamedTuple):
    """What to fetch of one partition."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    topic_id: uuid.UUID = NO_TOPIC_ID


class FetchPlan(NamedTuple):
    """The partition part of one fetch request."""

    session_id: int
    epoch: int
    send: Mapping[TopicPartition, FetchTarget]
    forget: Sequence[tuple[TopicPartition, uuid.UUID]]
    targets: Mapping[TopicPartition, FetchTarget]
    """All partitions that the broker may answer for."""


class FetchSession:
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

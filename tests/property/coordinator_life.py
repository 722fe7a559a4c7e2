"""The common part of all random schedules of a coordinator's shard: a log that fails, lags, is lost and compacted;
changes of leadership; requests whose responses are counted; and the state that follows from the log, computed
independently.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from tests.property.lives import Draw, Life
from tests.unit.coordinator.rig import PARTITION, Rig, ScriptedLog
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import (
    Change,
    CommittedOffset,
    GroupChange,
    OffsetChange,
    OffsetKey,
    decode,
)
from triokafka.coordinator.runtime import replay
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.errors import (
    BrokerResponseError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RecordListTooLargeError,
    RequestTimedOutError,
)
from triokafka.protocol.stored.group_metadata import GroupMetadataValue

FAILURES: tuple[type[Exception], ...] = (
    NotLeaderForPartitionError,
    KafkaStorageError,
    NotEnoughReplicasError,
    RecordListTooLargeError,
    RequestTimedOutError,
    OSError,
)
SOFT = ("topics_version", "patterns_checked")


class CountedReply(Reply[Any]):
    """A reply that counts its responses, and records since when a caller waits for it."""

    __slots__ = ("answers", "asked_at")

    def __init__(self, asked_at: float = 0.0) -> None:
        super().__init__()
        self.answers = 0
        self.asked_at = asked_at

    def set(self, value: Any) -> None:
        self.answers += 1
        super().set(value)

    def fail(self, error: KafkaError) -> None:
        self.answers += 1
        super().fail(error)


class _Defects(logging.Handler):
    """Collects exceptions that the coordinator only logs, so that a defect in one group does not stop the others."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


DEFECTS = _Defects()


@contextmanager
def watched() -> Iterator[None]:
    """Collect defects; load in small steps, so that other steps can happen between them; and suppress other
    log lines.
    """
    logger, steps = logging.getLogger("triokafka.coordinator"), replay._RECORDS_PER_STEP
    level, propagates = logger.level, logger.propagate
    logger.addHandler(DEFECTS)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    replay._RECORDS_PER_STEP = 5  # type: ignore[misc]
    try:
        yield
    finally:
        logger.removeHandler(DEFECTS)
        logger.setLevel(level)
        logger.propagate = propagates
        replay._RECORDS_PER_STEP = steps  # type: ignore[misc]


def code(reply: Reply[Any]) -> int:
    """Return the error code of a response; the first one if there are several."""
    try:
        value = reply.value
    except BrokerResponseError as error:
        return error.code
    if isinstance(value, list):
        return next((int(one.error_code) for one in value if one.error_code), 0)
    topics = getattr(value, "topics", None)
    if topics is not None:
        return next((int(p.error_code) for topic in topics for p in topic.partitions if p.error_code), 0)
    return int(value.error_code)


class CoordinatorLife(Life):
    """One shard under its runtime, on a log with every kind of failure.

    ``offsets``, ``stored`` and ``consumer_groups`` are the state in the log, folded here record by record. ``waiting``
    are the requests without a response, the oldest first.
    """

    LONGEST_WAIT: ClassVar[float] = 60.0
    """Seconds after which no request may be without an answer while the shard is here."""

    NEW_LOG: ClassVar[type[ScriptedLog]] = ScriptedLog

    def begin(self, **config: int) -> None:
        """Create the shard. Must be called first."""
        DEFECTS.found.clear()
        self.rig = Rig(self.NEW_LOG(), **config)
        self.rig.new_reply = self._new_reply
        self.waiting: deque[CountedReply] = deque()
        self.answered: list[CountedReply] = []
        self.epochs_seen = [self.rig.epoch]
        self._fold_afresh()

    @property
    def now(self) -> float:
        return self.rig.world.clock

    @property
    def is_here(self) -> bool:
        """Whether the shard serves requests."""
        return self.rig.runtime.state(PARTITION) is ShardState.ACTIVE

    def _new_reply(self) -> CountedReply:
        reply = CountedReply(self.now)
        self.waiting.append(reply)
        return reply

    # --- steps: the log ---

    def appends_fail(self, draw: Draw) -> None:
        self.rig.log.fails_with = draw.of(FAILURES)("the log refuses")
        self.rig.log.failures_left = draw.of((1, 1, 1, 2, 3))

    def commits_lag_or_not(self, draw: Draw) -> None:
        self.rig.log.commits_at_once = not self.rig.log.commits_at_once
        if self.rig.log.commits_at_once:
            self.rig.commit_log()

    def high_watermark_moves(self, draw: Draw) -> None:
        """Advance it to the log end, or by a batch or two."""
        if draw.one_in(2):
            self.rig.commit_log()
            return
        log = self.rig.log
        beyond = [end for end in log.ends if end > log.high_watermark(PARTITION)][: draw.of((1, 2))]
        if beyond:
            log.high_watermarks[PARTITION] = beyond[-1]
            self.rig.runtime.high_watermark_changed(PARTITION, beyond[-1])

    # --- steps: leadership ---

    def coordinator_restarts(self, draw: Draw) -> None:
        """Load the log again: all of it, or only its committed part, or the rest after compaction."""
        self._move_away(None)
        how = draw.of(("as it is", "lost", "lost", "compacted"))
        if how == "lost":
            self._lose_uncommitted()
        elif how == "compacted":
            self.rig.log.compact(PARTITION)
        self._lead(draw.of((1, 2)))
        self.rig.runtime.load_all()
        assert self.is_here
        self.loaded()

    def leadership_moves_away(self, draw: Draw) -> None:
        """Another broker leads, with or without the uncommitted records."""
        if self.rig.runtime.state(PARTITION) is None:
            return
        self._move_away(draw.of((None, self.rig.epoch, self.rig.epoch + 1)))
        if draw.one_in(2):
            self._lose_uncommitted()
        else:
            self.rig.commit_log()

    def leadership_comes(self, draw: Draw) -> None:
        """Lead in a newer epoch, whether or not this broker leads already; no record is loaded yet."""
        self._lead(draw.of((1, 1, 5)))

    def some_of_the_log_is_read(self, draw: Draw) -> None:
        for _ in range(draw.of((1, 2, 5))):
            self._load_step()

    def late_news_of_leadership(self, draw: Draw) -> None:
        """A change of an older epoch has no effect."""
        before, open_before = self.rig.runtime.state(PARTITION), len(self.waiting)
        if before is None:
            return
        older = draw.of((0, self.rig.epoch - 1, self.rig.epoch))
        if draw.one_in(2) or older == self.rig.epoch:
            self.rig.runtime.load(PARTITION, older)
        else:
            self.rig.runtime.unload(PARTITION, older)
        assert self.rig.runtime.state(PARTITION) is before
        assert sum(not reply.is_set for reply in self.waiting) <= open_before

    def log_cannot_be_read(self, draw: Draw) -> None:
        """No request is served here until this broker leads in another epoch."""
        self._move_away(None)
        self.rig.log.unreadable = draw.of((KafkaStorageError("the disk is gone"), OSError("a bad block")))
        self._lead(1)
        self.rig.runtime.load_all()
        self.rig.log.unreadable = None
        assert self.rig.runtime.state(PARTITION) is ShardState.FAILED
        assert len(DEFECTS.found) == 1, "the broker's log has one error"
        DEFECTS.found.clear()
        if draw.one_in(2):
            self._lead(1)

    def _lead(self, epochs_later: int) -> None:
        self.rig.epoch += epochs_later
        self.rig.runtime.load(PARTITION, self.rig.epoch)
        self._take_answers()

    def _move_away(self, epoch: int | None) -> None:
        self.rig.runtime.unload(PARTITION, epoch)
        assert self.rig.runtime.state(PARTITION) is None
        self._take_answers()
        assert not self.waiting, "a request still waits for a shard that has moved away"

    def _load_step(self) -> None:
        was_here = self.is_here
        self.rig.runtime.load_step()
        if self.is_here and not was_here:
            self.loaded()

    def _lose_uncommitted(self) -> None:
        self.rig.log.lose_uncommitted(PARTITION)
        self._fold_afresh()

    def loaded(self) -> None:
        """The shard is active again, from the log alone. For machines that remember more."""

    # --- steps: time ---

    def pass_time(self, draw: Draw) -> None:
        self.let_pass(draw.of((0.5, 1.0, 3.0, 5.0, 9.0, 16.0, 16.0, 300.0)))

    def let_pass(self, seconds: float) -> None:
        self.rig.pass_time(seconds)

    # --- the state in the log ---

    def _fold_afresh(self) -> None:
        self.folded = 0
        self.offsets: dict[OffsetKey, CommittedOffset] = {}
        self.stored: dict[str, GroupMetadataValue] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.follow_log()

    def follow_log(self) -> None:
        """Apply the records appended since the last call."""
        records = self.rig.log.records.get(PARTITION, [])
        for offset in range(self.folded, len(records)):
            change = decode(*records[offset])
            assert change is not None
            self.fold(change, offset)
        self.folded = len(records)

    def fold(self, change: Change, offset: int) -> None:
        """Apply one change in the simplest possible way."""
        if isinstance(change, OffsetChange):
            if change.value is None:
                self.offsets.pop(change.key, None)
            else:
                self.offsets[change.key] = change.value
        elif isinstance(change, GroupChange):
            if change.value is None:
                self.stored.pop(change.group_id, None)
            else:
                self.stored[change.group_id] = change.value
        else:
            group = self.consumer_groups.setdefault(change.group_id, ConsumerGroup(change.group_id))
            group.replay(change)
            if group.is_gone:
                del self.consumer_groups[change.group_id]

    # --- the invariants ---

    def check(self) -> None:
        self._take_answers()
        self.follow_log()
        assert not DEFECTS.found, DEFECTS.found[0].exc_text or DEFECTS.found[0].getMessage()
        if self.waiting:
            assert self.is_here, "requests wait forever for a shard that is not here"
            waited = self.now - self.waiting[0].asked_at
            assert waited <= self.LONGEST_WAIT, f"a request waits for {waited:g} seconds"
        if self.is_here:
            self.check_shard(self.rig.shard)

    def check_shard(self, shard: GroupShard) -> None:
        """Check that the log replays into the state. Machines add their own checks."""
        found: dict[Any, Any] = {}
        for group_id in shard.offsets.groups():
            found.update(shard.offsets.newest(group_id))
        assert found == self.offsets
        assert {name for name in shard.groups if shard.is_stored(name)} == self.stored.keys()
        assert shard.consumer_groups.keys() == self.consumer_groups.keys()
        for name, group in shard.consumer_groups.items():
            assert _durable(group) == _durable(self.consumer_groups[name])

    def _take_answers(self) -> None:
        if any(reply.is_set for reply in self.waiting):
            self.answered += [reply for reply in self.waiting if reply.is_set]
            self.waiting = deque(reply for reply in self.waiting if not reply.is_set)

    def end_faults(self) -> None:
        """End all faults: from now on the log works, and the shard is here."""
        self.rig.log.fails_with = None
        self.rig.log.commits_at_once = True
        self.rig.commit_log()
        if not self.is_here:
            self._lead(1)
            self.rig.runtime.load_all()
            self.loaded()
        assert self.is_here
        self.check()

    def check_all_answered(self) -> None:
        """Check that each request had exactly one response."""
        self._take_answers()
        assert not self.waiting, f"{len(self.waiting)} requests have no response"
        assert {reply.answers for reply in self.answered} <= {1}, "a request had two responses"


def _durable(group: ConsumerGroup) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if name not in SOFT}

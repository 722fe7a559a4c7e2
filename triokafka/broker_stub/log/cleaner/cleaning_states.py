"""The cleaning states of partitions: which are being cleaned, and which are paused.

A partition is idle, in progress, aborted while in progress, or paused any number of times. An aborted pass continues
until its next check. Another pass may begin only after it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition


@dataclass(slots=True)
class _State:
    in_progress: bool = False
    aborted: bool = False
    pauses: int = 0


class CleaningStates:
    """The cleaning states of all partitions; idle partitions take no memory."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, _State] = {}

    def in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass is running, including an aborted one."""
        state = self._states.get(topic_partition)
        return state is not None and state.in_progress

    def is_idle(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass may begin."""
        return topic_partition not in self._states

    def is_paused(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is paused."""
        state = self._states.get(topic_partition)
        return state is not None and state.pauses > 0

    def all_in_progress(self) -> list[TopicPartition]:
        """Partitions with a running pass."""
        return [topic_partition for topic_partition, state in self._states.items() if state.in_progress]

    def begin(self, topic_partition: TopicPartition) -> None:
        """Mark the partition as being cleaned. Raises `IllegalStateError` unless it is idle."""
        if not self.is_idle(topic_partition):
            raise IllegalStateError(f"{topic_partition} cannot be cleaned now: {self._states[topic_partition]}")
        self._states[topic_partition] = _State(in_progress=True)

    def abort(self, topic_partition: TopicPartition) -> None:
        """Abort the pass over the partition, if one is running."""
        state = self._states.get(topic_partition)
        if state is not None and state.in_progress:
            state.aborted = True

    def is_aborted(self, topic_partition: TopicPartition) -> bool:
        """Whether the pass was aborted."""
        state = self._states.get(topic_partition)
        return state is not None and state.aborted

    def pause(self, topic_partition: TopicPartition) -> None:
        """Prevent new passes until `resume` was called as often as `pause`; abort a running pass."""
        self._states.setdefault(topic_partition, _State()).pauses += 1
        self.abort(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `pause`. Raises `IllegalStateError` when the partition is not paused."""
        state = self._states.get(topic_partition)
        if state is None or not state.pauses:
            raise IllegalStateError(f"the cleaning of {topic_partition} is not paused")
        state.pauses -= 1
        self._forget_idle(topic_partition, state)

    def end(self, topic_partition: TopicPartition) -> bool:
        """End the pass; return whether it was aborted. Raises `IllegalStateError` when no pass is running."""
        state = self._states.get(topic_partition)
        if state is None or not state.in_progress:
            raise IllegalStateError(f"{topic_partition} is not being cleaned")
        aborted = state.aborted
        state.in_progress = state.aborted = False
        self._forget_idle(topic_partition, state)
        return aborted

    def _forget_idle(self, topic_partition: TopicPartition, state: _State) -> None:
        if not (state.in_progress or state.pauses):
            del self._states[topic_partition]

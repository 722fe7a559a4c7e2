"""Which partitions are being cleaned, and which must not be.

A partition is idle, or in progress, or in progress and told to stop, or paused any number of times. A pass that was
told to stop goes on until it looks again; only then the partition is really free, and another pass may begin.
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
    """The states of all partitions; idle ones cost nothing."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, _State] = {}

    def in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass is under way, also one that was told to stop."""
        state = self._states.get(topic_partition)
        return state is not None and state.in_progress

    def is_idle(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass may begin."""
        return topic_partition not in self._states

    def is_paused(self, topic_partition: TopicPartition) -> bool:
        """Whether somebody has paused the partition and not resumed it."""
        state = self._states.get(topic_partition)
        return state is not None and state.pauses > 0

    def all_in_progress(self) -> list[TopicPartition]:
        """Partitions with a pass under way."""
        return [topic_partition for topic_partition, state in self._states.items() if state.in_progress]

    def begin(self, topic_partition: TopicPartition) -> None:
        """A pass begins. Raises `IllegalStateError` unless the partition is idle."""
        if not self.is_idle(topic_partition):
            raise IllegalStateError(f"{topic_partition} cannot be cleaned now: {self._states[topic_partition]}")
        self._states[topic_partition] = _State(in_progress=True)

    def abort(self, topic_partition: TopicPartition) -> None:
        """Tell a pass to stop, if there is one."""
        state = self._states.get(topic_partition)
        if state is not None and state.in_progress:
            state.aborted = True

    def is_aborted(self, topic_partition: TopicPartition) -> bool:
        """Whether the pass was told to stop."""
        state = self._states.get(topic_partition)
        return state is not None and state.aborted

    def pause(self, topic_partition: TopicPartition) -> None:
        """Let no pass begin until `resume` was called as often; one that is under way is told to stop."""
        self._states.setdefault(topic_partition, _State()).pauses += 1
        self.abort(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take back one `pause`. Raises `IllegalStateError` when there was none."""
        state = self._states.get(topic_partition)
        if state is None or not state.pauses:
            raise IllegalStateError(f"the cleaning of {topic_partition} is not paused")
        state.pauses -= 1
        self._forget_idle(topic_partition, state)

    def end(self, topic_partition: TopicPartition) -> bool:
        """The pass is over; returns whether it was told to stop. Raises `IllegalStateError` when there was none."""
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

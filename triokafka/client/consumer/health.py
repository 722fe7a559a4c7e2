"""How a consumer is doing, as plain values: what `Consumer.health` and `Consumer.metrics` return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triokafka.structs import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One assigned partition. ``lag`` is how many offsets lie between position and end; None while unknown."""

    position: int | None
    high_watermark: int | None
    lag: int | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHealth:
    """A consumer at one moment. Ages are seconds; None means never.

    ``state`` is in words: what the member of the group is doing, or that there is no group. ``troubles`` are sentences
    about what fails at the moment, the longest first; ``failure`` is what made the consumer unusable.
    """

    state: str
    member_id: str
    generation: int
    last_heartbeat_age: float | None
    last_fetch_age: float | None
    last_poll_age: float | None
    assignment_age: float | None
    partitions: Mapping[TopicPartition, PartitionHealth]
    troubles: tuple[str, ...]
    failure: Exception | None

    @property
    def healthy(self) -> bool:
        """Whether nothing fails."""
        return self.failure is None and not self.troubles

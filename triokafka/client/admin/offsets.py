"""Offsets of partitions, looked up by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import Results
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.structs import OffsetAndTimestamp, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_MIN_VERSION_FOR: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_SPECS: Final = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


class OffsetAdmin:
    """The part of `AdminClient` about offsets of partitions."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, str | int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets: ``"earliest"``, ``"latest"``, ``"max_timestamp"``, or the first at or after a time in ms.

        The offset is -1 if no record is at or after that time. Reading a partition that failed raises its error.
        """
        wanted = {tp: _timestamp(spec) for tp, spec in partitions.items()}
        if isolation_level not in _ISOLATION:
            raise ValueError(f"isolation_level={isolation_level!r} is not one of {', '.join(_ISOLATION)}")
        min_version = max([_MIN_VERSION_FOR.get(timestamp, 1) for timestamp in wanted.values()], default=1)
        if isolation_level == "read_committed":
            min_version = max(min_version, 2)

        async def ask(
            node_id: int, items: list[TopicPartition], call: CallRouting
        ) -> Mapping[TopicPartition, OffsetAndTimestamp | Exception]:
            topics: dict[str, ListOffsetsTopic] = {}
            for tp in items:
                topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
                topic.partitions.append(
                    ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=wanted[tp])
                )
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=_ISOLATION[isolation_level], topics=list(topics.values())
            )
            response = await call.to_node(node_id, request, min_version=min_version)
            outcomes: dict[TopicPartition, OffsetAndTimestamp | Exception] = {}
            for t in response.topics:
                for p in t.partitions:
                    tp = TopicPartition(t.name, p.partition_index)
                    outcomes[tp] = self._retries.error(p.error_code, tp) or OffsetAndTimestamp(
                        p.offset, p.timestamp, p.leader_epoch
                    )
            return outcomes

        async def do_round(
            items: list[TopicPartition], call: CallRouting
        ) -> Mapping[TopicPartition, OffsetAndTimestamp | Exception]:
            leaderless: dict[TopicPartition, OffsetAndTimestamp | Exception] = {}
            by_leader = await call.by_leader(items, leaderless)
            return leaderless | await call.side_by_side(by_leader, ask)

        return await self._retries.each(wanted, do_round, timeout_ms)


def _timestamp(spec: str | int) -> int:
    if isinstance(spec, str):
        if spec not in _SPECS:
            raise ValueError(f"{spec!r} is not an offset to look up: use {', '.join(_SPECS)}, or milliseconds")
        return _SPECS[spec]
    return spec

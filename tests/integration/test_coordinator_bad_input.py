"""Bad input to the group coordinator over real connections: the right error, bounded state, no effect on
other groups.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trio

from triokafka.broker_stub.broker import Broker
from triokafka.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from triokafka.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.testing import RunningBroker, running_broker

R = TypeVar("R", bound=Response)

AT_ONCE = 50
OPTIONS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 100,
    "offsets_topic_num_partitions": 4,
    "offsets_retention_check_interval_ms": 500,
}


class Connection:
    """One connection on which requests of any version are sent; responses arrive in order."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def call(self, request: Request[R], version: int) -> R:
        """Send one request, and wait for its response."""
        await self.send([request], version)
        return await self.receive(request.response_type, version)

    async def send(self, requests: Iterable[Request[Any]], version: int) -> None:
        """Send requests without waiting for responses."""
        frames = (encode_request(one, version=version, correlation_id=1, client_id="raw") for one in requests)
        await self._stream.send_all(b"".join(part for frame in frames for part in frame))

    async def receive(self, response_type: type[R], version: int) -> R:
        """Return the next response."""
        size = int.from_bytes(await self._take(4), "big")
        return decode_response(response_type, await self._take(size), version=version)[1]

    async def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self._stream.receive_some()
            assert data, "the broker closed the connection"
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


@asynccontextmanager
async def connection(broker: Broker | RunningBroker) -> AsyncIterator[Connection]:
    """Connect to the broker."""
    async with await trio.open_tcp_stream(*broker.sockets.address("PLAINTEXT")) as stream:
        yield Connection(stream)


def join_request(group_id: str, *, session_ms: int = 300, **fields: Any) -> JoinGroupRequest:
    """Return a JoinGroup request."""
    return JoinGroupRequest(
        group_id=group_id,
        **{"session_timeout_ms": session_ms, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **fields},
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\xde\xad\xbe\xef")],
    )


class Steady:
    """A member of its own group that continues throughout."""

    def __init__(self, at: Connection) -> None:
        self._at = at
        self.beats = 0

    async def start(self) -> None:
        """Join, and own all partitions."""
        await self._at.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        await self._at.call(FindCoordinatorRequest(key="steady"), 3)
        joined = await self._at.call(join_request("steady", session_ms=60_000), 3)
        assert joined.error_code == 0
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")]
        request = SyncGroupRequest(
            group_id="steady", generation_id=self.generation, member_id=self.member_id, assignments=assignments
        )
        assert (await self._at.call(request, 3)).assignment == b"all"

    async def beat(self) -> None:
        """Send a heartbeat and a commit; both must succeed."""
        request = HeartbeatRequest(group_id="steady", generation_id=self.generation, member_id=self.member_id)
        assert (await self._at.call(request, 3)).error_code == 0
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=self.beats)]
        commit = OffsetCommitRequest(
            group_id="steady",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        assert (await self._at.call(commit, 7)).topics[0].partitions[0].error_code == 0
        fetched = await self._at.call(OffsetFetchRequest(group_id="steady", topics=None), 5)
        assert fetched.topics[0].partitions[0].committed_offset == self.beats
        self.beats += 1

    async def run(self) -> None:
        """Continue until cancelled."""
        while True:
            await self.beat()
            await trio.sleep(0.02)


def members(broker: Broker | RunningBroker) -> int:
    """Return the number of members of all groups, pending ones included."""
    runtime = broker.group_coordinator.runtime
    shards = [runtime.read(partition, lambda shard: shard) for partition in runtime.active_partitions()]
    return sum(len(group.members) + len(group.pending_members) for shard in shards for group in shard.groups.values())


def timers(broker: Broker | RunningBroker) -> int:
    """Return the number of deadlines of all shards."""
    runtime = broker.group_coordinator.runtime
    return sum(runtime.read(partition, lambda shard: len(shard.timers)) for partition in runtime.active_partitions())


@pytest.mark.parametrize(("version", "count"), [(3, 10_000), (4, 2_000)])
async def test_ten_thousand_joins_that_never_sync_expire_without_disturbing_other_groups(
    version: int, count: int
) -> None:
    """Up to version 3, each join creates a group and a member; later versions create a group and a pending member id.

    They expire with their sessions, and the groups with the next check for expired ones.
    """
    expected = 0 if version < 4 else MemberIdRequiredError.code
    async with running_broker(**OPTIONS) as broker, connection(broker) as first:
        steady = Steady(first)
        await steady.start()

        async def crowd(number: int) -> None:
            async with connection(broker) as mine:
                for start in range(0, count // 4, AT_ONCE):
                    names = [f"crowd-{number}-{start + i}" for i in range(AT_ONCE)]
                    await mine.send([join_request(name) for name in names], version)
                    for _ in names:
                        assert (await mine.receive(JoinGroupRequest.response_type, version)).error_code == expected

        async with trio.open_nursery() as nursery:
            nursery.start_soon(steady.run)
            async with trio.open_nursery() as crowds:
                for number in range(4):
                    crowds.start_soon(crowd, number)
            with trio.fail_after(60):
                while members(broker) > 1 or sum(broker.group_coordinator.count_groups().classic.values()) > 1:
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        assert steady.beats > 10
        assert timers(broker) == 5, "the member's session, and each shard's next check for expired offsets"
        assert broker.failure is None


async def test_group_does_not_exceed_its_maximum_size() -> None:
    """``group.max.size``: members wait, further ones are refused, and disconnected ones are removed."""
    async with running_broker(**OPTIONS, group_max_size=20) as broker, connection(broker) as first:
        steady = Steady(first)
        await steady.start()
        codes: list[int] = []

        async def one() -> None:
            async with connection(broker) as mine:
                codes.append((await mine.call(join_request("crowd", rebalance_timeout_ms=500), 3)).error_code)
                # When new members join before former ones return, they take their places: that many exist twice.
                assert members(broker) <= 2 * 20 + 1

        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(one)
        assert (
            {GroupMaxSizeReachedError.code}
            < set(codes)
            <= {
                0,
                GroupMaxSizeReachedError.code,
                UnknownMemberIdError.code,
            }
        )
        await steady.beat()
        with trio.fail_after(30):
            while members(broker) > 1:
                await trio.sleep(0.05)
        await steady.beat()


async def test_invalid_requests_get_the_right_error_on_a_connection_that_stays_open() -> None:
    """Absurd timeouts, wrong member ids, groups without a name: each request of one connection gets its own
    response.
    """
    async with running_broker(**OPTIONS) as broker, connection(broker) as first, connection(broker) as mine:
        steady = Steady(first)
        await steady.start()
        for session_ms in (-(2**31), -1, 0, 99, 1_800_001, 2**31 - 1):
            refused = await mine.call(join_request("g", session_ms=session_ms), 9)
            assert refused.error_code == InvalidSessionTimeoutError.code
        assert (await mine.call(join_request(""), 9)).error_code == InvalidGroupIdError.code
        assert (await mine.call(join_request("g", protocol_type=""), 9)).error_code == 23
        assert (await mine.call(join_request("g", member_id="nobody"), 9)).error_code == UnknownMemberIdError.code

        static = await mine.call(
            join_request("g", group_instance_id="i", session_ms=60_000, rebalance_timeout_ms=-1), 9
        )
        assert (static.error_code, static.generation_id) == (0, 1)
        membership: dict[str, Any] = {
            "group_id": "g",
            "generation_id": 1,
            "member_id": static.member_id,
            "group_instance_id": "i",
        }
        named: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        strange = [SyncGroupRequestAssignment(member_id="stranger", assignment=b"\xff" * 100_000)]
        answers = [
            await mine.call(SyncGroupRequest(**{**membership, "generation_id": 2}, **named), 5),
            await mine.call(SyncGroupRequest(**{**membership, "member_id": "x"}, **named), 5),
            await mine.call(SyncGroupRequest(**{**membership, "group_instance_id": "j"}, **named), 5),
            await mine.call(SyncGroupRequest(**membership, protocol_type="connect", protocol_name="range"), 5),
            await mine.call(SyncGroupRequest(**membership, **named, assignments=strange), 5),
            await mine.call(HeartbeatRequest(**{**membership, "generation_id": -(2**31)}), 4),
            await mine.call(HeartbeatRequest(**{**membership, "member_id": "\N{PILE OF POO}" * 8_000}), 4),
            await mine.call(HeartbeatRequest(**membership), 4),
        ]
        assert [answer.error_code for answer in answers] == [  # type: ignore[attr-defined]
            IllegalGenerationError.code,
            FencedInstanceIdError.code,
            UnknownMemberIdError.code,
            InconsistentGroupProtocolError.code,
            0,
            IllegalGenerationError.code,
            FencedInstanceIdError.code,
            0,
        ]
        leavers = [MemberIdentity(member_id=f"m{i}") for i in range(2_000)]
        left = await mine.call(LeaveGroupRequest(group_id="g", members=leavers), 5)
        assert {member.error_code for member in left.members} == {UnknownMemberIdError.code}
        await steady.beat()
        assert broker.failure is None

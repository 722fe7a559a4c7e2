"""A member that implements the new protocol (KIP-848): ConsumerGroupHeartbeat, OffsetFetch and OffsetCommit."""

from __future__ import annotations

from uuid import UUID

import trio

from tests.group_kills.members import HEARTBEAT, LOST, REBALANCE, REQUEST, SESSION, TOPIC, Part, RawProcess, Stage
from tests.group_kills.wire import NoAnswerError
from triokafka import errors
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from triokafka.testing import SimulatedWorld


class ModernMember(RawProcess):
    """Sends a heartbeat after every change, and else every second."""

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld, topic_id: UUID) -> None:
        super().__init__(stage, part, world)
        self.member_id = str(UUID(bytes=world.random_bytes(16)))
        self.epoch = 0
        self._topic_id = topic_id
        self._says_all = True
        self._slow = world.random.choice([0.0, 0.0, 1.5])
        """Seconds that the revocation of a partition takes."""

    async def run(self) -> None:
        beat_at = 0.0
        while True:
            now = self.history.clock()
            try:
                if now >= beat_at and not self.is_bold():
                    beat_at = now + HEARTBEAT if await self._beat() else 0.0
                    continue
                code = await self.look_up(member_id=self.member_id, epoch=self.epoch) or await self.handle_some()
            except NoAnswerError:
                self._says_all = True
                beat_at = 0.0
                await self.pause()
                continue
            if code in LOST:
                self._start_anew(code)
            if code:
                beat_at = 0.0  # a stale epoch: the next heartbeat brings the new one
                await self.pause()
            else:
                await trio.sleep(self.pace)

    def _start_anew(self, code: int) -> None:
        self.history.note("is-out", self.part.group, self.who, errors.for_code(code).__name__)
        self.give_up()
        self.epoch, self._says_all = 0, True

    async def _beat(self) -> bool:
        """Send one heartbeat. Return whether there is time until the next one."""
        sent_at = self.history.clock()
        answer = await self.wire.ask(self._heartbeat(), 1, timeout=REQUEST)
        if answer.error_code in LOST:
            self._start_anew(answer.error_code)
            return False
        if answer.error_code:
            self._says_all = True
            await self.pause()
            return False
        return await self._follow(answer, sent_at)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.part.group, member_id=self.member_id, member_epoch=self.epoch
        )
        if self._says_all or not self.epoch:
            request.instance_id = self.part.instance
            request.rebalance_timeout_ms = round(REBALANCE * 1000)
            request.subscribed_topic_names = [TOPIC]
            request.server_assignor = self.part.protocol
        elif self.part.instance is not None:
            request.instance_id = self.part.instance
        owned = sorted(self.held) if self.epoch else []
        request.topic_partitions = [TopicPartitions(topic_id=self._topic_id, partitions=owned)] if owned else []
        return request

    async def _follow(self, answer: ConsumerGroupHeartbeatResponse, sent_at: float) -> bool:
        self.epoch, self._says_all = answer.member_epoch, False
        assigned_at = self.history.clock()
        if answer.assignment is None:
            self.confirm(sent_at, SESSION)
            return True
        wanted = {number for topic in answer.assignment.topic_partitions for number in topic.partitions}
        gone = self.held - wanted
        came = wanted - self.held
        if gone:
            if self._slow:
                await trio.sleep(self._slow)
            self.give_up(gone)
        self.take(wanted, sent_at=sent_at, patience=SESSION, assigned_at=assigned_at)
        return not gone and not came

"""Leaving a group: one request, in the background if the user does not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.errors import KafkaError
from triokafka.network.background_tasks import BackgroundTasks

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT: Final = 5.0
"""Seconds for the one request that ends a membership; if it is lost, the session expires instead."""

LeaveRequest: TypeAlias = Callable[[], Awaitable[None]]
"""Sends the request that ends a membership."""


class LeaveSender:
    """Sends leave requests to the coordinator. ``under_way`` counts those in the background."""

    def __init__(self, status: MembershipStatus, tasks: BackgroundTasks) -> None:
        self.under_way = 0
        self._status = status
        self._tasks = tasks

    async def send(self, leave_request: LeaveRequest | None) -> None:
        """Send a leave request, if there is one, without retries."""
        if leave_request is None:
            return
        try:
            with trio.move_on_after(LEAVE_TIMEOUT):
                await leave_request()
        except KafkaError as error:
            logger.info("leaving group %r failed, its session will expire instead: %s", self._status.group_id, error)

    def start(self, leave_request: LeaveRequest | None, first: Callable[[], Awaitable[None]]) -> None:
        """Send a leave request in the background, after ``first``. A join requested meanwhile begins afterwards."""
        self.under_way += 1
        self._tasks.start(self._send_later, leave_request, first, name=f"kafka leave of {self._status.group_id}")

    async def _send_later(self, leave_request: LeaveRequest | None, first: Callable[[], Awaitable[None]]) -> None:
        try:
            await first()
            await self.send(leave_request)
        finally:
            self.under_way -= 1
        self._status.notify()

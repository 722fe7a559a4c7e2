"""A queue of outgoing answers that releases a few at a time, so that one large rebalance does not starve other groups.

Each answer wakes the task of a connection, which encodes and sends it. Tasks that are woken together all run before any
other task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import KafkaError

AT_ONCE: Final = 50
"""Answers released before other tasks may run: about two milliseconds of encoding and sending."""


class Outbox:
    """Answers that are ready to send and not yet released."""

    def __init__(self) -> None:
        self._left: deque[tuple[Reply[Any], Any]] = deque()

    def __len__(self) -> int:
        return len(self._left)

    def give(self, answers: Sequence[tuple[Reply[Any], Any]]) -> None:
        """Release the first `AT_ONCE` answers now and queue the rest for `give_more`. New answers may overtake queued
        ones."""
        if len(answers) > AT_ONCE:
            self._left.extend(answers[AT_ONCE:])
            answers = answers[:AT_ONCE]
        for reply, value in answers:
            _release(reply, value)

    def give_more(self) -> None:
        """Release the next `AT_ONCE` answers."""
        for _ in range(min(AT_ONCE, len(self._left))):
            _release(*self._left.popleft())

    def give_all(self) -> None:
        """Release all queued answers."""
        while self._left:
            self.give_more()


def _release(reply: Reply[Any], value: Any) -> None:
    if isinstance(value, KafkaError):
        reply.fail(value)
    else:
        reply.set(value)

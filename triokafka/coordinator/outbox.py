"""Answers on their way out: few at a time, so that a round of a large group does not keep everybody else waiting.

Each answer wakes the task of a connection, which encodes and sends it; all that are woken together run before anybody
else is served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from triokafka.coordinator.turn import Reply

AT_ONCE: Final = 50
"""Answers between two chances for other tasks: about two milliseconds of encoding and sending."""


class Outbox:
    """Answers that may be given, and have not been."""

    def __init__(self) -> None:
        self._left: deque[tuple[Reply[Any], Any]] = deque()

    def __len__(self) -> int:
        return len(self._left)

    def give(self, answers: Sequence[tuple[Reply[Any], Any]]) -> None:
        """Give these, the first few at once; the others wait for `give_more`. Few answers overtake many that wait."""
        for reply, value in answers[:AT_ONCE]:
            reply.set(value)
        self._left.extend(answers[AT_ONCE:])

    def give_more(self) -> None:
        """Give the next few."""
        for _ in range(min(AT_ONCE, len(self._left))):
            reply, value = self._left.popleft()
            reply.set(value)

    def give_all(self) -> None:
        """Give whatever is left."""
        while self._left:
            self.give_more()

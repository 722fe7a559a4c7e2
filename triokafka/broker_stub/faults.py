"""Faults that a test switches on: an error in the answer for one API, topic or partition. Off unless armed.

Consulted where an error of an item is set, so that the rest of the request stays real.
"""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.errors import BrokerResponseError


@dataclass(slots=True)
class Fault:
    """Answer with ``error`` for the next ``times`` matching items (-1: until disarmed); None matches everything."""

    error: type[BrokerResponseError]
    api_key: int | None = None
    topic: str | None = None
    partition: int | None = None
    times: int = 1


class Faults:
    """The armed faults of one broker."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    @property
    def armed(self) -> bool:
        """Whether any is on."""
        return bool(self._armed)

    def arm(self, fault: Fault) -> None:
        """Switch a fault on."""
        self._armed.append(fault)

    def disarm_all(self) -> None:
        """Switch all off."""
        self._armed.clear()

    def check(self, api_key: int, topic: str | None = None, partition: int | None = None) -> None:
        """Raise the error of the first armed fault that matches, and use it up by one."""
        if not self._armed:
            return
        for fault in self._armed:
            if (
                fault.api_key in (None, api_key)
                and fault.topic in (None, topic)
                and fault.partition in (None, partition)
            ):
                if fault.times > 0:
                    fault.times -= 1
                    if not fault.times:
                        self._armed.remove(fault)
                raise fault.error("a fault was injected here")

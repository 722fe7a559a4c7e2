"""The audit log of authorization: one line per decision, in the words and under the logger of Kafka.

Denials of requested accesses are logged at INFO, allowed accesses at DEBUG. A client that is denied in a loop cannot
fill the disk: each second has at most `LINES_PER_SECOND` lines, and one line counts those that were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from triokafka.security.acl import AclOperation, ResourceType

logger = logging.getLogger("kafka.authorizer.logger")

LINES_PER_SECOND: Final = 50

_TYPE_NAMES: Final = {kind: kind.name.title().replace("_", "") for kind in ResourceType}
_TYPE_NAMES[ResourceType.TRANSACTIONAL_ID] = "TransactionalId"


class AuthorizationAudit:
    """Writes the audit log of one dispatcher. ``now`` is the clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def log(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        allowed: bool,
        request: str,
        rule: Callable[[], str | None],
    ) -> None:
        """Log a decision. ``rule`` is called only if the line is written."""
        level = logging.DEBUG if allowed else logging.INFO
        if not logger.isEnabledFor(level) or not self._has_room():
            return
        logger.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with "
            "resourceRefCount = 1 based on rule %s",
            _printable(principal),
            "Allowed" if allowed else "Denied",
            operation.name,
            host,
            _TYPE_NAMES[resource_type],
            _printable(name),
            request,
            rule() or "of the authorizer",
        )

    def _has_room(self) -> bool:
        second = int(self._now())
        if second != self._second:
            if self._left_out:
                logger.info("%d further decisions of one second are not logged", self._left_out)
            self._second, self._lines, self._left_out = second, 0, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._left_out += 1
            return False
        return True


def _printable(text: str) -> str:
    """Return a name without line breaks and control characters, which a client could use to forge lines."""
    return text if text.isprintable() else ascii(text)[1:-1]

"""The subscription or assignment that the program of an `AIOKafkaConsumer` has chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from triokafka.errors import IllegalStateError


class ProgramSubscription:
    """The chosen topics, or a pattern, or that partitions are assigned by the program; nothing at first.

    ``mode`` is ``"topics"``, ``"pattern"``, ``"assigned"``, or empty.
    """

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.mode = ""
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        if topics:
            self.subscribe(topics, None)

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Choose topics by name, or topics whose name begins with a match of ``pattern``.

        Raises as `AIOKafkaConsumer.subscribe`.
        """
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        compiled = None
        if pattern is not None:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        names = frozenset(_checked_topics(topics)) if topics else frozenset()
        self._begin("topics" if topics else "pattern")
        self.topics, self.pattern = names, compiled

    def assign(self) -> None:
        """Note that the program assigns partitions. Raises `IllegalStateError` if topics are subscribed."""
        self._begin("assigned")

    def _begin(self, mode: str) -> None:
        if self.mode not in ("", mode):
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive: call unsubscribe() first"
            )
        self.mode = mode

    def end(self) -> None:
        """Choose nothing."""
        self.mode, self.topics, self.pattern = "", frozenset(), None

    @property
    def whole_name_pattern(self) -> re.Pattern[str] | None:
        """A pattern that matches whole names where the program's matches their beginning, as in aiokafka."""
        if self.pattern is None:
            return None
        source = re.sub(r"^\(\?[aimsux]+\)", "", self.pattern.pattern)  # these flags are in ``pattern.flags``, too
        end = "\n" if self.pattern.flags & re.VERBOSE else ""  # the source may end with a comment
        return re.compile(f"(?:{source}{end})(?s:.*)", self.pattern.flags)


def _checked_topics(topics: Any) -> set[str]:
    if not isinstance(topics, (tuple, set, list)):
        raise TypeError("Topics should be list of strings")
    return set(topics)

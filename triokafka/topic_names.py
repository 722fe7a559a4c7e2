"""The names that a topic may have, and the names of the internal topics."""

from __future__ import annotations

import re
from typing import Any, Final

from triokafka.errors import InvalidTopicError

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""The topics in which brokers keep their coordinators' state."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_SHOWN: Final = 60


def check_topic_name(topic: Any) -> None:
    """Refuse an invalid topic name before it gets into a request, which would fail for its other topics as well.

    Raises:
        TypeError: it is not a string.
        InvalidTopicError: it is empty, too long, ``.`` or ``..``, or has other characters than Kafka allows.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic={topic!r} is not the name of a topic: it must be a str")
    if not _LEGAL.fullmatch(topic) or topic in (".", ".."):
        shown = repr(topic) if len(topic) <= _MOST_SHOWN else f"{topic[:_MOST_SHOWN]!r}… ({len(topic)} characters)"
        raise InvalidTopicError(f"topic {shown} cannot exist. {InvalidTopicError.advice}")

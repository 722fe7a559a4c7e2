"""Legal topic names, and the names of internal topics."""

from __future__ import annotations

import re
from typing import Any, Final

from triokafka.errors import InvalidTopicError

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""The topics in which brokers keep their coordinators' state."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
MAX_LENGTH: Final = 249

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_MOST_SHOWN: Final = 60


def check_topic_name(topic: Any) -> None:
    """Refuse an invalid topic name before it gets into a request, which would fail for its other topics as well.

    Raises:
        TypeError: it is not a string.
        InvalidTopicError: it is empty, too long, ``.`` or ``..``, or has other characters than Kafka allows.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic={topic!r} is not the name of a topic: it must be a str")
    if _why_illegal(topic):
        shown = repr(topic) if len(topic) <= _MOST_SHOWN else f"{topic[:_MOST_SHOWN]!r}… ({len(topic)} characters)"
        raise InvalidTopicError(f"topic {shown} cannot exist. {InvalidTopicError.advice}")


def validate(name: str) -> None:
    """Check a name, as a broker does.

    Raises:
        InvalidTopicError: it is empty, ``.`` or ``..``, longer than 249 characters, or has a character other than ASCII
            letters and digits, ``.``, ``_`` and ``-``.
    """
    reason = _why_illegal(name)
    if reason:
        raise InvalidTopicError(f"Topic name is invalid: {reason}")


def _why_illegal(name: str) -> str:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name[:MAX_LENGTH]}…', {len(name)}, is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return ""


def has_collision_characters(name: str) -> bool:
    """Whether another legal name could give the same metric name."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return the topic's name in metrics, which must be unique in a cluster."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Whether the topic is internal: it stores state of the brokers."""
    return name in INTERNAL_TOPICS

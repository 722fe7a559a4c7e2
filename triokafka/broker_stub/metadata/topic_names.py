"""Legal topic names, and the names of internal topics."""

from __future__ import annotations

import re
from typing import Final

from triokafka.errors import InvalidTopicError
from triokafka.topic_names import INTERNAL_TOPICS

MAX_LENGTH: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def validate(name: str) -> None:
    """Check a name against Kafka's rules.

    Raises:
        InvalidTopicError: it is empty, ``.`` or ``..``, longer than 249 characters, or has a character other than ASCII
            letters and digits, ``.``, ``_`` and ``-``.
    """
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_LENGTH:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of '{name[:MAX_LENGTH]}…', {len(name)}, is longer than the max allowed"
            f" length {MAX_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )


def has_collision_characters(name: str) -> bool:
    """Whether another legal name could give the same metric name."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return the topic's name in metrics, which must be unique in a cluster."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Whether the topic is internal: it stores state of the brokers."""
    return name in INTERNAL_TOPICS

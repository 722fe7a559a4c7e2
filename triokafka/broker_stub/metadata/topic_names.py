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
        raise InvalidTopicError("a topic name may not be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"{name!r} is not a legal topic name")
    if len(name) > MAX_LENGTH:
        raise InvalidTopicError(
            f"the topic name has {len(name)} characters, at most {MAX_LENGTH} are allowed: {name[:MAX_LENGTH]!r}…"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(
            f"the topic name {name!r} has a character other than ASCII letters and digits, '.', '_' and '-'"
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

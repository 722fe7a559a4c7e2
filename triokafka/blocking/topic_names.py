"""The rules for topic names."""

from __future__ import annotations

import re
from typing import Any, Final

_LONGEST: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def ensure_valid_topic_name(topic: Any) -> None:
    """Check a topic name.

    Raises:
        TypeError: the name is not a string.
        ValueError: the name is empty, too long, ``.`` or ``..``, or has characters that Kafka does not allow.
    """
    if not isinstance(topic, str):
        raise TypeError("All topics must not be None" if topic is None else "All topics must be strings")
    if not topic:
        raise ValueError("All topics must be non-empty strings")
    if topic in (".", ".."):
        raise ValueError('Topic name cannot be "." or ".."')
    if len(topic) > _LONGEST:
        raise ValueError(f'Topic name is illegal, it can\'t be longer than {_LONGEST} characters, topic: "{topic}"')
    if not _LEGAL.fullmatch(topic):
        raise ValueError(
            f'Topic name "{topic}" is illegal, it contains a character other than ASCII alphanumerics, ".", "_" and "-"'
        )

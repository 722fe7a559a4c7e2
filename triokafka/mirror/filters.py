"""Which topics and groups a flow mirrors: lists of regular expressions, as MirrorMaker's filters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from triokafka.errors import ConfigurationError

EXCLUDED_TOPICS: Final = (r"mm2.*\.internal", r".*\.replica", r"__.*")
"""Default of ``topics.exclude``."""
EXCLUDED_GROUPS: Final = ("console-consumer-.*", "connect-.*", "__.*")
"""Default of ``groups.exclude``."""


class NameFilter:
    """Names that one of ``include`` matches as a whole, and none of ``exclude``.

    Raises:
        ConfigurationError: a text is not a regular expression.
    """

    def __init__(self, what: str, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = [_compiled(what, text) for text in include]
        self._exclude = [_compiled(f"{what}_exclude", text) for text in exclude]

    def accepts(self, name: str) -> bool:
        """Whether the flow mirrors the topic or group with this name."""
        return any(pattern.fullmatch(name) for pattern in self._include) and not any(
            pattern.fullmatch(name) for pattern in self._exclude
        )


def _compiled(what: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigurationError(f"{what}: {text!r} is not a regular expression: {error}") from error

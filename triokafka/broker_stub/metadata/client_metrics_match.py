"""Patterns of a subscription's ``match``: matched in linear time, whatever the pattern and the text.

Any client can choose the text, and the event loop matches it. RE2 matches any pattern in linear time. Without the
package google-re2, only patterns are allowed that the standard library's ``re`` cannot backtrack in: a sequence of
characters and classes, and perhaps ``.*`` at the end.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from triokafka.errors import InvalidRegularExpressionError

if TYPE_CHECKING:
    from triokafka.coordinator.regular_expressions import RegularExpression

_SIMPLE: Final = re.compile(r"[^*+?{|(]*(?:\.\*)?")


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text. A pattern that this broker cannot match matches nothing."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.fullmatch(text) is not None


def why_refused(pattern: str) -> str:
    """Return why this broker cannot match a pattern; empty if it can."""
    try:
        _compile(pattern)
    except (InvalidRegularExpressionError, re.error) as error:
        return str(error)
    return ""


@lru_cache(maxsize=8_192)  # those of a thousand subscriptions: fewer would be compiled anew for each request
def _compiled(pattern: str) -> RegularExpression | None:
    try:
        return _compile(pattern)
    except (InvalidRegularExpressionError, re.error):
        return None


def _compile(pattern: str) -> RegularExpression:
    if _SIMPLE.fullmatch(pattern):
        return re.compile(pattern)
    from triokafka.coordinator.regular_expressions import compile_regular_expression  # a broker starts without it

    return compile_regular_expression(pattern)

"""Regular expressions that clients send to a broker: RE2 matches any of them in linear time.

The standard library's ``re`` takes exponential time for some patterns, so one request could stop the broker.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from triokafka.errors import InvalidRegularExpressionError

_MISSING: Final = "this broker cannot match regular expressions: the package google-re2 is not installed"


class RegularExpression(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str, /) -> object | None:
        """Match the whole of ``text``; None if the pattern does not match it."""


def compile_regular_expression(pattern: str) -> RegularExpression:
    """Compile a pattern in RE2's syntax.

    Raises:
        InvalidRegularExpressionError: the pattern is invalid, or the broker does not have the package google-re2.
    """
    try:
        import re2
    except ImportError:
        raise InvalidRegularExpressionError(_MISSING) from None
    try:
        options = re2.Options()
        options.log_errors = False  # RE2 writes to standard error, and clients must not
        return cast("RegularExpression", re2.compile(pattern, options))
    except re2.error as error:
        reason = error.args[0]  # bytes in the package's present version
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise InvalidRegularExpressionError(f"{pattern!r} is not a valid RE2 pattern: {text}") from None

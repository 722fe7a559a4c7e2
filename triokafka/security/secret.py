"""Texts that must not appear in logs, representations and error messages."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"


class Secret(str):
    """A secret text: `repr` and `str` hide it, and `reveal` returns it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, format_spec: str) -> str:
        return HIDDEN

    def reveal(self) -> str:
        """Return the secret text."""
        return str.__str__(self)


def reveal(text: str) -> str:
    """Return the text of a `Secret` or of any other string."""
    return text.reveal() if isinstance(text, Secret) else text


def has_credentials(url: str) -> bool:
    """Whether a URL, with or without a scheme, has a user or a password before its host."""
    return "@" in (url.partition("://")[2] or url).partition("/")[0]

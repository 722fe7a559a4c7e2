"""The token of ``triokafka broker --control``: read from a file or the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from triokafka.cli.broker_options import WrongUse

if TYPE_CHECKING:
    from triokafka.world import World

VARIABLE: Final = "TRIOKAFKA_CONTROL_TOKEN"
_MIN_CHARACTERS: Final = 16
_MAX_BYTES: Final = 4096


def control_token(path: str | None, world: World) -> str | None:
    """Return the token that requests must carry; None without a file and without the variable.

    A missing file is created with a new token, readable only by its owner.

    Raises:
        WrongUse: the file cannot be read or written, or the token is too short.
    """
    if path is None:
        given = os.environ.get(VARIABLE, "").strip()
        return _checked(given, VARIABLE) if given else None
    try:
        return _checked(_read(path), path)
    except FileNotFoundError:
        return _created(path, world.random_bytes(32).hex())
    except (OSError, ValueError) as error:
        raise WrongUse(f"--control-token-file {path}: {_reason(error)}") from None


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read(_MAX_BYTES).strip()


def _created(path: str, token: str) -> str:
    try:
        # O_EXCL: overwrite no file and follow no link that another process has created since.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise WrongUse(f"--control-token-file {path}: {_reason(error)}") from None
    return token


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not a token of ASCII characters"


def _checked(token: str, source: str) -> str:
    if len(token) < _MIN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise WrongUse(f"{source}: a token needs at least {_MIN_CHARACTERS} printable ASCII characters and no spaces.")
    return token

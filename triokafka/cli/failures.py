"""Conversion of errors to sentences and exit statuses. Needs no click."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress
from typing import Any, Final

from triokafka.errors import KafkaError

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Error numbers of a full disk, a limit, and a standard output that is closed."""


def status_of(error: BaseException) -> int:
    """Print a failed run's error as a sentence and return its exit status. Re-raise errors that are our own bugs."""
    if isinstance(error, KeyboardInterrupt):
        return _interrupted()
    if isinstance(error, BrokenPipeError):
        # The reader of our output has closed the pipe: print nothing more, not even the interpreter's flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    if isinstance(error, BaseExceptionGroup):
        return _status_of_group(error)
    if isinstance(error, KafkaError | OSError):
        _print(_unwritable(error) or describe(error))
        return 1
    raise error


def _unwritable(error: BaseException) -> str:
    """Return the sentence for a standard output that cannot be written; empty for other errors."""
    if not isinstance(error, OSError) or error.filename or error.errno not in _UNWRITABLE:
        return ""
    with suppress(OSError, ValueError):
        # Nothing more can be printed, and the interpreter must not try again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"standard output: {error.strerror}. The output is incomplete."


def _status_of_group(group: BaseExceptionGroup[BaseException]) -> int:
    expected, unexpected = group.split((KafkaError, OSError, KeyboardInterrupt))
    if unexpected is not None or expected is None:
        raise group
    leaves = _leaves(expected)
    if any(isinstance(error, KeyboardInterrupt) for error in leaves):
        return _interrupted()
    for sentence in dict.fromkeys(_unwritable(error) or describe(error) for error in leaves):
        _print(sentence)
    return 1


def _interrupted() -> int:
    print("stopped", file=sys.stderr)
    return 128 + signal.SIGINT


def _print(sentence: str) -> None:
    print(f"triokafka: {sentence}", file=sys.stderr)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def outcomes_of(error: Exception) -> tuple[dict[Any, Any], dict[Any, Exception]]:
    """Return the values and the errors of an administrative change of several items. Raises any other error."""
    outcomes = getattr(error, "outcomes", None)
    if outcomes is None:
        raise error
    return {one: outcomes[one] for one in outcomes if one not in outcomes.errors}, dict(outcomes.errors)


def describe(error: BaseException) -> str:
    """Return the error in one line: the problem, and the remedy if the error has one."""
    if isinstance(error, OSError) and error.strerror:  # without the number
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    advice = getattr(error, "advice", "")
    return f"{ended(text)} {advice}" if advice and advice not in text else text


def ended(text: str) -> str:
    """Return the text as a complete sentence, so that another one can follow."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."

"""Signals that the caller of the tests ignores, and that every process they start would ignore, too.

A shell script starts ``make test &`` with SIGINT and SIGQUIT ignored, and ``nohup`` ignores SIGHUP. An ignored signal
stays ignored over ``exec``, while one with a handler gets its default action back.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

_INHERITED: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


def heed_signals() -> None:
    """Let the processes that this one starts react to the ending signals, also where this one ignores them.

    Here, SIGINT raises `KeyboardInterrupt` again, which tests send to themselves; the others are still without effect.
    """
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Take a signal without effect."""

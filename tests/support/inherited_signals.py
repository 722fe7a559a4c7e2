"""Signals that the caller of the tests ignores, and that every started process would inherit as ignored.

A shell script starts ``make test &`` with SIGINT and SIGQUIT ignored, and ``nohup`` ignores SIGHUP. An ignored signal
stays ignored across ``exec``; one with a handler gets its default action back.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

_INHERITED: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


def heed_signals() -> None:
    """Make child processes react to the terminating signals, even if this process ignores them.

    In this process, SIGINT raises `KeyboardInterrupt` again, because tests send it to themselves; the others have no
    effect.
    """
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Handle a signal without any effect."""

"""Holds Ctrl-C back for as long as Trio works in the main thread of an asyncio program.

A `KeyboardInterrupt` at any place would leave Trio, or a client, in the middle of a change. While it is held back,
another signal handler notes the interrupt. Afterwards the program's own handler is called for it.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_MAIN: Final = threading.main_thread()


class HeldInterrupt:
    """The signal handler that notes an interrupt. ``handler`` is the program's own."""

    __slots__ = ("_handler", "_signal")

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler
        self._signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def let_go(self) -> None:
        """Set the program's own handler again, and call it if there was an interrupt.

        Raises:
            KeyboardInterrupt: the handler raises it.
        """
        signal.signal(signal.SIGINT, self._handler)
        if self._signal:
            self._handler(self._signal, None)


def hold_interrupts() -> HeldInterrupt | None:
    """Hold interrupts back until `HeldInterrupt.let_go`.

    Returns None, without any effect, if none can come: in other threads, while interrupts are held already, and with a
    signal handler of the program, which knows what it does.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler and not _is_of_asyncio(handler):
        return None
    if threading.current_thread() is not _MAIN:
        return None
    held = HeldInterrupt(handler)  # type: ignore[arg-type] # it is a function or a partial
    signal.signal(signal.SIGINT, held)
    return held


def _is_of_asyncio(handler: object) -> bool:
    """Return whether `asyncio.Runner` has set the handler, which raises at the second interrupt."""
    return isinstance(handler, functools.partial) and isinstance(handler.keywords.get("main_task"), asyncio.Future)

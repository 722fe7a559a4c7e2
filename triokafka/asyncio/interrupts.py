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
from importlib import import_module
from types import FrameType
from typing import Any, Final

_MAIN: Final = threading.main_thread()
_SIGINT: Final = int(signal.SIGINT)
# The functions of the module `signal` convert to enumerations and back, which takes ten times as long.
_functions: Final[Any] = import_module("_signal")
_set_handler: Final[Callable[[int, Any], object]] = _functions.signal
_get_handler: Final[Callable[[int], Any]] = _functions.getsignal


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
        _set_handler(_SIGINT, self._handler)
        if self._signal:
            self._handler(self._signal, None)


def hold_interrupts() -> HeldInterrupt | None:
    """Hold interrupts back until `HeldInterrupt.let_go`.

    Returns None, without any effect, if none can come: in other threads, while interrupts are held already, and with a
    signal handler of the program, which knows what it does.
    """
    handler = _get_handler(_SIGINT)
    if handler is not signal.default_int_handler and not _is_of_asyncio(handler):
        return None
    if threading.current_thread() is not _MAIN:
        return None
    held = HeldInterrupt(handler)
    _set_handler(_SIGINT, held)
    return held


def _is_of_asyncio(handler: object) -> bool:
    """Return whether `asyncio.Runner` has set the handler, which raises at the second interrupt."""
    return isinstance(handler, functools.partial) and isinstance(handler.keywords.get("main_task"), asyncio.Future)

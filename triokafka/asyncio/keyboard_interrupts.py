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
    """The signal handler that notes an interrupt while it `is_held`. ``handler`` is the program's own.

    Setting a handler is a system call. With ``main_task``, whose end `asyncio.Runner` waits for, this handler stays
    until that task is done, and passes interrupts on while they are not held.
    """

    __slots__ = ("_handler", "_signal", "_stays", "is_held")

    def __init__(
        self, handler: Callable[[int, FrameType | None], Any], main_task: asyncio.Future[Any] | None = None
    ) -> None:
        self._handler = handler
        self._signal = 0
        self._stays = main_task is not None
        self.is_held = True
        if main_task is not None:
            main_task.add_done_callback(self._leave)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_held:
            self._signal = number
        else:
            self._pass_on(number, frame)

    def let_go(self) -> None:
        """Call the program's own handler if there was an interrupt.

        Raises:
            KeyboardInterrupt: the handler raises it.
        """
        self.is_held = False
        if not self._stays:
            self._restore()
        if self._signal:
            number, self._signal = self._signal, 0
            self._pass_on(number, None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except BaseException:
            # It ends `asyncio.Runner.run`, which looks for its own handler before it sets the usual one again.
            self._leave(None)
            raise

    def _leave(self, main_task: object) -> None:
        self._stays = False
        if not self.is_held:
            self._restore()

    def _restore(self) -> None:
        if _get_handler(_SIGINT) is self:  # else the program has set another one
            _set_handler(_SIGINT, self._handler)


def hold_interrupts() -> HeldInterrupt | None:
    """Hold interrupts back until `HeldInterrupt.let_go`.

    Returns None, without any effect, if none can come: in other threads, while interrupts are held already, and with a
    signal handler of the program, which knows what it does.
    """
    handler = _get_handler(_SIGINT)
    if type(handler) is HeldInterrupt:
        if handler.is_held or threading.get_ident() != _MAIN.ident:
            return None
        handler.is_held = True
        return handler
    main_task = _main_task(handler)
    if handler is not signal.default_int_handler and main_task is None:
        return None
    if threading.get_ident() != _MAIN.ident:
        return None
    held = HeldInterrupt(handler, None if main_task is None or main_task.done() else main_task)
    _set_handler(_SIGINT, held)
    return held


def _main_task(handler: object) -> asyncio.Future[Any] | None:
    """Return the task of the handler that `asyncio.Runner` sets, which raises at the second interrupt."""
    if not isinstance(handler, functools.partial):
        return None
    found = handler.keywords.get("main_task")
    return found if isinstance(found, asyncio.Future) else None

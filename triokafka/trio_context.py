"""The check that a call runs under Trio, with an error that says what to use instead."""

from __future__ import annotations

import sys

import trio


def require_trio(what: str, *, asyncio: str = "triokafka.asyncio", blocking: str = "triokafka.blocking") -> None:
    """Raise `RuntimeError` unless the caller is a task of a Trio run.

    The message says that ``what`` needs Trio, and names what to use instead: ``asyncio`` under asyncio, ``blocking``
    without an event loop. Each is a module or a function, or empty if there is none.
    """
    try:
        trio.lowlevel.current_task()
    except (RuntimeError, AttributeError):
        raise RuntimeError(f"{what} needs Trio: {_remedy(asyncio, blocking)}") from None


def _remedy(asyncio: str, blocking: str) -> str:
    module = sys.modules.get("asyncio")
    if module is not None and module._get_running_loop() is not None:
        ways = [asyncio, f"{blocking} in a thread (asyncio.to_thread)" if blocking else ""]
        ways.append("a Trio run of its own: trio.run(main) in a thread, or guest mode (trio.lowlevel.start_guest_run)")
        return f"this code runs under asyncio. Use {', or '.join(filter(None, ways))}."
    start = "no Trio run is active in this thread. Start the program with trio.run(main), "
    call = "call from another thread through trio.from_thread.run"
    return f"{start}{call}, or use {blocking}, which needs no event loop." if blocking else f"{start}or {call}."

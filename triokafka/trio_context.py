"""The check that a call runs under Trio, with an error that says what to use instead."""

from __future__ import annotations

import sys

import trio


def require_trio(what: str, blocking: str = "triokafka.blocking") -> None:
    """Raise `RuntimeError` unless the caller is a task of a Trio run.

    The message says that ``what`` needs Trio, and names the module ``blocking`` as the way without Trio.
    """
    try:
        trio.lowlevel.current_task()
    except (RuntimeError, AttributeError):
        raise RuntimeError(f"{what} needs Trio: {_remedy(blocking)}") from None


def _remedy(blocking: str) -> str:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        clients = "triokafka.asyncio has clients for it, or use " if blocking == "triokafka.blocking" else "use "
        return (
            f"this code runs under asyncio. In an asyncio program {clients}{blocking} in a thread"
            " (asyncio.to_thread), or run Trio beside asyncio in guest mode (trio.lowlevel.start_guest_run); a program"
            " of its own starts with trio.run(main)."
        )
    return (
        "no Trio run is active in this thread. Start the program with trio.run(main), call from another thread through"
        f" trio.from_thread.run, or use {blocking}, which needs no event loop."
    )

"""Waiting for a streaming query so that Ctrl-C stops it.

In ``query.awaitTermination()`` Ctrl-C ends the program in the middle of a call to the JVM: with tracebacks of the call,
of the batch and of its workers, in which nothing is wrong.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final

_LOOK: Final = 0.5  # seconds of one wait for Spark, after which a signal is looked at
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def wait_for_query(query: Any) -> bool:
    """Wait until a query ends; Ctrl-C and SIGTERM stop it.

    The batch in progress is given up then, and read again when the query is started again from its checkpoint. A second
    signal, while it stops, raises ``KeyboardInterrupt``. Outside the main thread, which alone is told of signals, it
    only waits.

    Args:
        query: what ``writeStream.start()`` returned.

    Returns:
        True when the query ended by itself, False when it was stopped.

    Raises:
        StreamingQueryException: the query failed.
    """
    if threading.current_thread() is not threading.main_thread():
        query.awaitTermination()
        return True
    asked = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        while not asked.is_set():
            if query.awaitTermination(_LOOK):
                return True
        query.stop()
        return False
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

"""Waiting for a streaming query that Ctrl-C can stop.

Ctrl-C in ``query.awaitTermination()`` ends the program during a call to the JVM, with tracebacks of the call, the batch
and its workers, although nothing is wrong.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final

_LOOK: Final = 0.5  # seconds between checks for a signal
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def wait_for_query(query: Any) -> bool:
    """Wait until a query ends; Ctrl-C and SIGTERM stop the query.

    Stopping abandons the batch in progress, which is read again when the query restarts from its checkpoint. A second
    signal during the stop raises ``KeyboardInterrupt``. Outside the main thread, which receives all signals, this only
    waits.

    Args:
        query: the result of ``writeStream.start()``.

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

"""Ctrl-C while a blocking call waits."""

from __future__ import annotations

import os
import signal
import sys
import threading

from tests.support.waiting import until


def interrupt_of_a_wait(module: str) -> threading.Thread:
    """Return a thread that sends SIGINT to this process once the calling thread waits in a file or folder ``module``.

    There is no event for the moment when another thread starts to wait.
    """
    waiter = threading.get_ident()

    def interrupt() -> None:
        until(lambda: module in sys._current_frames()[waiter].f_code.co_filename, f"the call does not wait in {module}")
        os.kill(os.getpid(), signal.SIGINT)

    return threading.Thread(target=interrupt)

"""Ctrl-C while a blocking call waits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

from tests.support.waiting import until

_WAITING: Final = "/triokafka/loop_thread.py"


def interrupt_of_a_wait() -> threading.Thread:
    """Return a thread that sends SIGINT to this process once the calling thread waits for the loop of blocking clients.

    There is no event for the moment when another thread starts to wait.
    """
    waiter = threading.get_ident()

    def interrupt() -> None:
        until(lambda: _WAITING in sys._current_frames()[waiter].f_code.co_filename, "the call does not wait")
        os.kill(os.getpid(), signal.SIGINT)

    return threading.Thread(target=interrupt)

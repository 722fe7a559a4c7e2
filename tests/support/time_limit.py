"""The end of a run of tests that stands still: every process of it prints the stacks of its threads.

A test has a time limit of its own. This one is for what that does not see, such as workers that wait for each other.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import Final

VARIABLE: Final = "TRIOKAFKA_TESTS_END_AFTER"
"""Names the variable with the limit in seconds; without it there is none."""
_SECONDS_TO_PRINT: Final = 10.0
"""The time that the other processes have to print theirs, before this one ends and they with it."""


def end_after_limit() -> None:
    """Begin the time, before pytest captures the output."""
    seconds = os.environ.get(VARIABLE)
    if not seconds:
        return
    output = os.dup(2)

    def end() -> None:
        os.write(output, f"\nThe tests did not end within {seconds} s. Process {os.getpid()}:\n".encode())
        faulthandler.dump_traceback(output)
        time.sleep(_SECONDS_TO_PRINT)
        os._exit(1)

    timer = threading.Timer(float(seconds), end)
    timer.daemon = True
    timer.start()

"""``triokafka broker`` that also ends with its standard input, and so with the process that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading

from triokafka.cli.app import run


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.exit(run(["broker", *sys.argv[1:]]))

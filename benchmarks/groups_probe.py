"""Another client of a loaded broker, which measures the latency of small requests.

``python -m benchmarks.groups_probe HOST:PORT`` sends requests until its standard input ends, and prints the maximum and
the 99th percentile of their latency in milliseconds.
"""

from __future__ import annotations

import json
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.exact_receive import receive_exactly

_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_PAUSE: Final = 0.01


class Stall:
    """Milliseconds, set at the end of the block of `probing`."""

    worst_ms = 0.0
    p99_ms = 0.0


@contextmanager
def probing(bootstrap: str) -> Iterator[Stall]:
    """Send the requests from another process while the block runs."""
    command = [sys.executable, "-m", "benchmarks.groups_probe", bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stall = Stall()
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the first request was answered
        yield stall
        out, _ = process.communicate("\n", timeout=60)
        stall.worst_ms, stall.p99_ms = json.loads(out)
    finally:
        process.kill()
        process.wait()


def _ask(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    took = [0.0, 0.0]
    with socket.create_connection((host, int(port))) as connection:
        print("began", flush=True)
        while not select.select([sys.stdin], [], [], _PAUSE)[0]:
            began = time.perf_counter()
            connection.sendall(_API_VERSIONS)
            left = int.from_bytes(receive_exactly(connection, 4), "big")
            receive_exactly(connection, left)
            took.append((time.perf_counter() - began) * 1000)
    print(json.dumps([max(took), statistics.quantiles(took, n=100)[-1]]), flush=True)


if __name__ == "__main__":
    _ask(sys.argv[1])

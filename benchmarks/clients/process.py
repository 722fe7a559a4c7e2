"""Runs each measurement in its own process, so that no client's threads and memory disturb another's.

``python -m benchmarks.clients.process KIND CLIENT JOB`` measures and prints the result as JSON on its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.clients.catalogue import PRODUCERS, result_type
from benchmarks.clients.job import Job
from triokafka.cli.load.brokers import MeasurementError

_TIMEOUT: Final = 600
_CHECKOUT: Final = str(Path(__file__).parents[2])

SENDING: Final = "sending"
"""The line that a measurement of memory prints once its first record is acknowledged."""


def start(kind: str, client: str, job: Job) -> subprocess.Popen[str]:
    """Start a measurement; `finish` returns its result."""
    command = [sys.executable, "-P", "-m", "benchmarks.clients.process", kind, client, json.dumps(job._asdict())]
    path = os.pathsep.join([_CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    if PRODUCERS[client].plain:
        environment["TRIOKAFKA_PURE"] = "1"
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(kind: str, client: str, process: subprocess.Popen[str]) -> Any:
    """Wait for a measurement and return its result. Raises `MeasurementError` with the process's last output."""
    try:
        out, complaints = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise MeasurementError(f"{client}: no result after {_TIMEOUT} s") from None
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0 or not out.strip():
        words = complaints.strip().splitlines()
        raise MeasurementError(f"{client}: {words[-1] if words else f'exit status {process.returncode}'}")
    return result_type(kind)(*json.loads(out.splitlines()[-1]))


def measure(kind: str, client: str, job: Job) -> Any:
    """Run one measurement and return a `Throughput`, `Latency` or `Stall`. Raises `MeasurementError`."""
    return finish(kind, client, start(kind, client, job))


def _main(kind: str, client: str, job: str) -> None:
    chosen = PRODUCERS[client]
    result = getattr(chosen.load(), kind)(Job(**json.loads(job)), chosen.how)
    print(json.dumps(result), flush=True)
    os._exit(0)  # some clients need a while to exit


if __name__ == "__main__":
    _main(*sys.argv[1:])

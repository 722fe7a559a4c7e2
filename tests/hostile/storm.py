"""Storms of connections: how fast a broker accepts them, and the effect on a good client.

Each case has its own broker process, whose log goes to a file. `make long` runs each case with 2,000 connections, `make
test` with fewer.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import trio

from tests.hostile.table import Row
from tests.support.exact_receive import receive_exactly
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.frames import encode_request

CONNECTIONS: Final = 2_000
_SECTION: Final = "storm"
_PATIENCE_SECONDS: Final = 60
_MOST_LINES: Final = 50
_FILES: Final = 300
"""Open files that the broker of the EMFILE case may have."""
_HELLO: Final = b"".join(
    encode_request(
        ApiVersionsRequest(client_software_name="storm", client_software_version="1"),
        version=3,
        correlation_id=1,
        client_id="storm",
    )
)


class MeasuredBroker:
    """A broker in its own process, with measurements of its resources."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()[1].rsplit(":", 1)
        self.address = (host, int(port))
        self.log = log
        self._process = process

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def processor_seconds(self) -> float:
        """Processor time of the process since its start."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def open_files(self) -> int:
        """Open file descriptors of the process, connections included."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    @property
    def resident_kib(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    def log_lines(self) -> list[str]:
        """Its log lines at WARNING and above."""
        return self.log.read_text().splitlines()


@contextmanager
def measured_broker(
    *settings: str, files: int | None = None, data_directory: Path | None = None
) -> Iterator[MeasuredBroker]:
    """Run a broker for the length of the block, with at most ``files`` open files; in memory without a directory."""
    where = "--in-memory" if data_directory is None else f"--data-dir={data_directory}"
    command = [sys.executable, "-m", "triokafka", "broker", where, "--listen", "127.0.0.1:0"]
    command += [f"--set={setting}" for setting in settings]
    if files is not None:
        command = ["bash", "-c", f'ulimit -n {files} && exec "$@"', "bash", *command]
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "broker.log"
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield MeasuredBroker(process, log)
        finally:
            process.kill()
            process.communicate()


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files so that it can hold ``count`` connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def ask(connection: socket.socket) -> None:
    """Send ApiVersions and receive the whole response."""
    connection.settimeout(_PATIENCE_SECONDS)
    connection.sendall(_HELLO)
    size = int.from_bytes(receive_exactly(connection, 4), "big")
    receive_exactly(connection, size)


def answered_within(broker: MeasuredBroker, seconds: float) -> float | None:
    """Connect and send another request; return the seconds that it took, None after ``seconds``."""
    began = time.monotonic()
    try:
        with socket.create_connection(broker.address, timeout=seconds) as connection:
            ask(connection)
    except OSError:
        return None
    return time.monotonic() - began


def sequential(count: int) -> Iterator[Row]:
    """Connect ``count`` times, one after the other, and hold the connections."""
    with measured_broker() as broker, ExitStack() as held:
        began = time.monotonic()
        for _ in range(count):
            held.enter_context(socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS))
        connected = time.monotonic() - began
        yield _row(f"{count:,} sequential connects", f"{connected:.2f} s", "5 s", connected < 5)
        answered = answered_within(broker, _PATIENCE_SECONDS)
        yield _row("the next client's first answer", _seconds(answered), "2 s", answered is not None and answered < 2)


def parallel(count: int) -> Iterator[Row]:
    """Connect ``count`` times at once, and send a request on each connection."""
    worst = 0.0

    async def one(address: tuple[str, int]) -> None:
        nonlocal worst
        began = trio.current_time()
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            await stream.send_all(_HELLO)
            assert await stream.receive_some(4096)
            worst = max(worst, trio.current_time() - began)

    async def all_of_them(address: tuple[str, int]) -> None:
        with trio.fail_after(_PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(one, address)

    with measured_broker() as broker:
        before = broker.processor_seconds
        began = time.monotonic()
        trio.run(all_of_them, broker.address)
        seconds = time.monotonic() - began
        each = (broker.processor_seconds - before) / count * 1e6
        yield _row(f"{count:,} parallel connects, each answered", f"{seconds:.2f} s", "10 s", seconds < 10)
        yield _row("processor time of the broker for each", f"{each:.0f} µs", "2,000 µs", each < 2000)


def closed_at_once(count: int) -> Iterator[Row]:
    """Connect and close ``count`` times: every other connection is closed cleanly, the others are reset."""
    with measured_broker() as broker:
        files = broker.open_files
        began = time.monotonic()
        for number in range(count):
            connection = socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS)
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        seconds = time.monotonic() - began
        answered = answered_within(broker, _PATIENCE_SECONDS)
        yield _row(f"{count:,} connects closed at once", f"{seconds:.2f} s", "5 s", seconds < 5)
        yield _row("the next client's first answer", _seconds(answered), "2 s", answered is not None and answered < 2)
        left = _wait_for_files(broker, files)
        yield _row("file descriptors left behind", str(left), "0", left == 0)


def out_of_files(count: int) -> Iterator[Row]:
    """Hold more connections than the broker may have open files, and then close them."""
    with measured_broker(files=_FILES) as broker:
        with ExitStack() as held:
            good = held.enter_context(socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS))
            ask(good)
            for _ in range(min(count, 3 * _FILES)):
                more = held.enter_context(socket.socket())
                more.setblocking(False)  # those beyond the backlog are never connected
                more.connect_ex(broker.address)
            before, began = broker.processor_seconds, time.monotonic()
            while time.monotonic() - began < 2:
                ask(good)
                time.sleep(0.05)
            busy = (broker.processor_seconds - before) / (time.monotonic() - began)
            yield _row("EMFILE: processor meanwhile", f"{busy:.0%}", "25 %", busy < 0.25)
            lines = len(broker.log_lines())
            yield _row("EMFILE: lines in the log", str(lines), "5", 1 <= lines < 5)
        answered = answered_within(broker, _PATIENCE_SECONDS)
        met = answered is not None and answered < 5 and broker.running
        yield _row("EMFILE: first answer after the others have left", _seconds(answered), "5 s", met)


def garbage(count: int) -> Iterator[Row]:
    """Send garbage over ``count`` connections, one after the other, and wait until each is closed."""
    junk = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\x00",
        b"\xff" * 64,
        b"\x00\x00\x00\x04\x7f\xff\x00\x00",
    )
    with measured_broker() as broker:
        good = socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS)
        waits: list[float] = []
        with good:
            for number in range(count):
                with socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS) as connection:
                    connection.sendall(junk[number % len(junk)])
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
                if not number % 10:
                    began = time.monotonic()
                    ask(good)
                    waits.append(time.monotonic() - began)
        worst = sorted(waits)[int(len(waits) * 0.99)]
        lines = len(broker.log_lines())
        yield _row(
            f"{count:,} connections of garbage: lines in the log", str(lines), str(_MOST_LINES), lines <= _MOST_LINES
        )
        yield _row("a good client's p99 meanwhile", f"{worst * 1000:.1f} ms", "100 ms", worst < 0.1)


def half_open(count: int) -> Iterator[Row]:
    """Hold ``count`` connections that have sent half a request and send nothing more."""
    with measured_broker() as broker, ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(socket.create_connection(broker.address, timeout=_PATIENCE_SECONDS))
            connection.sendall(_HELLO[:10])
        waits = [answered_within(broker, _PATIENCE_SECONDS) for _ in range(50)]
        worst = max((wait for wait in waits if wait is not None), default=float("inf"))
        met = None not in waits and worst < 1
        yield _row(f"{count:,} half-open clients: a good client's worst connect", _seconds(worst), "1 s", met)
        before, began = broker.processor_seconds, time.monotonic()
        time.sleep(1)
        busy = (broker.processor_seconds - before) / (time.monotonic() - began)
        yield _row("processor while they are silent", f"{busy:.0%}", "10 %", busy < 0.1)


CASES: Final[tuple[Callable[[int], Iterator[Row]], ...]] = (
    sequential,
    parallel,
    closed_at_once,
    out_of_files,
    garbage,
    half_open,
)


def measure(count: int = CONNECTIONS) -> Iterator[Row]:
    """Run every case with ``count`` connections."""
    allow_connections(count)
    for case in CASES:
        yield from case(count)


def _row(case: str, figure: str, limit: str, met: bool) -> Row:
    return Row(_SECTION, case, figure, f"below {limit}" if limit != "0" else limit, met)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.3f} s"


def _wait_for_files(broker: MeasuredBroker, files: int) -> int:
    """Wait until the broker has closed new connections; return how many descriptors more than before it has after a
    while.
    """
    deadline = time.monotonic() + 10
    while (left := broker.open_files - files) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)  # there is no event for the change in another process
    return max(left, 0)

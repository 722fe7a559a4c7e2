"""A triokafka broker in its own process, for tests that use other clients or kill the broker."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triokafka.cli.cluster.free_ports import free_ports

START_TIMEOUT = 60


def free_port() -> int:
    """Return a free port on loopback that no outgoing connection will get."""
    return free_ports(1)[0]


class BrokerProcess:
    """``triokafka broker`` on loopback; it keeps its port across restarts.

    With ``config``, a properties file has the listeners. With ``controlled``, ``control`` is the address of its control
    endpoint, which injects faults. ``discards_log`` is for tests that make the broker log more than a pipe holds;
    with ``logs_to`` the log goes to a file, and ``verbose`` logs every request.
    """

    def __init__(
        self,
        data_directory: Path | None,
        *more_directories: Path,
        listen: str | None = None,
        settings: dict[str, str] | None = None,
        controlled: bool = False,
        discards_log: bool = False,
        config: Path | None = None,
        logs_to: Path | None = None,
        verbose: bool = False,
    ):
        directories = () if data_directory is None else (data_directory, *more_directories)
        where = [f"--data-dir={path}" for path in directories] or _memory(config)
        options = [text for key, value in (settings or {}).items() for text in ("--set", f"{key}={value}")]
        options += ["-vv"] if verbose else []
        options += ["--control", "127.0.0.1:0"] if controlled else []
        self._controlled = controlled
        self._errors = subprocess.DEVNULL if discards_log else subprocess.PIPE
        self._logs_to = logs_to
        self.control = ""
        self._command = [sys.executable, "-m", "triokafka", "broker", *where, *options]
        self._listen = ["--listen", listen if listen is not None else f"127.0.0.1:{free_port()}"]
        if config is not None:
            self._listen = ["--config", str(config)]
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def start(self) -> str:
        """Start it and return HOST:PORT once it accepts connections."""
        errors = self._errors if self._logs_to is None else self._logs_to.open("wb")
        process = subprocess.Popen([*self._command, *self._listen], stdout=subprocess.PIPE, stderr=errors)
        if not isinstance(errors, int):
            errors.close()
        self._process = process
        line = _read_line(process, START_TIMEOUT)
        if not line.startswith("ready "):
            process.kill()
            _, complaints = process.communicate()
            raise AssertionError(f"the broker did not start: {line}{(complaints or b'').decode(errors='replace')}")
        self.bootstrap = line.split()[1]
        if self._listen[0] == "--listen":
            self._listen[1] = self.bootstrap
        if self._controlled:
            self.control = _read_line(process, START_TIMEOUT).split()[1]
        return self.bootstrap

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed or closed."""
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, and return the exit status."""
        return self.end(signal.SIGTERM)

    def end(self, signal_number: int) -> int:
        """Send the signal, wait for the end, and return the exit status."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            os.kill(process.pid, signal_number)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        finally:
            self._process = None
        return process.returncode

    def close(self) -> None:
        """End the process in any state."""
        if self._process is not None:
            self.end(signal.SIGKILL)


def _memory(config: Path | None) -> list[str]:
    return [] if config is not None and "log.dirs" in config.read_text() else ["--in-memory"]


def _read_line(process: subprocess.Popen[bytes], timeout: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + timeout
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0, deadline - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 1)
            if not chunk:
                break
            line += chunk
    return line.decode(errors="replace")


@contextmanager
def broker_process(data_directory: Path | None = None, *, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run a broker for the length of the block; yield its bootstrap address."""
    broker = BrokerProcess(data_directory, settings=settings)
    try:
        yield broker.start()
    finally:
        broker.close()

"""The brokers of the broker table. Each is started as its users start it, with its own data directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from benchmarks.brokers import end_brokers_on_sigterm
from benchmarks.clients.brokers import KafkaBroker
from triokafka.cli.load.brokers import MeasurementError

KAFKA_JARS: Final = Path(__file__).parent.parent / ".interop" / "jars"

_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 120
_ASK_EVERY: Final = 0.002
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)

Settings: TypeAlias = Mapping[str, str]
"""Properties of a broker with Kafka's names; noida-db has none."""

_NO_SETTINGS: Final[Settings] = MappingProxyType({})


class Kind(NamedTuple):
    """One broker program."""

    name: str
    command: Callable[[Path, int, Settings], list[str]]
    """Returns the command for a directory, a port and settings."""
    missing: Callable[[], str]
    """The reason why it cannot run here, or an empty string."""
    prepare: Callable[[Path, int, Settings], None] = lambda _directory, _port, _settings: None
    """Prepares a directory once, before the first start; not part of the start time."""
    keeps_data: bool = True


class Running(NamedTuple):
    """A started broker."""

    broker: KafkaBroker
    start_seconds: float
    """Seconds from the start of the process to its first answer."""
    process: subprocess.Popen[bytes]


class Instance:
    """A broker with one directory and port, which can be started and stopped repeatedly."""

    def __init__(self, kind: Kind, directory: Path, settings: Settings = _NO_SETTINGS) -> None:
        self.kind = kind
        self._settings = settings
        self._directory = directory
        self._port = _free_port()
        self._running: Running | None = None
        directory.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        kind.prepare(directory, self._port, settings)
        self.prepare_seconds: Final = time.perf_counter() - began

    def start(self) -> Running:
        """Start the broker and wait for its first answer. Raises `MeasurementError` without one."""
        command = self.kind.command(self._directory, self._port, self._settings)
        log = self._directory / "output.log"
        # Users' brokers find compiled byte code, so this one may write it, whatever the environment of this process
        # says.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        end_brokers_on_sigterm()
        began = time.perf_counter()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
            )
        broker = KafkaBroker(process.pid, f"127.0.0.1:{self._port}")
        self._running = Running(broker, 0.0, process)
        while not _answers(self._port):
            if process.poll() is not None or time.perf_counter() - began > _START_SECONDS:
                said = log.read_text(errors="replace").strip().splitlines()
                self.kill()
                raise MeasurementError(f"{self.kind.name} did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(_ASK_EVERY)
        self._running = Running(broker, time.perf_counter() - began, process)
        return self._running

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self._running is not None
        process = self._running.process
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise MeasurementError(f"{self.kind.name} did not stop within {_STOP_SECONDS} s") from None
        self.kill()

    def kill(self) -> None:
        """Kill the process and all its children."""
        if self._running is None:
            return
        process, self._running = self._running.process, None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    """Whether a broker answers a first request, which is the same for every kind."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(4)) > 0
    except OSError:
        return False


# -------------------------------------------------------------------- the kinds


def _ours(*where: str) -> Callable[[Path, int, Settings], list[str]]:
    def command(directory: Path, port: int, settings: Settings) -> list[str]:
        places = [text.format(directory=directory / "data") for text in where]
        options = [f"--set={name}={value}" for name, value in {"log.segment.delete.delay.ms": "0", **settings}.items()]
        return [sys.executable, "-m", "triokafka", "broker", "--listen", f"127.0.0.1:{port}", *places, *options]

    return command


def _noida_program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "noida-db"


def _noida(directory: Path, port: int, _settings: Settings) -> list[str]:
    options = ("--only", "kafka", "--kafka-port", str(port), "--host", "127.0.0.1", "--data-dir", str(directory))
    return [str(_noida_program()), "start", *options]


def _kafka_config(directory: Path) -> Path:
    return directory / "server.properties"


def _prepare_kafka(directory: Path, port: int, settings: Settings) -> None:
    controller = _free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.segment.delete.delay.ms": "0",
        **settings,
    }
    _kafka_config(directory).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    # An id that begins with a hyphen would be taken for an option.
    cluster_id = "K" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    subprocess.run(
        [*_java(), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(_kafka_config(directory))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def _java(*options: str) -> list[str]:
    return ["java", *options, "-cp", f"{KAFKA_JARS}/*"]


def _kafka(directory: Path, _port: int, _settings: Settings) -> list[str]:
    # The options that kafka-server-start.sh sets.
    options = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
    return [*_java(*options), "kafka.Kafka", str(_kafka_config(directory))]


def _kafka_missing() -> str:
    if shutil.which("java") is None:
        return "there is no java on the path"
    if not any(KAFKA_JARS.glob("kafka_2*.jar")):
        return "its jars are not there: `make interop` fetches them"
    return ""


def _nothing_missing() -> str:
    return ""


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("triokafka", _ours("--data-dir", "{directory}"), _nothing_missing),
        Kind("triokafka in memory", _ours("--in-memory"), _nothing_missing, keeps_data=False),
        Kind("noida-db", _noida, lambda: "" if _noida_program().exists() else "it is not installed"),
        Kind("Apache Kafka", _kafka, _kafka_missing, _prepare_kafka),
    )
}
"""Ours on disk and in memory, and two other brokers; Apache Kafka only if its jars are present."""

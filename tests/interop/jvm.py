"""The JVM peers: jars from Maven, Java programs, and a real Apache Kafka in KRaft mode on loopback."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from triokafka.cli.cluster.free_ports import free_ports

HERE = Path(__file__).parent
WORK = HERE.parent.parent / ".interop"
JARS = WORK / "jars"
CLASSES = WORK / "classes"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For programs that live for seconds or minutes, several on a machine."""

_SECONDS_TO_START: Final = 180


def require(*tools: str) -> None:
    """Fail with a clear message if one of the tools is missing: these tests run only on request."""
    for tool in tools:
        if shutil.which(tool) is None:
            package = {"mvn": "Maven", "javac": "a JDK", "java": "a Java"}[tool]
            pytest.fail(f"{tool} was not found: install {package} to run the tests against the JVM peers")


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Hold a lock, so that only one of several test processes does the work while the others wait."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def content_hash(*files: Path) -> str:
    """Name a result by the files it was made from: checkouts of one state can share ``.interop``."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def jars() -> Path:
    """Copy Kafka's jars from Maven into the checkout, once, and return their directory."""
    require("mvn")
    marker = JARS / f".copied-{content_hash(HERE / 'pom.xml')}"
    with one_at_a_time("jars"):
        if not marker.exists():
            shutil.rmtree(JARS, ignore_errors=True)
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
            done = subprocess.run(
                ["mvn", "-q", "-B", "-f", HERE / "pom.xml", *goal],
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            assert done.returncode == 0, f"Maven could not copy the jars: {done.stdout[-2000:]}"
            marker.touch()
    return JARS


def compiled() -> str:
    """Compile the Java programs beside this file, if they have changed; return their class path."""
    require("javac", "java")
    path = f"{CLASSES}{os.pathsep}{jars()}/*"
    sources = sorted((HERE / "java").glob("*.java"))
    with one_at_a_time("classes"):
        marker = CLASSES / f".compiled-{content_hash(HERE / 'pom.xml', *sources)}"
        if not marker.exists():
            shutil.rmtree(CLASSES, ignore_errors=True)
            CLASSES.mkdir(parents=True)
            done = subprocess.run(
                ["javac", "-cp", path, "-d", str(CLASSES), *map(str, sources)],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            marker.touch()
    return path


def run_java(main_class: str, *arguments: str, timeout: float = 300) -> str:
    """Run a compiled program to its end and return its output; fail with its error output."""
    done = subprocess.run(
        ["java", *QUICK_START, "-Xmx512m", "-cp", compiled(), main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{main_class} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@contextmanager
def apache_kafka(
    directory: Path, *, port: int | None = None, class_path: str | None = None, **overrides: str
) -> Iterator[str]:
    """Start one Apache Kafka node (broker and controller); yield its bootstrap address.

    Its data directory is ``directory / "data"``, which is formatted if necessary. It listens on ``port`` if that is
    given. ``class_path`` has the classes of plug-ins. ``overrides`` are further broker properties, with ``_`` for
    ``.``. The process ends with the block.
    """
    require("java")
    broker_port, controller_port = free_ports(2)
    broker_port = broker_port if port is None else port
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    config = directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path = f"{jars()}/*" if class_path is None else f"{jars()}/*{os.pathsep}{class_path}"
    if not (directory / "data" / "meta.properties").exists():
        # A first character "-" would make it an option.
        cluster_id = "K" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        done = subprocess.run(
            [
                "java",
                *QUICK_START,
                "-cp",
                path,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                cluster_id,
                "-c",
                str(config),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{directory} could not be formatted: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", *QUICK_START, "-Xmx512m", "-cp", path, "kafka.Kafka", str(config)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_listening(process, broker_port, log)
        yield f"127.0.0.1:{broker_port}"
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a JVM with SIGTERM, and with SIGKILL if it does not end within 30 seconds."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a JVM accepts connections; fail with the end of its log if it ends instead."""
    # There is no event for the start of another program: try until it responds, ends, or the time is over. On a busy
    # machine a JVM takes more than a minute.
    deadline = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"Apache Kafka ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"Apache Kafka did not listen within {_SECONDS_TO_START} seconds:\n{log.read_text()[-4000:]}")


def main() -> None:
    """Fetch everything from Maven and compile the programs, before several processes need them at once."""
    from benchmarks.spark_jars import connector_jars

    compiled()
    connector_jars()


if __name__ == "__main__":
    main()

"""Apache Kafka's MirrorMaker 2: its jars from Maven, and its process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.jvm import QUICK_START, WORK, content_hash, end, one_at_a_time, require

HERE = Path(__file__).parent
JARS = WORK / "mirror-maker"
CLASSES = WORK / "mirror-maker-classes"


def class_path() -> str:
    """Copy the jars and compile the program beside them, once; return the class path."""
    require("mvn", "javac", "java")
    pom, program = HERE / "pom.xml", HERE / "java" / "MirrorRecords.java"
    marker = JARS / f".copied-{content_hash(pom, program)}"
    with one_at_a_time("mirror-maker"):
        if not marker.exists():
            shutil.rmtree(JARS, ignore_errors=True)
            _run("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={JARS}")
            CLASSES.mkdir(parents=True, exist_ok=True)
            _run("javac", "-cp", f"{JARS}/*", "-d", CLASSES, program)
            marker.touch()
    return f"{CLASSES}:{JARS}/*"


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def mirror_records(*arguments: str) -> str:
    """Run the Java program that reads a flow's records with MirrorMaker's classes; return its output."""
    done = subprocess.run(
        ["java", *QUICK_START, "-Xmx256m", "-cp", class_path(), "MirrorRecords", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@contextmanager
def mirror_maker(directory: Path, west: str, east: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run MirrorMaker from ``west`` to ``east`` for the length of the block; its log is ``directory / "mm2.log"``."""
    replication = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.", "offset.storage.")
    properties = {
        "clusters": "west, east",
        "west.bootstrap.servers": west,
        "east.bootstrap.servers": east,
        "west->east.enabled": "true",
        "refresh.topics.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        **{f"{prefix}replication.factor": "1" for prefix in replication},
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    file = directory / "mm2.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    with (directory / "mm2.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", class_path(), "org.apache.kafka.connect.mirror.MirrorMaker", str(file)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        end(process)

"""Broker processes for measurements, and the records that they report."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import trio

import triokafka
from triokafka.cli.load.brokers import IN_MEMORY, SINK, MeasurementError, ready_process

_MAY_BE_OTHERWISE: Final = 0.01


class Broker(Protocol):
    """A broker in its own process."""

    bootstrap: str
    pid: int

    def received(self, topic: str, partition: int = 0) -> int:
        """Return the number of acknowledged records of a partition since the topic's creation."""

    def check(self, topic: str, compression: str) -> None:
        """Raise `MeasurementError` if the topic's records do not have the requested form."""

    def forget(self, topic: str) -> None:
        """Delete the records of a topic."""


class SinkBroker:
    """The broker that only acknowledges (`sink`)."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.pid = process.pid
        self._process = process

    def seen(self, topic: str) -> dict[str, Any]:
        """Return the sink's counts for the topic."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def received(self, topic: str, partition: int = 0) -> int:
        """Return the number of acknowledged records; the topic has one partition."""
        records: int = self.seen(topic)["records"]
        return records

    def check(self, topic: str, compression: str) -> None:
        """Check that no batch was refused and that records are compressed; a few may not be if compression does not
        pay."""
        seen = self.seen(topic)
        if seen["refused"]:
            raise MeasurementError(f"{seen['refused']} batches were refused, the first because {seen['reason']}")
        others = seen["records"] - seen["codecs"].get(compression, 0)
        if others > max(1, seen["records"] * _MAY_BE_OTHERWISE):
            raise MeasurementError(f"{others} of {seen['records']} records were not sent with {compression}")

    def forget(self, topic: str) -> None:
        """Do nothing: the sink keeps no records."""


class KafkaBroker:
    """A broker that stores records."""

    def __init__(self, pid: int, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.pid = pid

    def received(self, topic: str, partition: int = 0) -> int:
        """The end of the partition's log."""

        async def ask() -> int:
            wanted = triokafka.TopicPartition(topic, partition)
            async with triokafka.Consumer(bootstrap_servers=self.bootstrap) as consumer:
                return (await consumer.end_offsets([wanted], timeout_ms=30_000))[wanted]

        return trio.run(ask)

    def check(self, topic: str, compression: str) -> None:
        """Do nothing: the broker has checked the records."""

    def forget(self, topic: str) -> None:
        """Delete the topic."""

        async def delete() -> None:
            async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
                await admin.delete_topics([topic])

        trio.run(delete)


@contextmanager
def sink_broker(*, check_everything: bool = False) -> Iterator[SinkBroker]:
    """Run a broker that only acknowledges."""
    with ready_process(*SINK, *(["--check"] if check_everything else [])) as (process, bootstrap):
        yield SinkBroker(process, bootstrap)


@contextmanager
def in_memory_broker() -> Iterator[KafkaBroker]:
    """Run ``triokafka broker --in-memory``."""
    with ready_process(*IN_MEMORY) as (process, bootstrap):
        yield KafkaBroker(process.pid, bootstrap)

"""Broker processes to measure against, and what they say they received."""

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
    """A broker in a process of its own."""

    bootstrap: str
    pid: int

    def received(self, topic: str, partition: int = 0) -> int:
        """How many records it has acknowledged for a partition since there is the topic."""

    def check(self, topic: str, compression: str) -> None:
        """Raise `MeasurementError` when what came for the topic was not what was asked for."""

    def forget(self, topic: str) -> None:
        """Give up what it holds of a topic."""


class SinkBroker:
    """The one that only acknowledges (`sink`)."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.pid = process.pid
        self._process = process

    def seen(self, topic: str) -> dict[str, Any]:
        """What the sink saw of a topic."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def received(self, topic: str, partition: int = 0) -> int:
        """How many records came in batches that it acknowledged; it has one partition."""
        records: int = self.seen(topic)["records"]
        return records

    def check(self, topic: str, compression: str) -> None:
        """No batch was refused, and the records are compressed as asked; a few may not be, where it does not pay."""
        seen = self.seen(topic)
        if seen["refused"]:
            raise MeasurementError(f"{seen['refused']} batches were refused, the first because {seen['reason']}")
        others = seen["records"] - seen["codecs"].get(compression, 0)
        if others > max(1, seen["records"] * _MAY_BE_OTHERWISE):
            raise MeasurementError(f"{others} of {seen['records']} records were not sent with {compression}")

    def forget(self, topic: str) -> None:
        """Nothing is held."""


class KafkaBroker:
    """Any broker that keeps what it gets."""

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
        """It has refused itself what it did not like."""

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

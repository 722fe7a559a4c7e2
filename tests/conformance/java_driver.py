"""Kafka's own Java client, in one long-running process that takes calls as lines of JSON."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from tests.conformance.driver import (
    ClientDriver,
    Cluster,
    Config,
    ConsumerDriver,
    Delivered,
    Group,
    Member,
    Message,
    NotOffered,
    Partition,
    Record,
    Refused,
    Spot,
    Topic,
)

_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}


class JavaProcess:
    """The process; calls of several threads run concurrently."""

    def __init__(self, class_path: str) -> None:
        # A thread without memory would die, and its response would never arrive: end the whole process instead.
        command = ["java", "-Xmx1g", "-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._process = subprocess.Popen(
            [*command, "-cp", class_path, "ConformanceDriver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"])
            if "refused" in answer:
                future.set_exception(Refused(answer["refused"], answer["text"]))
            elif "failed" in answer:
                future.set_exception(RuntimeError(answer["text"]))
            else:
                future.set_result(answer["result"])
        with self._lock:
            for future in self._waiting.values():
                future.set_exception(RuntimeError("the Java process ended"))

    def call(self, call: str, arguments: Mapping[str, Any], timeout: float, **on: int) -> Any:
        """Make one call, and return its result."""
        future: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            self._process.stdin.write(json.dumps({"id": number, "call": call, "arguments": arguments, **on}) + "\n")
            self._process.stdin.flush()
        # The Java side has its own limit for each step of a call; this one is for a process that hangs.
        return future.result(timeout * 3)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def java_process(class_path: str) -> Iterator[JavaProcess]:
    """Run a process for the length of the block."""
    process = JavaProcess(class_path)
    try:
        yield process
    finally:
        process.close()


def _outcome(answer: list[Any] | dict[str, Any]) -> Delivered | Refused:
    if not isinstance(answer, dict):
        return Delivered(*answer)
    if "failed" in answer:
        raise RuntimeError(answer["text"])
    return Refused(answer["refused"], answer["text"])


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _topic(found: Mapping[str, Any]) -> Topic:
    partitions = {
        int(number): Partition(leader, tuple(replicas), tuple(isr))
        for number, (leader, replicas, isr) in found["partitions"].items()
    }
    return Topic(found["internal"], partitions, found["id"])


class JavaConsumer(ConsumerDriver):
    """A ``KafkaConsumer``."""

    def __init__(self, driver: JavaDriver, number: int) -> None:
        self._driver = driver
        self._number = number

    def _call(self, call: str, **arguments: Any) -> Any:
        return self._driver.call(call, consumer=self._number, **arguments)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._call("subscribe", topics=list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._call("subscribe_pattern", pattern=pattern)

    def subscribe_server_pattern(self, pattern: str) -> None:
        self._call("subscribe_server_pattern", pattern=pattern)

    def assign(self, topic: str, offsets: Mapping[int, int | None]) -> None:
        self._call("assign", topic=topic, offsets=dict(offsets))

    def poll(self) -> list[Record]:
        return [
            Record(
                one["topic"],
                one["partition"],
                one["offset"],
                one["timestamp"],
                one["timestamp_type"],
                _bytes(one["key"]),
                _bytes(one["value"]),
                tuple((name, _bytes(value)) for name, value in one["headers"]),
            )
            for one in self._call("poll")
        ]

    def assignment(self) -> set[Spot]:
        return {(topic, partition) for topic, partition in self._call("assignment")}

    def position(self, spot: Spot) -> int:
        return int(self._call("position", spot=spot))

    def seek(self, spot: Spot, offset: int) -> None:
        self._call("seek", spot=spot, offset=offset)

    def seek_to_beginning(self, spot: Spot) -> None:
        self._call("seek_to_beginning", spot=spot)

    def seek_to_end(self, spot: Spot) -> None:
        self._call("seek_to_end", spot=spot)

    def pause(self, spot: Spot) -> None:
        self._call("pause", spot=spot)

    def resume(self, spot: Spot) -> None:
        self._call("resume", spot=spot)

    def commit(self, offsets: Mapping[Spot, tuple[int, str]] | None = None) -> None:
        self._call("commit", offsets=None if offsets is None else [[*spot, *to] for spot, to in offsets.items()])

    def committed(self, spot: Spot) -> int | None:
        found: int | None = self._call("committed", spot=spot)
        return found

    def beginning(self, spot: Spot) -> int:
        return int(self._call("beginning", spot=spot))

    def end(self, spot: Spot) -> int:
        return int(self._call("end", spot=spot))

    def offset_for_time(self, spot: Spot, timestamp: int) -> int | None:
        found: int | None = self._call("offset_for_time", spot=spot, timestamp=timestamp)
        return found

    def close(self) -> None:
        self._call("close")


class JavaDriver(ClientDriver):
    """The Java producer, consumer and admin client."""

    name = "Java"

    def __init__(self, process: JavaProcess, bootstrap: str, patience: float) -> None:
        super().__init__(bootstrap, patience)
        self._process = process
        arguments = {"bootstrap": bootstrap, "patience_ms": int(patience * 1000)}
        self._session = process.call("open", arguments, patience)

    def call(self, call: str, *, consumer: int | None = None, producer: int | None = None, **arguments: Any) -> Any:
        """Make a call on this session, or on one of its consumers or transactional producers."""
        on = {name: one for name, one in (("consumer", consumer), ("producer", producer)) if one is not None}
        return self._process.call(call, arguments, self.patience, session=self._session, **on)

    def close(self) -> None:
        self.call("close")

    def produce(self, topic: str, messages: Sequence[Message], **options: Any) -> list[Delivered | Refused]:
        found = self.call(
            "produce",
            topic=topic,
            messages=[
                {
                    "value": _text(message.value),
                    "key": _text(message.key),
                    "partition": message.partition,
                    "timestamp": message.timestamp,
                    "headers": [[name, _text(value)] for name, value in message.headers],
                }
                for message in messages
            ],
            options=options,
        )
        return [_outcome(one) for one in found]

    def consumer(self, group: str | None = None, **options: Any) -> ConsumerDriver:
        if "api_version" in options:
            raise NotOffered("Java has no option api.version")
        return JavaConsumer(self, self.call("consumer", group=group, options=options))

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int = 1,
        replication: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        codes: dict[str, int] = self.call(
            "create_topics",
            names=list(names),
            partitions=partitions,
            replication=replication,
            configs=dict(configs or {}),
            assignment=assignment,
            validate_only=validate_only,
        )
        return codes

    def delete_topics(self, names: Sequence[str]) -> dict[str, int]:
        codes: dict[str, int] = self.call("delete_topics", names=list(names))
        return codes

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        self.call("create_partitions", topic=topic, count=count, assignment=assignment, validate_only=validate_only)

    def topics(self) -> set[str]:
        return set(self.call("topics"))

    def describe_topic(self, name: str) -> Topic:
        return _topic(self.call("describe_topic", name=name))

    def describe_topic_by_id(self, topic_id: str) -> Topic:
        return _topic(self.call("describe_topic_by_id", topic_id=topic_id))

    def delete_topic_by_id(self, topic_id: str) -> None:
        self.call("delete_topic_by_id", topic_id=topic_id)

    def describe_cluster(self) -> Cluster:
        found = self.call("describe_cluster")
        return Cluster(found["id"], found["controller"], tuple(found["nodes"]))

    def describe_configs(self, kind: str, name: str) -> dict[str, Config]:
        return {
            key: Config(value, _SOURCES.get(source, -1), read_only, sensitive)
            for key, (value, source, read_only, sensitive) in self.call(
                "describe_configs", kind=kind, name=name
            ).items()
        }

    def incremental_alter(
        self, kind: str, name: str, changes: Mapping[str, tuple[str, str | None]], *, validate_only: bool = False
    ) -> None:
        self.call("incremental_alter", kind=kind, name=name, changes=dict(changes), validate_only=validate_only)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        found = self.call("delete_records", topic=topic, before=dict(before))
        return {int(partition): low for partition, low in found.items()}

    def list_offsets(self, topic: str, specs: Mapping[int, str | int]) -> dict[int, tuple[int, int]]:
        found = self.call("list_offsets", topic=topic, specs=dict(specs))
        return {int(partition): (offset, timestamp) for partition, (offset, timestamp) in found.items()}

    def groups(self, states: Iterable[str] | None = None, types: Iterable[str] | None = None) -> set[str]:
        return set(self.call("groups", states=list(states or ()), types=list(types or ())))

    def describe_group(self, group: str) -> Group:
        found = self.call("describe_group", group=group)
        members = (
            Member(
                one["id"],
                one["client_id"],
                one["host"],
                frozenset((topic, partition) for topic, partition in one["assignment"]),
            )
            for one in found["members"]
        )
        return Group(found["state"], found["assignor"], tuple(members))

    def group_offsets(self, group: str, *, require_stable: bool = False) -> dict[Spot, tuple[int, str]]:
        found = self.call("group_offsets", group=group, require_stable=require_stable)
        return {(topic, partition): (offset, text) for topic, partition, offset, text in found}

    def alter_group_offsets(self, group: str, offsets: Mapping[Spot, int]) -> None:
        self.call("alter_group_offsets", group=group, offsets=[[*spot, offset] for spot, offset in offsets.items()])

    def delete_group_offsets(self, group: str, spots: Sequence[Spot]) -> None:
        self.call("delete_group_offsets", group=group, spots=list(spots))

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)

    def remove_static_member(self, group: str, instance: str) -> None:
        self.call("remove_static_member", group=group, instance=instance)

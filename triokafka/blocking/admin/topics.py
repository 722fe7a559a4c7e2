"""Topics and partitions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import triokafka
from triokafka.blocking.admin.session import AdminPart, code_of, each, message_of, raise_first
from triokafka.blocking.admin.types import NewPartitions, NewTopic
from triokafka.client.admin import NewPartitions as SdkNewPartitions
from triokafka.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from triokafka import AdminClient

_NO_ID: Final = uuid.UUID(int=0)
_SECONDS_BETWEEN_LOOKS: Final = 0.1


class CreatePartitionsResult(NamedTuple):
    """What became of one topic."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(NamedTuple):
    """What became of all."""

    throttle_time_ms: int
    results: list[CreatePartitionsResult]


class TopicPart(AdminPart):
    """The part of `KafkaAdminClient` about topics."""

    def list_topics(self) -> list[str]:
        """The names of all topics, Kafka's own included."""
        return [topic["name"] for topic in self.describe_topics()]

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[dict[str, Any]]:
        """Topics with their partitions, all or those given by name or id, as dicts with the protocol's field names."""
        wanted = None if topics is None else list(topics)

        async def ask(admin: AdminClient) -> list[dict[str, Any]]:
            patience = self.config["request_timeout_ms"]
            names: Collection[str] = [one for one in wanted or () if isinstance(one, str)]
            if wanted is None or len(names) < len(wanted):
                listed = await admin.list_topics(include_internal=True, timeout_ms=patience)
                ids = {listing.topic_id: listing.name for listing in listed}
                if wanted is None:
                    names = [listing.name for listing in listed]
                else:
                    names = [one if isinstance(one, str) else ids.get(one, "") for one in wanted]
            found = await admin.describe_topics([name for name in names if name], timeout_ms=patience)
            return [_described(name, found) if name else _missing("", 100) for name in names]

        return self._run(ask)

    def create_topics(
        self,
        new_topics: Sequence[NewTopic | str] | Mapping[str, Mapping[str, Any]],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics; returns ``{"topics": [...]}`` with the protocol's field names.

        Arguments:
            new_topics: names, `NewTopic`, or a dict of name to ``num_partitions``, ``replication_factor``,
                ``assignments`` and ``configs``.
            timeout_ms: longest time for each; ``request_timeout_ms`` by default.
            validate_only: create nothing.
            raise_errors: raise the first error, after all were tried; else it is in the result.
            wait_for_metadata: return when all have leaders.
        """
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata are mutually exclusive")
        topics = _new_topics(new_topics)
        patience = self._validate_timeout(timeout_ms)

        async def create(admin: AdminClient) -> dict[str, Any]:
            async def one(name: str) -> Any:
                made = await admin.create_topics([topics[name]], validate_only=validate_only, timeout_ms=patience)
                return made[name]

            return await each(topics, one)

        outcomes = self._run(create)
        if raise_errors:
            raise_first(outcomes.values())
        if wait_for_metadata:
            self.wait_for_topics(topics)
        return {"topics": [_created(name, outcome) for name, outcome in outcomes.items()]}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until all partitions of topics have leaders.

        Raises:
            KafkaTimeoutError: names what is missing.
        """
        names = list(topic_names)
        until = time.monotonic() + timeout_ms / 1000
        while names:
            pending = {topic["name"]: why for topic in self.describe_topics(names) if (why := _not_ready(topic))}
            if not pending:
                return
            if time.monotonic() >= until:
                raise KafkaTimeoutError(f"Topics not ready after {timeout_ms}ms: {pending}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name or id; returns ``{"topics": [...]}`` with the protocol's field names."""
        patience = self._validate_timeout(timeout_ms)

        async def delete(admin: AdminClient) -> dict[Any, Any]:
            return await each(list(topics), lambda topic: admin.delete_topics([topic], timeout_ms=patience))

        outcomes = self._run(delete)
        if raise_errors:
            raise_first(outcomes.values())
        return {
            "topics": [
                {
                    "name": topic if isinstance(topic, str) else None,
                    "topic_id": _NO_ID if isinstance(topic, str) else topic,
                    "error_code": code_of(outcome),
                    "error_message": message_of(outcome),
                }
                for topic, outcome in outcomes.items()
            ]
        }

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResponse:
        """Give topics more partitions; the answer has the protocol's field names."""
        wanted = {topic: _new_partitions(count) for topic, count in topic_partitions.items()}
        patience = self._validate_timeout(timeout_ms)

        async def create(admin: AdminClient) -> dict[str, Any]:
            async def one(topic: str) -> None:
                more = {topic: wanted[topic]}
                await admin.create_partitions(more, validate_only=validate_only, timeout_ms=patience)

            return await each(wanted, one)

        outcomes = self._run(create)
        if raise_errors:
            raise_first(outcomes.values())
        results = [
            CreatePartitionsResult(topic, code_of(outcome), message_of(outcome)) for topic, outcome in outcomes.items()
        ]
        return CreatePartitionsResponse(0, results)

    def describe_topic_partitions(
        self,
        topics: Sequence[str],
        response_partition_limit: int = 2_000,
        cursor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As `describe_topics`, at most so many partitions, from ``cursor`` on, which the answer before brought.

        What brokers know of eligible leader replicas is not asked for; those lists are empty.
        """
        found: list[dict[str, Any]] = []
        left = response_partition_limit
        begin = (cursor["topic_name"], cursor["partition_index"]) if cursor else ("", 0)
        for topic in self.describe_topics(sorted(name for name in topics if name >= begin[0])):
            skipped = begin[1] if topic["name"] == begin[0] else 0
            partitions = topic["partitions"][skipped:]
            if left <= 0 and partitions:
                return {"topics": found, "next_cursor": {"topic_name": topic["name"], "partition_index": skipped}}
            more = len(partitions) > left
            for partition in partitions[:left]:
                partition.update(eligible_leader_replicas=[], last_known_elr=[])
            found.append({**topic, "partitions": partitions[:left]})
            if more:
                at = partitions[left]["partition_index"]
                return {"topics": found, "next_cursor": {"topic_name": topic["name"], "partition_index": at}}
            left -= len(partitions)
        return {"topics": found, "next_cursor": None}


def _new_topics(given: Any) -> dict[str, triokafka.NewTopic]:
    topics: dict[str, triokafka.NewTopic] = {}
    if isinstance(given, Mapping):
        for name, data in given.items():
            topics[name] = triokafka.NewTopic(
                name,
                data.get("num_partitions", -1),
                data.get("replication_factor", -1),
                dict(data.get("configs", {})),
                dict(data["assignments"]) if data.get("assignments") else None,
            )
    else:
        for one in given:
            if isinstance(one, str):
                topics[one] = triokafka.NewTopic(one)
            elif isinstance(one, NewTopic):
                configs, assignments = dict(one.topic_configs), dict(one.replica_assignments) or None
                topics[one.name] = triokafka.NewTopic(
                    one.name, one.num_partitions, one.replication_factor, configs, assignments
                )
    if not topics:
        raise ValueError(f"No valid topics found in new_topics: {given}")
    return topics


def _new_partitions(given: Any) -> int | SdkNewPartitions:
    if isinstance(given, int):
        return given
    if isinstance(given, Mapping):
        return SdkNewPartitions(given["count"], given["assignments"])
    return SdkNewPartitions(given.total_count, given.new_assignments)


def _created(name: str, outcome: Any) -> dict[str, Any]:
    failed = isinstance(outcome, KafkaError)
    return {
        "name": name,
        "topic_id": _NO_ID if failed else outcome.topic_id,
        "error_code": code_of(outcome),
        "error_message": message_of(outcome),
        "num_partitions": -1 if failed else outcome.num_partitions,
        "replication_factor": -1 if failed else outcome.replication_factor,
    }


def _missing(name: str, code: int) -> dict[str, Any]:
    return {"error_code": code, "name": name, "topic_id": _NO_ID, "is_internal": False, "partitions": []}


def _described(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    try:
        topic = found[name]
    except KafkaError as error:
        return _missing(name, code_of(error))
    return {
        "error_code": 0,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": 0 if partition.leader is not None else 5,
                "partition_index": partition.partition,
                "leader_id": -1 if partition.leader is None else partition.leader.node_id,
                "leader_epoch": partition.leader_epoch,
                "replica_nodes": list(partition.replicas),
                "isr_nodes": list(partition.isr),
                "offline_replicas": list(partition.offline_replicas),
            }
            for partition in topic.partitions
        ],
    }


def _not_ready(topic: Mapping[str, Any]) -> str | None:
    if topic["error_code"]:
        return triokafka.errors.for_code(topic["error_code"]).__name__
    if not topic["partitions"]:
        return "no partitions reported"
    return ",".join(f"p{p['partition_index']}=no leader" for p in topic["partitions"] if p["leader_id"] < 0) or None

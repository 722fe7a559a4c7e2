"""The calls of `KafkaAdminClient` about topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import triokafka
from triokafka.blocking.admin.session import AdminSession, code_of, message_of, names_of, raise_first
from triokafka.blocking.admin.types import ConfigSourceType, NewPartitions, NewTopic
from triokafka.client.admin import ConfigEntry, TopicDescription
from triokafka.client.admin import NewPartitions as SdkNewPartitions
from triokafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from triokafka import AdminClient

_SECONDS_BETWEEN_LOOKS: Final = 0.1


class CreatePartitionsResult(NamedTuple):
    """The result of one topic."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(NamedTuple):
    """The results of all topics."""

    throttle_time_ms: int
    results: list[CreatePartitionsResult]


class TopicCalls:
    """Lists, describes, creates, grows and deletes topics."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def list_topics(self) -> list[str]:
        """Return the names of all topics, including internal ones."""
        return [topic["name"] for topic in self.describe_topics()]

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[dict[str, Any]]:
        """Describe all topics, or those given by name or id, as dicts with the protocol's field names."""
        wanted = None if topics is None else list(topics)

        async def ask(admin: AdminClient) -> list[dict[str, Any]]:
            patience = self._session.timeout_ms()
            asked = wanted
            if asked is None:
                asked = [one.name for one in await admin.list_topics(include_internal=True, timeout_ms=patience)]
            found = await admin.describe_topics(asked, include_authorized_operations=True, timeout_ms=patience)
            return [_described(one, found) for one in asked]

        return self._session.run(ask)

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
            timeout_ms: time limit; ``request_timeout_ms`` by default.
            validate_only: check everything and create nothing.
            raise_errors: raise the first error after all topics were tried; otherwise errors are in the result.
            wait_for_metadata: wait until all partitions have leaders.
        """
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata are mutually exclusive")
        topics = _new_topics(new_topics)
        patience = self._session.timeout_ms(timeout_ms)
        outcomes = self._session.change(
            topics,
            lambda admin: admin.create_topics(topics.values(), validate_only=validate_only, timeout_ms=patience),
        )
        if raise_errors:
            raise_first(outcomes.values())
        if wait_for_metadata:
            self.wait_for_topics(topics)
        return {"topics": [_created(name, outcome) for name, outcome in outcomes.items()]}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until all partitions of topics have leaders; failed queries are repeated.

        Raises:
            KafkaTimeoutError: names the topics that are not ready, and why.
            IllegalStateError: the client is closed.
        """
        names = list(topic_names)
        until = time.monotonic() + timeout_ms / 1000
        while names:
            try:
                found = {topic["name"]: topic for topic in self.describe_topics(names)}
                pending = {name: why for name in names if (why := _not_ready(found.get(name) or _missing(name, 3)))}
            except IllegalStateError:
                raise
            except Exception as error:
                pending = dict.fromkeys(names, repr(error))
            if not pending:
                return
            if time.monotonic() >= until:
                raise KafkaTimeoutError(f"Topics not ready after {timeout_ms}ms: {pending}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name or id; returns ``{"topics": [...]}`` with the protocol's field names."""
        patience = self._session.timeout_ms(timeout_ms)
        wanted = list(topics)
        outcomes = self._session.change(wanted, lambda admin: admin.delete_topics(wanted, timeout_ms=patience))
        if raise_errors:
            raise_first(outcomes.values())
        return {
            "topics": [
                {
                    "name": topic if isinstance(topic, str) else None,
                    "topic_id": None if isinstance(topic, str) else str(topic),
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
        """Add partitions to topics; the result has the protocol's field names."""
        wanted = {topic: _new_partitions(count) for topic, count in topic_partitions.items()}
        patience = self._session.timeout_ms(timeout_ms)
        outcomes = self._session.change(
            wanted, lambda admin: admin.create_partitions(wanted, validate_only=validate_only, timeout_ms=patience)
        )
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
        """Describe topics in pages of ``response_partition_limit`` partitions (KIP-966).

        ``cursor`` is the ``next_cursor`` of the page before.

        Raises:
            UnsupportedVersionError: the broker is older than 3.7.
        """
        begin = None if cursor is None else (cursor["topic_name"], cursor["partition_index"])
        patience = self._session.timeout_ms()
        page = self._session.run(
            lambda admin: admin.describe_topic_partitions(
                topics, partition_limit=response_partition_limit, cursor=begin, timeout_ms=patience
            )
        )
        found = [_on_page(topic) for topic in page.topics.values()]
        found += [_missing(name, code_of(error)) for name, error in page.errors.items()]
        end = None if page.cursor is None else {"topic_name": page.cursor[0], "partition_index": page.cursor[1]}
        return {"topics": found, "next_cursor": end}


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
        "topic_id": None if failed else str(outcome.topic_id),
        "error_code": code_of(outcome),
        "error_message": message_of(outcome),
        "topic_config_error_code": 0,
        "num_partitions": -1 if failed else outcome.num_partitions,
        "replication_factor": -1 if failed else outcome.replication_factor,
        "configs": None if failed or outcome.configs is None else _configs(outcome.configs),
    }


def _configs(entries: Mapping[str, ConfigEntry]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "value": entry.value,
            "read_only": entry.is_read_only,
            "config_source": ConfigSourceType(int(entry.source)).name,
            "is_sensitive": entry.is_sensitive,
        }
        for name, entry in entries.items()
    }


def _missing(topic: str | uuid.UUID, code: int) -> dict[str, Any]:
    by_id = isinstance(topic, uuid.UUID)
    return {
        "error_code": code,
        "name": None if by_id else topic,
        "topic_id": str(topic) if by_id else None,
        "is_internal": False,
        "partitions": [],
        "authorized_operations": None,
    }


def _described(asked: str | uuid.UUID, found: Mapping[Any, Any]) -> dict[str, Any]:
    try:
        topic = found[asked]
    except KafkaError as error:
        return _missing(asked, code_of(error))
    return _as_dict(topic)


def _as_dict(topic: TopicDescription) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": str(topic.topic_id),
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
        "authorized_operations": names_of(topic.authorized_operations),
    }


def _on_page(topic: TopicDescription) -> dict[str, Any]:
    """Convert as kafka-python does for this response only: the id is not a str, and operations are bits."""
    described = _as_dict(topic)
    described["topic_id"] = topic.topic_id
    allowed = topic.authorized_operations
    del described["authorized_operations"]
    described["topic_authorized_operations"] = -(2**31) if allowed is None else sum(1 << one for one in allowed)
    for shown, partition in zip(described["partitions"], topic.partitions, strict=True):
        for name in ("eligible_leader_replicas", "last_known_elr"):
            replicas = getattr(partition, name)
            shown[name] = None if replicas is None else list(replicas)
    return described


def _not_ready(topic: Mapping[str, Any]) -> str | None:
    if topic["error_code"]:
        return triokafka.errors.for_code(topic["error_code"]).__name__
    if not topic["partitions"]:
        return "no partitions reported"
    return ",".join(f"p{p['partition_index']}=no leader" for p in topic["partitions"] if p["leader_id"] < 0) or None

"""The responses of an idle broker to administrative requests with a time limit of zero, below zero, or the maximum.

The same requests are sent to our broker and to Apache Kafka 4.3; ``tests/data/admin_timeouts.json`` has both responses.
The controller refuses a request whose time limit has passed, even if it is idle. A limit of one millisecond is not
tested: in both brokers it is a race whether it passes before the controller runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import trio

from tests.support.odd_requests import Asker, request, summary

LIMITS_MS: Final = (0, -1, -(2**31), 30_000, 2**31 - 1)
_TOPIC: Final = "limits"
_PATIENCE_SECONDS: Final = 60


def _requests(limit_ms: int) -> Iterator[tuple[str, str, int, Mapping[str, Any]]]:
    """Name, API, version and fields of each request, without its time limit."""
    new = f"new{limit_ms}".replace("-", "m")
    create = {"topics": [{"name": new, "num_partitions": 1, "replication_factor": 1}]}
    yield "create topic", "create_topics", 7, create
    yield "create topic, validate only", "create_topics", 7, {**create, "validate_only": True}
    yield "create no topic", "create_topics", 7, {"topics": []}
    yield "delete topic", "delete_topics", 5, {"topic_names": [_TOPIC + new]}
    yield "delete unknown topic", "delete_topics", 5, {"topic_names": ["unknown"]}
    yield "delete no topic", "delete_topics", 5, {"topic_names": []}
    yield "create partitions", "create_partitions", 3, {"topics": [{"name": _TOPIC, "count": 1, "assignments": None}]}
    yield "create no partitions", "create_partitions", 3, {"topics": []}
    records = [{"name": _TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]
    yield "delete records", "delete_records", 2, {"topics": records}
    moved = [{"name": _TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    yield "reassign", "alter_partition_reassignments", 0, {"topics": moved}
    stopped = [{"name": _TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]
    yield "cancel a reassignment", "alter_partition_reassignments", 0, {"topics": stopped}
    yield "reassign nothing", "alter_partition_reassignments", 0, {"topics": []}
    yield "list reassignments", "list_partition_reassignments", 0, {"topics": None}
    one = [{"name": _TOPIC, "partition_indexes": [0]}]
    yield "list one reassignment", "list_partition_reassignments", 0, {"topics": one}
    yield "list no reassignment", "list_partition_reassignments", 0, {"topics": []}
    preferred = [{"topic": _TOPIC, "partitions": [0]}]
    yield "elect a leader", "elect_leaders", 2, {"election_type": 0, "topic_partitions": preferred}
    yield "elect any leader", "elect_leaders", 2, {"election_type": 1, "topic_partitions": preferred}
    yield "elect all leaders", "elect_leaders", 2, {"election_type": 0, "topic_partitions": None}
    yield "elect no leader", "elect_leaders", 2, {"election_type": 0, "topic_partitions": []}
    yield "elect, version 0", "elect_leaders", 0, {"topic_partitions": preferred}
    level = [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}]
    yield "update a feature", "update_features", 2, {"feature_updates": level, "validate_only": True}
    yield "update no feature", "update_features", 2, {"feature_updates": []}
    yield "list offsets", "list_offsets", 10, {"topics": _looked_up([_TOPIC]), "replica_id": -1}


def _looked_up(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in names]


def expected() -> dict[str, str]:
    """Return the responses of Apache Kafka 4.3."""
    found: dict[str, str] = json.loads((Path(__file__).parents[1] / "data" / "admin_timeouts.json").read_text())
    return found


async def answers(bootstrap: str) -> dict[str, str]:
    """Send every request with every limit; return the responses by request and limit."""
    asker = Asker(bootstrap)
    found: dict[str, str] = {}
    with trio.fail_after(_PATIENCE_SECONDS):
        names = [_TOPIC, *(_TOPIC + f"new{limit}".replace("-", "m") for limit in LIMITS_MS)]
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        made = await asker.call(request("create_topics", {"topics": topics, "timeout_ms": 30_000}), 7)
        assert [topic.error_code for topic in made.topics] == [0] * len(names)
        leader = request("list_offsets", {"topics": _looked_up(names), "timeout_ms": 30_000, "replica_id": -1})
        while any(p.error_code for topic in (await asker.call(leader, 10)).topics for p in topic.partitions):
            await trio.sleep(0.05)  # the broker has not learned of its topics yet, and reports no event for it
        ids: dict[UUID, str] = {topic.topic_id: topic.name for topic in made.topics}
        for limit_ms in LIMITS_MS:
            for case, api, version, values in _requests(limit_ms):
                response = await asker.call(request(api, {**values, "timeout_ms": limit_ms}), version)
                # Topics get new ids each time.
                found[f"{case}, {limit_ms} ms"] = "closed" if response is None else summary(response, ids)
    asker.close()
    return found

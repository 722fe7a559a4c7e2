"""DescribeConfigs of our broker and of Apache Kafka: the same keys, values, sources, types and synonyms."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.interop import jvm
from tests.support.odd_requests import Asker, request
from triokafka.testing import running_broker

pytestmark = pytest.mark.interop

_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
_STATIC: Final = 4  # the source of values in a file
_OTHERWISE: Final = {
    "controller.quorum.append.linger.ms": "changes need not wait: one sync commits all that wait for it",
    "local.retention.bytes": "there is no tiered storage, and so no option of the broker for it",
    "local.retention.ms": "there is no tiered storage, and so no option of the broker for it",
    "queued.max.request.bytes": "a limit derived from the machine's memory, so that no client can exhaust it",
    "socket.listen.backlog.size": "a full backlog delays clients by a second",
    "socket.receive.buffer.bytes": "the kernel finds a better size",
    "group.consumer.assignment.interval.ms": "tests do not wait for it",
}
_CHANGES: Final = [
    (_TOPIC, "t", [("retention.ms", 0, "777"), ("cleanup.policy", 2, "compact")]),
    (_BROKER, "", [("log.retention.ms", 0, "888"), ("log.flush.interval.ms", 0, "77")]),
    (_BROKER, "1", [("log.segment.bytes", 0, "1073741000"), ("max.connections.per.ip", 0, "99")]),
    (_GROUP, "g", [("consumer.session.timeout.ms", 0, "46000")]),
]


async def described(bootstrap: str) -> dict[tuple[int, str, str], list[Any]]:
    """Return every entry of some resources, after some of them were changed: by resource and key."""
    asker = Asker(bootstrap)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    await asker.call(request("create_topics", {"topics": [topic, {**topic, "name": "u"}], "timeout_ms": 10_000}), 7)
    changes = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": operation, "value": value} for key, operation, value in keys],
        }
        for kind, name, keys in _CHANGES
    ]
    changed = await asker.call(request("incremental_alter_configs", {"resources": changes}), 1)
    assert [result.error_code for result in changed.responses] == [0] * len(changes)
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((_TOPIC, "t"), (_TOPIC, "u"), (_BROKER, "1"), (_GROUP, "g"), (_GROUP, "h"), (_METRICS, "m"))
    ]
    asked = request("describe_configs", {"resources": resources, "include_synonyms": True})
    with trio.fail_after(30):
        are_applied = False
        while True:
            answer = await asker.call(asked, 4)
            found = {
                (result.resource_type, result.resource_name, entry.name): [
                    entry.value,
                    entry.config_source,
                    entry.config_type,
                    entry.read_only,
                    entry.is_sensitive,
                    [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
                ]
                for result in answer.results
                for entry in result.configs
            }
            # Kafka's broker applies changes after the response, or during this request.
            if are_applied:
                break
            are_applied = found[_BROKER, "1", "max.connections.per.ip"][0] == "99"
            await trio.sleep(0.1)
    asker.close()
    return found


def test_apache_kafka_describes_configuration_as_we_do(tmp_path: Path) -> None:
    """All entries of topics, groups and client metrics; of the broker those that its file does not set and both brokers
    have.
    """

    async def ask_ours() -> dict[tuple[int, str, str], list[Any]]:
        async with running_broker() as broker:
            return await described(broker.bootstrap_servers)

    jvm.require("mvn", "javac", "java")
    ours = trio.run(ask_ours)
    with jvm.apache_kafka(tmp_path) as bootstrap:
        kafkas = trio.run(described, bootstrap)
    for key in sorted({*ours, *kafkas}):
        here, there = ours.get(key), kafkas.get(key)
        if key[2] in _OTHERWISE or (key[0] == _BROKER and (not here or not there or _STATIC in (here[1], there[1]))):
            continue
        assert here == there, key
    assert sum(key[0] == _BROKER for key in ours) > 100

"""How the console shows values, searches and samples."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from triokafka.client.admin.types import ConfigEntry
from triokafka.console.as_json import as_json
from triokafka.console.group_history import MOST_GROUPS, GroupHistory
from triokafka.console.messages import Search
from triokafka.console.shown_value import shown
from triokafka.errors import UnknownTopicOrPartitionError
from triokafka.protocol.configuration import ConfigSource
from triokafka.structs import Node, TopicPartition


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", None),
        (b"", "text", ""),
        (b"two coffees", "text", "two coffees"),
        (b'{"a":[1]}', "json", '{\n  "a": [\n    1\n  ]\n}'),
        (b"{not json", "text", "{not json"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"bell \x07", "hex", "62 65 6c 6c 20 07"),
        ("é".encode(), "text", "é"),
        (b"[" * 5_000, "text", "[" * 5_000),
    ],
)
def test_bytes_are_shown_in_their_detected_format(data: bytes | None, kind: str, text: str | None) -> None:
    found = shown(data)
    assert (found["format"], found["text"]) == (kind, text)


def test_long_value_is_cut_and_says_so() -> None:
    found = shown(b"x" * 100_000)
    assert found["cut"]
    assert found["size"] == 100_000
    assert len(found["text"]) == 65_536


def test_values_of_the_clients_become_json() -> None:
    entry = ConfigEntry("retention.ms", "1", ConfigSource.TOPIC)
    assert as_json([entry])[0]["source"] == "TOPIC"
    assert as_json({TopicPartition("a", 1): Node(1, "h", 2)}) == {
        "{'topic': 'a', 'partition': 1}": {"node_id": 1, "host": "h", "port": 2, "rack": None}
    }
    assert as_json(uuid.UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert as_json(UnknownTopicOrPartitionError("t"))["error"] == "UnknownTopicOrPartitionError"
    assert as_json({1, 2}) == [1, 2]
    assert as_json(float("nan")) is None


@pytest.mark.parametrize("start", ["", "-1", "@", "@x", "middle", "9" * 20])
def test_search_refuses_a_start_that_is_none(start: str) -> None:
    with pytest.raises(ValueError, match="start must be newest"):
        Search("t", start=start)


@pytest.mark.parametrize("limit", [0, 501])
def test_search_is_bounded(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be from 1 to 500"):
        Search("t", limit=limit)


def record(**parts: Any) -> Any:
    return SimpleNamespace(**{"key": None, "value": None, "headers": (), **parts})


def test_search_looks_into_key_value_and_headers() -> None:
    assert Search("t", key="ab").accepts(record(key=b"cabs"))
    assert not Search("t", key="ab").accepts(record(value=b"ab"))
    assert Search("t", text="tea").accepts(record(value=b"one tea"))
    assert Search("t", text="tea").accepts(record(headers=(("n", b"tea"),)))
    assert Search("t", text="tea").accepts(record(headers=(("tea", None),)))
    assert not Search("t", text="tea").accepts(record(key=b"tea"))


def test_history_keeps_changes_of_assignments_only() -> None:
    history = GroupHistory()
    for now, members in enumerate([{"a": ["t-0"]}, {"a": ["t-0"]}, {"a": [], "b": ["t-0"]}]):
        history.add_assignment("g", now, "Stable", members)
    assert [one["time"] for one in history.of("g")["rebalances"]] == [0, 2]


def test_history_is_bounded() -> None:
    history = GroupHistory()
    for number in range(MOST_GROUPS + 10):
        history.add_lag(f"g{number}", 0, number)
    for now in range(360 + 5):
        history.add_lag("g500", now, now)
    assert history.last_lag("g0") is None
    assert len(history.of("g500")["lag"]) == 360
    assert history.of("unknown") == {"lag": [], "rebalances": []}

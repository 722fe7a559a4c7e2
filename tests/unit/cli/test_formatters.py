"""The printed form of a record."""

from __future__ import annotations

import json
import logging
from typing import Any

import click
import pytest

from triokafka.cli.formatters import make_formatter
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue
from triokafka.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue
from triokafka.records import ConsumerRecord


def record(key: bytes | None = b"k", value: bytes | None = b"v", **more: Any) -> ConsumerRecord:
    return ConsumerRecord("t", 3, 17, timestamp=5, key=key, value=value, **more)


def printed(name: str = "default", record_: ConsumerRecord | None = None, **properties: str) -> bytes:
    dotted = {key.replace("_", "."): value for key, value in properties.items()}
    return make_formatter(name, dotted)(record() if record_ is None else record_)


def test_only_the_value_is_printed_by_default() -> None:
    assert printed() == b"v\n"
    assert printed(record_=record(value=None)) == b"null\n"
    assert printed(record_=record(value=None), null_literal="") == b"\n"


def test_everything_in_kafkas_order() -> None:
    parts = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    shown = {f"print_{name}": "true" for name in parts}
    headers = (("a", b"1"), ("b", None))
    assert printed(record_=record(headers=headers, leader_epoch=2), **shown) == (
        b"CreateTime:5\tPartition:3\tOffset:17\tDelivery:NOT_PRESENT\tEpoch:2\ta:1,b:null\tk\tv\n"
    )
    assert printed(record_=record(), **shown).endswith(b"\tNO_HEADERS\tk\tv\n")
    assert printed(record_=record(timestamp_type=1), print_timestamp="true") == b"LogAppendTime:5\tv\n"
    assert printed(record_=record(timestamp_type=-1), print_timestamp="true") == b"NO_TIMESTAMP\tv\n"
    assert printed(print_value="false", print_offset="true") == b"Offset:17\n"
    assert printed(print_value="false") == b""


def test_separators_may_be_written_with_backslashes() -> None:
    assert printed(print_key="true", key_separator="\\t|\\\\", line_separator="\\0") == b"k\t|\\v\0"


def test_logging_formatter_also_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="triokafka.consume"):
        assert printed("logging") == b"v\n"
    assert "CreateTime:5, key:b'k', value:b'v'" in caplog.text


def test_json_of_kcat_has_its_fields() -> None:
    assert printed("kcat-json", record(headers=(("a", b"1"), ("b", None)))) == (
        b'{"topic":"t","partition":3,"offset":17,"tstype":"create","ts":5,'
        b'"headers":["a","1","b",null],"key":"k","payload":"v"}\n'
    )
    assert printed("kcat-json", record(None, None, timestamp_type=-1)) == (
        b'{"topic":"t","partition":3,"offset":17,"key":null,"payload":null}\n'
    )


def test_checksum_depends_on_every_part() -> None:
    sums = {
        printed("checksum", one)
        for one in (
            record(),
            record(key=None),
            record(key=b""),
            record(value=None),
            record(b"kv", b""),
            record(b"", b"kv"),
        )
    }
    assert len(sums) == 6
    assert printed("checksum") == printed("checksum") and printed("checksum", topic="t").startswith(b"t:checksum:")


def test_offsets_formatter_shows_commits_and_tombstones_only() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1).encode_versioned(1)
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=77).encode_versioned(3)
    shown = b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":1}},"value":%s}\n'
    assert printed("offsets", record(key, value)) == shown % (
        b'{"version":3,"data":{"offset":9,"leaderEpoch":2,"metadata":"m","commitTimestamp":77}}'
    )
    assert printed("offsets", record(key, None)) == shown % b"null"
    group = GroupMetadataKey(group="g").encode_versioned(2)
    assert printed("offsets", record(group, None)) == printed("offsets", record(None, value)) == b""


def test_group_metadata_formatter_shows_generations_only() -> None:
    key = GroupMetadataKey(group="g").encode_versioned(2)
    member = MemberMetadata(member_id="m-1", client_id="c", client_host="/h", subscription=b"\xff")
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m-1", members=[member])
    shown = json.loads(printed("group-metadata", record(key, value.encode_versioned(3))))
    assert shown["key"] == {"type": 2, "data": {"group": "g"}} and shown["value"]["version"] == 3
    data = shown["value"]["data"]
    assert (data["protocolType"], data["generation"], data["currentStateTimestamp"]) == ("consumer", 4, -1)
    assert data["members"][0]["groupInstanceId"] is None and data["members"][0]["subscription"] == "/w=="
    assert printed("group-metadata", record(key, None)).endswith(b'"value":null}\n')
    commit = OffsetCommitKey(group="g", topic="t", partition=1).encode_versioned(1)
    assert printed("group-metadata", record(commit, None)) == printed("group-metadata", record(None)) == b""


def test_transaction_log_formatter_shows_states() -> None:
    key = TransactionLogKey(transactional_id="x").encode_versioned(0)
    value = TransactionLogValue(producer_id=7, transaction_status=1, next_producer_id=8).encode_versioned(1)
    data = json.loads(printed("transaction-log", record(key, value)))["value"]["data"]
    assert (data["producerId"], data["transactionStatus"], data["nextProducerId"]) == (7, 1, 8)
    assert "previousProducerId" not in data


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("pretty", {}),
        ("no.such:Thing", {}),
        ("default", {"print.keys": "true"}),
        ("default", {"print.key": "maybe"}),
        ("noop", {"print.key": "true"}),
        ("default", {"value.deserializer": "builtins:__name__"}),
    ],
)
def test_wrong_formatters_and_properties_are_refused(name: str, properties: dict[str, str]) -> None:
    with pytest.raises(click.UsageError):
        make_formatter(name, properties)


def test_deserializers_by_class_and_by_function() -> None:
    assert printed(value_deserializer="triokafka.client.serializers:StringDeserializer") == b"v\n"
    assert printed(value_deserializer="builtins:len") == b"1\n"
    assert printed(value_deserializer="builtins:bool") == b"true\n", "as in JSON"

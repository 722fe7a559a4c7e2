"""``triokafka log dump``: its output for good, damaged and missing files."""

from __future__ import annotations

import errno
import os
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from triokafka.broker_stub.log import LogConfig, PartitionLog
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE, encode_bootstrap
from triokafka.cli.app import run
from triokafka.cli.log_dump.data_file import DataOptions
from triokafka.cli.log_dump.decoders import text_decoder, with_texts
from triokafka.cli.log_dump.dispatch import DumpOptions, dump_files
from triokafka.cli.log_dump.report import Report
from triokafka.coordinator.consumer_group.records import EpochChange
from triokafka.coordinator.group import records as stored
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord
from triokafka.protocol.stored.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition
from triokafka.world.os_storage import OsStorage

NOW = 1_700_000_000_000
BASE = "00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The closed log of a partition with two segments, a producer and an aborted transaction."""
    folder = tmp_path / "orders-0"
    config = LogConfig(segment_bytes=700, index_interval_bytes=100)
    log = PartitionLog.open(OsStorage(), str(folder), TopicPartition("orders", 0), config, now_ms=NOW)
    for number in range(6):
        records = [(NOW + 2 * number + i, b"k%d" % i, None if i else b"v%d" % number, ()) for i in range(2)]
        data = encode_batch(
            records,
            compression="gzip" if number == 1 else "none",
            producer_id=9,
            producer_epoch=1,
            base_sequence=2 * number,
            transactional=number == 5,
        )
        log.append_as_leader(bytearray(data), leader_epoch=3, now_ms=NOW)
    key, value = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 5)
    marker = encode_batch([(NOW, key, value, ())], producer_id=9, producer_epoch=1, transactional=True, control=True)
    log.append_as_leader(bytearray(marker), leader_epoch=3, now_ms=NOW, from_client=False)
    log.close()
    return folder


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    return Dump(capsys)


class Dump:
    """Runs the command and stores its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out: list[str] = []
        self.err = ""

    def __call__(self, *arguments: object) -> int:
        status = run(["log", "dump", *map(str, arguments)])
        printed = self._capsys.readouterr()
        self.out, self.err = printed.out.splitlines(), printed.err
        return status


@pytest.mark.parametrize("kind", ["a named pipe", "a device"])
def test_special_file_is_refused_without_waiting(directory: Path, dump: Dump, kind: str) -> None:
    """It is named itself, found in a directory, or next to an index."""
    path = directory / f"{BASE}.log"
    path.unlink()
    with ExitStack() as opened:
        if kind == "a device":
            path.symlink_to("/dev/zero")
        else:
            os.mkfifo(path)
            opened.callback(os.close, os.open(path, os.O_RDWR))  # so that a reader waiting for the other end continues
        for asked in (path, directory):
            assert dump(asked) == 1
            assert f"Cannot be read in {path}:\n  It is {kind}, not a file" in dump.err
        assert f"cannot compare: {path}: It is {kind}, not a file" in dump.err


def test_batches_are_printed_with_their_header_fields(directory: Path, dump: Dump) -> None:
    assert dump(directory / f"{BASE}.log") == 0
    assert dump.out[:2] == [f"Dumping {directory}/{BASE}.log", "Log starting offset: 0"]
    second = dump.out[3]
    for fact in (
        "baseOffset: 2 lastOffset: 3 count: 2 baseSequence: 2 lastSequence: 3 producerId: 9 producerEpoch: 1",
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: none",
        f"CreateTime: {NOW + 3}",
        "magic: 2 compresscodec: gzip",
        "isvalid: true",
    ):
        assert fact in second
    assert dump.err == ""


def test_records_are_printed_with_key_and_value_when_asked_for(directory: Path, dump: Dump) -> None:
    assert dump("--files", directory / f"{BASE}.log", "--print-data-log") == 0
    lines = [line for line in dump.out if line.startswith("|")]
    assert lines[2] == (
        f"| offset: 2 CreateTime: {NOW + 2} keySize: 2 valueSize: 2 sequence: 2 headerKeys: [] key: k0 payload: v1"
    )
    assert lines[3].endswith("key: k1 payload: null")
    assert dump(directory / f"{BASE}.log", "--skip-record-metadata", "--value-decoder-class", "hex") == 0
    assert "| key: k0 payload: 7631" in dump.out
    assert dump(directory / f"{BASE}.log", "--deep-iteration") == 0
    assert not any("payload" in line for line in dump.out)


def test_markers_of_transactions_are_named(directory: Path, dump: Dump) -> None:
    assert dump("--deep-iteration", *sorted(directory.glob("*.log"))) == 0
    assert any(line.endswith("endTxnMarker: ABORT coordinatorEpoch: 5") for line in dump.out)


def test_directory_means_all_files_of_the_log(directory: Path, dump: Dump) -> None:
    (directory / "notes.txt").write_text("not of a log")
    assert dump(directory) == 0
    kinds = {line.rpartition("/")[2].partition(".")[2] for line in dump.out if line.startswith("Dumping")}
    assert {"log", "index", "timeindex", "txnindex", "snapshot"} <= kinds
    assert f"Dumping {directory}/leader-epoch-checkpoint" in dump.out
    assert "epoch: 3 startOffset: 0" in dump.out
    assert any(line.startswith("version: 0 producerId: 9 firstOffset: 10 lastOffset: 12") for line in dump.out)
    assert any(line.startswith("producerId: 9 producerEpoch: 1 coordinatorEpoch: 5") for line in dump.out)
    assert "notes.txt" not in "".join(dump.out) + dump.err


def test_file_of_another_kind_is_left_alone(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "notes.txt").write_text("not of a log")
    assert dump(tmp_path / "notes.txt") == 0
    assert "Skipped" in dump.err


def test_directory_without_a_log_is_reported(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "notes.txt").write_text("not of a log")
    assert dump(tmp_path) == 1
    assert f"Nothing to print in {tmp_path}" in dump.err


def test_reader_that_goes_away_is_no_damage_of_the_log(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``triokafka log dump … | head -1``"""

    def gone(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("click.echo", gone)
    report = Report()
    of_data = DataOptions(
        False, False, False, with_texts(text_decoder("string"), text_decoder("string")), max_message_size=1, max_bytes=1
    )
    with pytest.raises(BrokenPipeError):
        dump_files(OsStorage(), [str(directory)], DumpOptions(of_data), report)
    assert not report.failed


def test_index_that_agrees_with_its_log_is_printed(directory: Path, dump: Dump) -> None:
    assert dump(directory / f"{BASE}.index", directory / f"{BASE}.timeindex") == 0
    assert [line.split()[0] for line in dump.out if not line.startswith("Dumping")][:1] == ["offset:"]
    assert any(line.startswith(f"timestamp: {NOW // 1000}") for line in dump.out)
    assert dump("--verify-index-only", directory / f"{BASE}.index") == 0
    assert dump.out == [f"Dumping {directory}/{BASE}.index"]
    assert dump("--index-sanity-check", directory / f"{BASE}.index", directory / f"{BASE}.timeindex") == 0
    assert sum(line.endswith("passed sanity check.") for line in dump.out) == 2


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_index_that_contradicts_its_log_is_reported(directory: Path, dump: Dump, kind: str) -> None:
    path = directory / f"{BASE}.{kind}"
    data = bytearray(path.read_bytes())
    data[3 if kind == "index" else 7] += 1
    path.write_bytes(data)
    assert dump("--verify-index-only", path) == 1
    assert "Entries that contradict the log" in dump.err


def test_entries_of_a_garbage_index_are_reported_one_by_one(directory: Path, dump: Dump) -> None:
    """Including positions before the file's beginning."""
    path = directory / f"{BASE}.index"
    path.write_bytes(struct.pack(">iiii", 1, -5, 2, 2**31 - 1))
    assert dump(path) == 1
    assert "offset 1: no batch at byte -5" in dump.err
    assert "offset 2: no batch at byte 2147483647" in dump.err


def test_zeros_of_an_index_that_was_made_larger_in_advance_are_no_entries(directory: Path, dump: Dump) -> None:
    path = directory / f"{BASE}.index"
    path.write_bytes(path.read_bytes() + bytes(80))
    assert dump(path) == 0
    assert "offset: 0 position: 0" not in dump.out


def test_index_with_a_wrong_size_or_without_its_log_is_reported(directory: Path, dump: Dump) -> None:
    path = directory / f"{BASE}.index"
    path.write_bytes(path.read_bytes() + b"?")
    assert dump(path) == 1
    assert "are not a multiple of 8" in dump.err
    (directory / f"{BASE}.log").unlink()
    assert dump(path) == 1
    assert "cannot compare" in dump.err


def test_problem_of_one_file_is_not_reported_for_the_next_index(directory: Path, dump: Dump) -> None:
    good = directory / f"{BASE}.index"
    assert dump("--index-sanity-check", directory / "missing.index", good, directory / f"{BASE}.timeindex") == 1
    assert sum(line.endswith("passed sanity check.") for line in dump.out) == 2
    assert str(good) not in dump.err


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".swap"])
def test_files_that_come_and_go_belong_together(directory: Path, dump: Dump, suffix: str) -> None:
    """The index of a segment that was deleted meanwhile is compared with that segment's data."""
    for file in directory.glob(f"{BASE}.*"):
        file.rename(f"{file}{suffix}")
    assert dump(directory / f"{BASE}.index{suffix}", directory / f"{BASE}.timeindex{suffix}") == 0
    assert any(line.startswith("offset: ") for line in dump.out)
    assert dump(directory / f"{BASE}.log{suffix}") == 0
    assert "Log starting offset: 0" in dump.out


@pytest.mark.parametrize(
    "name",
    [
        "1-2-3.checkpoint",
        "-5.checkpoint",
        "5.checkpoint",
        "\u00b2" * 20 + ".log",
        *(f"orders.{kind}" for kind in ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint")),
    ],
)
def test_invalid_log_file_name_is_reported(directory: Path, dump: Dump, name: str) -> None:
    """The start offset of the log is unknown then."""
    (directory / name).write_bytes((directory / f"{BASE}.log").read_bytes())
    assert dump(directory / name) == 1
    assert dump.out == []
    assert "not the name of a log file despite the extension" in dump.err
    assert dump(directory) == 0  # where anything may lie
    assert name not in dump.err


def test_bytes_behind_the_last_whole_batch_are_counted(directory: Path, dump: Dump) -> None:
    """A running broker may be in the middle of a write."""
    path = directory / f"{BASE}.log"
    path.write_bytes(path.read_bytes()[:-10])
    assert dump(path) == 0
    (found,) = [line for line in dump.out if line.startswith("Found")]
    assert found.endswith(f"invalid bytes at the end of {BASE}.log")
    assert "Bytes after the last complete batch" in dump.err


@pytest.mark.parametrize("present", [1, 7, 8, 11, 12, 16, 17, 60])
def test_incomplete_batch_is_not_damage(directory: Path, dump: Dump, present: int) -> None:
    """The broker may be at any point of its write."""
    path = directory / f"{BASE}.log"
    whole = path.read_bytes()
    next_one = encode_batch([(NOW, b"k", b"v" * 500, ())], base_offset=1_000)
    path.write_bytes(whole + next_one[:present])
    assert dump(path) == 0
    assert dump.out[-1] == f"Found {present} invalid bytes at the end of {BASE}.log"
    assert f"at byte {len(whole)}: {present} bytes of an incomplete batch" in dump.err


def test_length_that_is_destroyed_is_damage_and_valid_batches_behind_it_are_counted(
    directory: Path, dump: Dump
) -> None:
    path = directory / f"{BASE}.log"
    whole = path.read_bytes()
    more = [encode_batch([(NOW, b"k", b"v", ())], base_offset=offset) for offset in (1_000, 1_001, 1_002)]
    broken = bytearray(more[0])
    broken[8:12] = (1_000_000).to_bytes(4, "big")
    path.write_bytes(whole + broken + more[1] + more[2])
    assert dump(path) == 1
    assert f"at byte {len(whole)}" in dump.err
    assert "2 valid batches follow, up to offset 1002" in dump.err


@pytest.mark.parametrize("before", [True, False])
def test_zeros_of_a_log_that_was_made_larger_in_advance_are_no_damage(
    directory: Path, dump: Dump, before: bool
) -> None:
    """``preallocate``."""
    path = directory / f"{BASE}.log"
    path.write_bytes((path.read_bytes() if before else b"") + bytes(100_000))
    assert dump(path) == 0
    assert dump.out[-1] == f"Found 100000 invalid bytes at the end of {BASE}.log"
    assert "Bytes after the last complete batch" in dump.err


GARBAGE = [
    b"\xff" * 100,
    b"HTTP/1.1 200 OK\r\n" * 9,
    b"\xff",
    b"HTTP",
    bytes(90_000) + b"!",
    bytes(8) + (100).to_bytes(4, "big") + bytes(4) + b"\3",  # no format has this number
    bytes(8) + (2**31 - 1).to_bytes(4, "big") + bytes(4) + b"\2",  # no batch is as long
    (2**31).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(4) + b"\2",  # nor any offset so far from the first
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_file_that_holds_something_else_is_damaged(tmp_path: Path, dump: Dump, garbage: bytes) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(garbage)
    assert dump(path, "--print-data-log") == 1
    assert dump.out[-1] == f"Found {len(garbage)} invalid bytes at the end of {BASE}.log"
    assert f"Damage in {path}:\n  at byte 0: " in dump.err
    assert "the rest of the file was not checked" in dump.err


@pytest.mark.parametrize("garbage", [*GARBAGE, bytes(7) + b"\1" + (100).to_bytes(4, "big") + bytes(4) + b"\2"])
def test_batches_before_the_damage_are_printed(directory: Path, dump: Dump, garbage: bytes) -> None:
    """Also when something that looks like a batch with an earlier offset follows."""
    path = directory / f"{BASE}.log"
    assert dump(path, "--print-data-log") == 0
    good = dump.out
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + garbage)
    assert dump(path, "--print-data-log") == 1
    assert dump.out == [*good, f"Found {len(garbage)} invalid bytes at the end of {BASE}.log"]
    assert f"Damage in {path}:\n  at byte {size}: " in dump.err


def test_batch_with_a_wrong_checksum_is_reported_and_the_next_one_printed(directory: Path, dump: Dump) -> None:
    path = directory / f"{BASE}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    assert dump(path, "--print-data-log") == 1
    assert "isvalid: false" in dump.out[2]
    assert "isvalid: true" in dump.out[3]
    assert "Damage" in dump.err


def test_offset_gaps_are_reported_and_are_no_failure(tmp_path: Path, dump: Dump) -> None:
    """Compaction leaves them."""
    path = tmp_path / f"{BASE}.log"
    batches = [encode_batch([(NOW, b"k", b"v", ())], base_offset=offset) for offset in (0, 1, 5, 9)]
    path.write_bytes(b"".join(batches))
    for options in ((), ("--deep-iteration",)):
        assert dump(path, *options) == 0
        assert "1 is followed by 5" in dump.err
        assert "5 is followed by 9" in dump.err


@pytest.mark.parametrize("options", [(), ("--deep-iteration",)])
def test_offsets_that_go_back_are_wrong(tmp_path: Path, dump: Dump, options: tuple[str, ...]) -> None:
    """No checksum covers them, and no writer produces that."""
    path = tmp_path / f"{BASE}.log"
    batches = [encode_batch([(NOW, b"k", b"v", ())], base_offset=offset) for offset in (0, 999, 2)]
    path.write_bytes(b"".join(batches))
    assert dump(path, *options) == 1
    assert "999 is followed by 2" in dump.err


def test_batch_larger_than_the_limit_is_not_read(directory: Path, dump: Dump) -> None:
    assert dump(directory / f"{BASE}.log", "--max-message-size", 70) == 1
    assert "exceeds --max-message-size; the rest of the file was not checked" in dump.err


def test_only_so_many_bytes_are_checked(directory: Path, dump: Dump) -> None:
    assert dump(directory / f"{BASE}.log", "--max-bytes", 200) == 0
    assert sum(line.startswith("baseOffset") for line in dump.out) == 2 or "limit of --max-bytes" in dump.out[-1]


def test_missing_file_is_reported_and_the_others_are_printed(directory: Path, dump: Dump) -> None:
    assert dump("/nowhere/00000000000000000000.log", directory / f"{BASE}.log") == 1
    assert "no such file or directory" in dump.err
    assert any(line.startswith("baseOffset") for line in dump.out)


def test_records_of_the_offsets_topic_are_decoded(tmp_path: Path, dump: Dump) -> None:
    committed = stored.CommittedOffset(17, 2, "here", NOW)
    record = stored.encode(stored.OffsetChange(stored.OffsetKey("readers", "orders", 3), committed))
    gone = stored.encode(stored.GroupChange("readers", None))
    path = tmp_path / f"{BASE}.log"
    items = [(NOW, record.key, record.value, ()), (NOW, gone.key, None, ()), (NOW, b"\0\x63x", b"?", ())]
    path.write_bytes(encode_batch(items))
    assert dump(path, "--offsets-decoder", "--skip-record-metadata") == 0
    assert '"group": "readers", "topic": "orders", "partition": 3' in dump.out[3]
    assert '"offset": 17, "leaderEpoch": 2, "metadata": "here"' in dump.out[3]
    assert '"group": "readers"' in dump.out[4]
    assert dump.out[4].endswith("payload: null")
    assert "cannot be decoded: unknown record type 99" in dump.out[5]


def test_records_of_consumer_groups_are_decoded_as_kafkas_tool_does(tmp_path: Path, dump: Dump) -> None:
    """Tagged fields only when they were written, ids and bytes in base64 (KIP-848)."""
    epoch = stored.encode(EpochChange("readers", (3, 0)))
    member = ConsumerGroupMemberMetadataValue(
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=1, supported_protocols=[ClassicProtocol(name="range", metadata=b"\0\x01")]
        ),
    )
    key = ConsumerGroupMemberMetadataKey(group_id="readers", member_id="m").encode_versioned(5)
    path = tmp_path / f"{BASE}.log"
    pairs = [(epoch.key, epoch.value), (key, member.encode_versioned(0)), (key, None)]
    path.write_bytes(encode_batch([(NOW, *pair, ()) for pair in pairs]))
    assert dump(path, "--offsets-decoder", "--skip-record-metadata") == 0
    assert '{"type": "3", "data": {"groupId": "readers"}}' in dump.out[3]
    assert dump.out[3].endswith('{"version": "0", "data": {"epoch": 3}}')
    assert '"supportedProtocols": [{"name": "range", "metadata": "AAE="}]' in dump.out[4]
    assert dump.out[5].endswith('{"type": "5", "data": {"groupId": "readers", "memberId": "m"}} payload: null')


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "No files"),
        (("x.log", "--offsets-decoder", "--cluster-metadata-decoder"), "More than one decoder option"),
        (("x.log", "--key-decoder-class", "avro"), "unknown decoder 'avro'"),
    ],
)
def test_wrong_use_is_reported_in_one_sentence(dump: Dump, arguments: tuple[str, ...], complaint: str) -> None:
    assert dump(*arguments) == 2
    assert complaint in dump.err


def test_checkpoints_of_a_data_directory_are_printed(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 42\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 42\n")
    assert dump(tmp_path) == 1
    assert "topic: orders partition: 0 offset: 42" in dump.out
    assert "recovery-point-offset-checkpoint" in dump.err


def test_first_records_of_a_cluster_are_printed(tmp_path: Path, dump: Dump) -> None:
    records = [FeatureLevelRecord(name="metadata.version", feature_level=25)]
    path = tmp_path / BOOTSTRAP_FILE
    path.write_bytes(encode_bootstrap(records, metadata_version=25, now_ms=NOW))
    assert dump("--cluster-metadata-decoder", path) == 0, dump.err
    assert dump.out[1] == "KRaft bootstrap snapshot"
    assert any('SnapshotHeader {"version": 0,' in line for line in dump.out), "Kafka's name of the control record"
    assert any('"name": "metadata.version", "featureLevel": 25' in line for line in dump.out)
